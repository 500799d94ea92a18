import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crs_assets.science.protocol import AXES, Anchor, ScoreWeights, load_protocol
from crs_assets.science.scoring import normalize, reliability_score

ANCHORS = {
    "discrimination": (0.5, 1.0),
    "calibration": (0.25, 0.0),
    "label_efficiency": (0.5, 1.0),
    "robustness": (0.25, 0.0),
}
WEIGHTS = (0.60, 0.25, 0.15)

six_decimals = st.integers(0, 1_000_000).map(lambda millionths: millionths / 1e6)
profiles = hnp.arrays(np.float64, 4, elements=six_decimals)
panels = st.integers(1, 8).flatmap(lambda n: hnp.arrays(np.float64, (n, 4), elements=six_decimals))


def test_normalize_by_hand():
    # (.9 - .5) / .5 = .8; (.05 - .25) / -.25 = .8; (.95 - .5) / .5 = .9; (.1 - .25) / -.25 = .6.
    assert normalize([0.9, 0.05, 0.95, 0.1], ANCHORS).tolist() == [0.8, 0.8, 0.9, 0.6]


def test_normalize_clips_once_at_both_ends():
    assert normalize([0.4, 0.3, 1.02, -0.01], ANCHORS).tolist() == [0.0, 0.0, 1.0, 1.0]


def test_normalize_rounds_to_six_decimals():
    assert normalize([0.5 + 1 / 6, 0.0, 1.0, 0.0], ANCHORS)[0] == 0.333333


def test_zero_is_never_negative_zero():
    assert not np.signbit(normalize([0.5, 0.25, 0.5, 0.25], ANCHORS)).any()


def test_normalize_reads_mappings_tables_and_anchors_alike():
    raw = {"robustness": 0.1, "label_efficiency": 0.95, "calibration": 0.05, "discrimination": 0.9}
    row = [raw[axis] for axis in AXES]
    expected = normalize(row, ANCHORS)
    anchors = {axis: Anchor(zero=zero, one=one) for axis, (zero, one) in reversed(ANCHORS.items())}
    np.testing.assert_array_equal(normalize(raw, anchors), expected)
    np.testing.assert_array_equal(normalize([row, row], ANCHORS), [expected, expected])
    np.testing.assert_array_equal(normalize(row, load_protocol("crs-v1").axes.anchors), expected)


def test_normalize_refuses_nan_missing_axes_and_equal_anchors():
    with pytest.raises(ValueError, match="raw: 1 of 4 values are NaN or infinite"):
        normalize([0.9, np.nan, 0.9, 0.1], ANCHORS)
    with pytest.raises(ValueError, match=r"raw has shape \(3,\), expected 4 values in the order"):
        normalize([0.9, 0.9, 0.1], ANCHORS)
    with pytest.raises(ValueError, match=r"raw names .*'discrimination'.*expected exactly"):
        normalize({"discrimination": 0.9}, ANCHORS)
    with pytest.raises(ValueError, match="anchors names"):
        normalize([0.9, 0.0, 0.9, 0.1], {"discrimination": (0.5, 1.0)})
    with pytest.raises(ValueError, match=r"anchors of calibration coincide at 0\.25"):
        normalize([0.9, 0.0, 0.9, 0.1], ANCHORS | {"calibration": (0.25, 0.25)})


def test_score_by_hand():
    # Against (.8 .8 .9 .6): row 1 is worse everywhere, row 2 equal, row 3 better on one axis, row 4 equal but for one.
    panel = [[0.1, 0.1, 0.1, 0.1], [0.8, 0.8, 0.9, 0.6], [0.1, 0.1, 0.1, 0.7], [0.8, 0.8, 0.9, 0.5]]
    score = reliability_score([0.8, 0.8, 0.9, 0.6], panel, weights=WEIGHTS)
    assert (score.dominated, score.peers, score.dominance) == (2, 4, 0.5)
    # ||1 - z|| = sqrt(.04 + .04 + .01 + .16) = .5, so closeness = 1 - .25.
    assert score.closeness == pytest.approx(0.75)
    assert score.worst_axis == 0.6
    # .6 * .5 + .25 * .75 + .15 * .6 = .3 + .1875 + .09.
    assert score.crs == pytest.approx(0.5775)


def test_the_ideal_scores_one_and_the_worst_zero():
    ideal = reliability_score(np.ones(4), np.zeros((3, 4)), weights=WEIGHTS)
    assert (ideal.crs, ideal.dominance, ideal.closeness, ideal.worst_axis) == (1.0, 1.0, 1.0, 1.0)
    worst = reliability_score(np.zeros(4), np.ones((3, 4)), weights=WEIGHTS)
    assert (worst.crs, worst.dominance, worst.closeness, worst.worst_axis) == (0.0, 0.0, 0.0, 0.0)


def test_weights_in_every_accepted_form():
    z, panel = [0.8, 0.7, 0.9, 0.6], [[0.1, 0.2, 0.3, 0.4]]
    named = {"dominance": 0.60, "closeness": 0.25, "worst_axis": 0.15}
    scores = [reliability_score(z, panel, weights=w) for w in (WEIGHTS, list(WEIGHTS), named, ScoreWeights(**named))]
    assert len(set(scores)) == 1


def test_weights_are_required_and_checked():
    with pytest.raises(TypeError, match="weights"):
        reliability_score(np.ones(4), np.zeros((1, 4)))
    with pytest.raises(ValueError, match=r"must sum to 1, got 1\.5"):
        reliability_score(np.ones(4), np.zeros((1, 4)), weights=(0.5, 0.5, 0.5))
    with pytest.raises(ValueError, match="weights has 2 values, expected 3"):
        reliability_score(np.ones(4), np.zeros((1, 4)), weights=(0.5, 0.5))
    with pytest.raises(ValueError, match="worst"):
        reliability_score(np.ones(4), np.zeros((1, 4)), weights={"dominance": 0.6, "closeness": 0.4, "worst": 0.0})


def test_an_empty_panel_names_the_cure():
    with pytest.raises(ValueError, match=r"the panel has no peers.*freeze a local panel"):
        reliability_score(np.ones(4), np.empty((0, 4)), weights=WEIGHTS)


def test_profiles_outside_the_unit_interval_are_refused():
    with pytest.raises(ValueError, match=r"z spans -0\.1\.\.1, expected \[0, 1\]; normalize"):
        reliability_score([1, 1, 1, -0.1], np.zeros((1, 4)), weights=WEIGHTS)
    with pytest.raises(ValueError, match="panel_z: 1 of 4 values are NaN"):
        reliability_score(np.ones(4), [[0, 0, 0, np.nan]], weights=WEIGHTS)


@given(profiles, panels)
@settings(deadline=None)
def test_every_term_is_bounded(z, panel):
    score = reliability_score(z, panel, weights=WEIGHTS)
    for value in (score.crs, score.dominance, score.closeness, score.worst_axis):
        assert 0 <= value <= 1


@given(profiles, panels, st.integers(0, 3), six_decimals)
@settings(deadline=None)
def test_raising_one_axis_never_lowers_the_score(z, panel, axis, target):
    better = z.copy()
    better[axis] = max(z[axis], target)
    before = reliability_score(z, panel, weights=WEIGHTS)
    after = reliability_score(better, panel, weights=WEIGHTS)
    assert after.crs >= before.crs
    assert after.dominated >= before.dominated


@given(profiles, panels, st.randoms(use_true_random=False))
@settings(deadline=None)
def test_panel_order_does_not_matter_and_a_twin_is_never_dominated(z, panel, random):
    order = random.sample(range(len(panel)), len(panel))
    score = reliability_score(z, panel, weights=WEIGHTS)
    assert reliability_score(z, panel[order], weights=WEIGHTS) == score
    with_twin = reliability_score(z, np.vstack((panel, z)), weights=WEIGHTS)
    assert with_twin.dominated == score.dominated
    assert with_twin.peers == score.peers + 1


@given(profiles, panels)
@settings(deadline=None)
def test_dominance_matches_the_definition_pair_by_pair(z, panel):
    wins = [
        all(a >= b for a, b in zip(z, row, strict=True)) and any(a > b for a, b in zip(z, row, strict=True))
        for row in panel
    ]
    score = reliability_score(z, panel, weights=WEIGHTS)
    assert score.dominance == sum(wins) / len(panel)
    assert score.closeness == pytest.approx(1 - math.sqrt(sum((1 - a) ** 2 for a in z)) / 2, abs=1e-15)


@given(hnp.arrays(np.float64, 4, elements=st.floats(-2, 2)))
@settings(deadline=None)
def test_normalized_values_are_bounded_and_normalizing_twice_what_is_normal_changes_nothing(raw):
    z = normalize(raw, ANCHORS)
    assert ((z >= 0) & (z <= 1)).all()
    np.testing.assert_array_equal(normalize(z, dict.fromkeys(AXES, (0.0, 1.0))), z)
