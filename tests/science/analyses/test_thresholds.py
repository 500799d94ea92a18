"""Thresholds, predictive values, net benefit and Wilson intervals by hand and by other means."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from crs_assets.science.analyses.thresholds import choose_threshold, net_benefit, predictive_values, wilson_interval


def cases(text):
    """``+0.9 -0.4``: sign and score."""
    entries = text.split()
    return np.array([entry[0] == "+" for entry in entries]), np.array([float(entry[1:]) for entry in entries])


@pytest.mark.parametrize(
    ("kind", "target", "text", "threshold"),
    [
        # Five positives: 4 of 5 are reached at 0.5, all at 0.2.
        ("sensitivity", 0.80, "+0.9 +0.8 +0.7 +0.5 +0.2 -0.6 -0.1", 0.5),
        ("sensitivity", 0.81, "+0.9 +0.8 +0.7 +0.5 +0.2 -0.6 -0.1", 0.2),
        # Three positives share 0.5, so 0.5 brings all of them.
        ("sensitivity", 0.60, "+0.9 +0.5 +0.5 +0.5 -0.5 -0.1", 0.5),
        # A specificity of 3/4 needs three negatives below: the next score that occurs is 0.45.
        ("specificity", 0.75, "-0.1 -0.2 -0.4 -0.6 +0.45 +0.9", 0.45),
        ("specificity", 0.76, "-0.1 -0.2 -0.4 -0.6 +0.45 +0.9", 0.9),
        # Tied negatives are below a threshold together or not at all.
        ("specificity", 0.50, "-0.3 -0.3 -0.3 -0.1 +0.3 +0.8", 0.8),
        # Half of the negatives share the highest score: at it specificity is 1/2, and above it there is no score.
        ("specificity", 0.60, "-0.9 -0.9 -0.1 -0.1 +0.9 +0.2", None),
    ],
)
def test_thresholds_by_hand(kind, target, text, threshold):
    assert choose_threshold(*cases(text), kind, target) == threshold


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 6)), min_size=2, max_size=40).filter(
        lambda rows: len({sign for sign, _ in rows}) == 2
    ),
    st.integers(1, 39),
    st.sampled_from(["sensitivity", "specificity"]),
)
def test_no_observed_score_does_better(rows, target, kind):
    positive, score = np.array([sign for sign, _ in rows]), np.array([float(place) for _, place in rows])
    wanted = target / 40

    def reaches(threshold):
        called = score >= threshold
        rate = called[positive].mean() if kind == "sensitivity" else (~called[~positive]).mean()
        return rate >= wanted

    candidates = [threshold for threshold in np.unique(score) if reaches(threshold)]
    best = (max if kind == "sensitivity" else min)(candidates) if candidates else None
    assert choose_threshold(positive, score, kind, wanted) == best


@pytest.mark.parametrize("positives", [20, 40, 100])
def test_a_target_that_is_a_whole_number_of_positives_needs_no_more(positives):
    # 0.55 * 20 is 11.000000000000002 in floating point; 11 of 20 are enough all the same.
    score = np.arange(positives + 1.0)
    positive = score > 0
    assert choose_threshold(positive, score, "sensitivity", 0.55) == positives - round(0.55 * positives) + 1


def test_predictive_values_by_bayes():
    # 1000 people at prevalence 0.1: 90 of 100 ill and 180 of 900 well are called ill.
    ppv, npv = predictive_values(0.9, 0.8, [0.1, 0.5])
    assert ppv == pytest.approx([90 / 270, 0.45 / 0.55])
    assert npv == pytest.approx([720 / 730, 0.4 / 0.45])
    # Nobody is called ill, nobody well.
    assert np.isnan(predictive_values(0.0, 1.0, [0.1])[0]).all()
    assert np.isnan(predictive_values(1.0, 0.0, [0.1])[1]).all()
    # Several at once: prevalences down, models across.
    both, _ = predictive_values([0.9, 0.0], [0.8, 1.0], [0.1, 0.5])
    np.testing.assert_allclose(both, [[90 / 270, np.nan], [0.45 / 0.55, np.nan]])


def test_net_benefit_by_hand():
    # 100 people, threshold 0.2 (odds 1/4): 20 found, 30 called ill in vain: 20/100 - 30/100/4.
    assert net_benefit(20, 30, 100, 0.2) == pytest.approx(0.125)
    np.testing.assert_allclose(net_benefit([5, 0], [0, 5], [10, 10], 0.5), [0.5, -0.5])
    assert np.isnan(net_benefit(0, 0, 0, 0.5))


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (10, 10), (19, 20), (1, 3), (450, 500)])
@pytest.mark.parametrize("level", [0.8, 0.95])
def test_wilson_as_scipy_has_it(successes, trials, level):
    wanted = binomtest(successes, trials).proportion_ci(confidence_level=level, method="wilson")
    assert wilson_interval(successes, trials, level=level) == pytest.approx((wanted.low, wanted.high), abs=1e-12)
