import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crs_assets.science.metrics import area_under_learning_curve, label_efficiency, robustness

unit = st.floats(0.0, 1.0)


def test_raw_robustness_by_hand():
    # Drops .1, .2, 0: mean .1, worst .2, (m + w) / 2 = .15.
    result = robustness(0.9, [0.8, 0.7, 0.9], form="raw")
    assert (result.mean_drop, result.worst_drop) == (pytest.approx(0.1), pytest.approx(0.2))
    assert result.transfer_drop is None
    assert result.value == pytest.approx(0.15)


def test_transfer_is_a_third_part_on_its_own_classes():
    # Source .85 and target .70 on the shared classes: t = .15; (.1 + .2 + .15) / 3 = .15.
    result = robustness(0.9, {"jpeg-1": 0.8, "jpeg-2": 0.7, "jpeg-3": 0.9}, form="raw", source_and_target=(0.85, 0.70))
    assert result.transfer_drop == pytest.approx(0.15)
    assert result.value == pytest.approx(0.15)


def test_a_gain_is_kept_in_the_part_and_is_no_credit_in_the_value():
    # Drops -.1 and .2: mean .05 keeps the sign of the first; each part is floored, not each drop.
    mixed = robustness(0.8, [0.9, 0.6], form="raw")
    assert mixed.mean_drop == pytest.approx(0.05)
    assert mixed.value == pytest.approx((0.05 + 0.2) / 2)
    # Drops -.3 and .1: mean -.1 counts 0, worst .1 counts .1 -> .05; the mean gain does not pay for the worst loss.
    assert robustness(0.6, [0.9, 0.5], form="raw").value == pytest.approx(0.05)
    better = robustness(0.8, [0.9, 0.85], form="raw", source_and_target=(0.8, 0.9))
    assert (better.mean_drop, better.worst_drop) == (pytest.approx(-0.075), pytest.approx(-0.05))
    assert better.transfer_drop == pytest.approx(-0.1)
    assert better.value == 0.0


def test_skill_robustness_by_hand():
    # Above chance .4: drops .1 / .4 and .2 / .4; source above chance .3: .15 / .3.
    result = robustness(0.9, [0.8, 0.7], form="skill", source_and_target=(0.8, 0.65), skill_min_auroc=0.55)
    assert result.mean_drop == pytest.approx(0.375)
    assert result.worst_drop == pytest.approx(0.5)
    assert result.transfer_drop == pytest.approx(0.5)
    assert result.value == pytest.approx((0.375 + 0.5 + 0.5) / 3)


def test_skill_is_not_estimable_near_chance():
    near = robustness(0.549, [0.5], form="skill", skill_min_auroc=0.55)
    assert np.isnan([near.mean_drop, near.worst_drop, near.value]).all()
    assert robustness(0.55, [0.525], form="skill", skill_min_auroc=0.55).value == pytest.approx(0.5)
    weak_source = robustness(0.9, [0.8], form="skill", source_and_target=(0.52, 0.5), skill_min_auroc=0.55)
    assert np.isnan(weak_source.transfer_drop)
    assert np.isnan(weak_source.value)
    assert np.isnan(label_efficiency([0.5], 0.54, form="skill", skill_min_auroc=0.55))


@pytest.mark.parametrize("degraded", [[np.nan, 0.7], [0.7, np.nan]])
def test_a_condition_that_is_not_estimable_spoils_the_value(degraded):
    assert np.isnan(robustness(0.9, degraded, form="raw").value)


def test_skill_needs_its_threshold():
    with pytest.raises(ValueError, match=r"skill_min_auroc is None.*protocol\.metrics\.skill_min_auroc"):
        robustness(0.9, [0.8], form="skill")
    with pytest.raises(ValueError, match="form is 'ratio'"):
        label_efficiency([0.8], 0.9, form="ratio")


def test_aurocs_outside_the_unit_interval_are_refused():
    with pytest.raises(ValueError, match=r"auroc_degraded holds \[80\.0\]"):
        robustness(0.9, [80.0], form="raw")
    with pytest.raises(ValueError, match="auroc_degraded is empty"):
        robustness(0.9, [], form="raw")


def test_label_efficiency_by_hand():
    # Raw: mean(.6, .7, .8, .9) / .9 = .75 / .9. Skill: mean(.1, .2, .3, .4) / .4 = .625.
    curve = {0.01: 0.6, 0.05: 0.7, 0.10: 0.8, 0.25: 0.9}
    assert label_efficiency(curve, 0.9, form="raw") == pytest.approx(0.75 / 0.9)
    assert label_efficiency(list(curve.values()), 0.9, form="skill", skill_min_auroc=0.55) == pytest.approx(0.625)


def test_the_full_fraction_is_no_part_of_label_efficiency():
    with pytest.raises(ValueError, match=r"expected only those in \(0, 1\)"):
        label_efficiency({0.1: 0.7, 1.0: 0.9}, 0.9, form="raw")


def test_learning_curve_area_by_hand():
    # Two equal steps on the log axis: trapezoids .6 to .8 and .8 to .9 -> (.7 + .85) / 2.
    assert area_under_learning_curve({1.0: 0.9, 0.01: 0.6, 0.1: 0.8}) == pytest.approx(0.775)
    assert np.isnan(area_under_learning_curve({0.1: np.nan, 1.0: 0.9}))
    with pytest.raises(ValueError, match="at least two"):
        area_under_learning_curve({1.0: 0.9})


@given(unit, st.lists(unit, min_size=1, max_size=15), st.one_of(st.none(), st.tuples(unit, unit)))
def test_raw_value_is_bounded_and_no_drop_is_zero(clean, degraded, transfer):
    result = robustness(clean, degraded, form="raw", source_and_target=transfer)
    assert 0 <= result.value <= 1
    assert result.mean_drop <= result.worst_drop + 1e-15
    assert robustness(clean, [clean] * 3, form="raw").value == 0.0


@given(unit.filter(lambda x: x > 0))
def test_keeping_everything_is_full_efficiency(auroc):
    assert label_efficiency([auroc] * 4, auroc, form="raw") == 1.0
