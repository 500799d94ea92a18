import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science.metrics import (
    binary_expected_calibration_error,
    classwise_expected_calibration_error,
    debiased_rms_calibration_error,
    equal_mass_expected_calibration_error,
    expected_calibration_error,
    monotonic_sweep_calibration_error,
    multilabel_debiased_rms_calibration_error,
    multilabel_equal_mass_expected_calibration_error,
    multilabel_expected_calibration_error,
    reliability_bins,
    top_label,
)


def two_columns(confidence):
    """Rows whose top label is class 1, with the given confidences."""
    confidence = np.asarray(confidence, dtype=float)
    return np.stack([1 - confidence, confidence], axis=1)


def random_case(n=500, k=6, seed=0):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(k, 0.4), size=n)
    return rng.integers(0, k, n), probabilities


def slow_ece(confidence, correct, n_bins):
    """Bin by bin in Python, from the formula."""
    members = [[] for _ in range(n_bins)]
    for p, hit in zip(confidence, correct, strict=True):
        members[min(int(np.floor(n_bins * p)), n_bins - 1)].append((p, hit))
    gaps = [abs(sum(p for p, _ in rows) - sum(hit for _, hit in rows)) for rows in members]
    return sum(gaps) / len(confidence)


def test_certain_and_always_wrong_is_one():
    assert expected_calibration_error(np.zeros(100, dtype=int), two_columns(np.ones(100))) == 1.0
    assert binary_expected_calibration_error(np.zeros(100), np.ones(100)) == 1.0
    assert binary_expected_calibration_error(np.ones(100), np.zeros(100)) == 1.0


def test_certain_and_always_right_is_zero():
    assert expected_calibration_error(np.ones(50, dtype=int), two_columns(np.ones(50))) == 0.0
    assert binary_expected_calibration_error(np.ones(50), np.ones(50)) == 0.0


def test_one_populated_bin_by_hand():
    # Ten rows at .9, five right: gap .4, whatever the number of bins.
    y_true = np.array([1] * 5 + [0] * 5)
    for n_bins in (1, 5, 15):
        assert expected_calibration_error(y_true, two_columns([0.9] * 10), n_bins=n_bins) == pytest.approx(0.4)
    # Class-wise: class 1 has p .9 and frequency .5, class 0 p .1 and frequency .5: mean of .4 and .4.
    assert classwise_expected_calibration_error(y_true, two_columns([0.9] * 10)) == pytest.approx(0.4)


def test_two_bins_by_hand():
    # Bin of .6: one of two right, gap |.6 - .5| = .1; bin of .8 and .9: mean .85, one of two right, gap .35.
    # (2 * .1 + 2 * .35) / 4 = .225.
    assert expected_calibration_error([1, 0, 1, 0], two_columns([0.6, 0.6, 0.8, 0.9]), n_bins=4) == pytest.approx(0.225)


@pytest.mark.parametrize("n_bins", [5, 10, 15])
def test_edges_go_up_and_no_row_is_lost(n_bins):
    edges = np.arange(n_bins + 1) / n_bins
    table = reliability_bins(np.zeros(len(edges)), edges, n_bins=n_bins)
    assert table["count"].sum() == len(edges)
    expected = np.bincount([min(int(np.floor(n_bins * p)), n_bins - 1) for p in edges], minlength=n_bins)
    assert table["count"].to_list() == expected.tolist()
    assert table["count"][-1] >= 2  # its lower edge and p = 1


def test_top_label_ties_go_to_the_lowest_index():
    confidence, correct = top_label([0, 1, 2], np.full((3, 3), 1 / 3))
    assert correct.tolist() == [True, False, False]
    assert confidence.tolist() == [1 / 3] * 3


def test_matches_the_formula_and_torchmetrics():
    import torch
    from torchmetrics.functional.classification import multiclass_calibration_error

    y_true, probabilities = random_case()
    confidence, correct = top_label(y_true, probabilities)
    value = expected_calibration_error(y_true, probabilities)
    assert value == pytest.approx(slow_ece(confidence, correct, 15), abs=1e-12)
    # No probability sits on an edge or at 1 here, where torchmetrics bins differently.
    reference = multiclass_calibration_error(torch.tensor(probabilities), torch.tensor(y_true), 6, n_bins=15, norm="l1")
    assert value == pytest.approx(float(reference), abs=1e-6)


def test_saturated_float32_probabilities_stay_in_the_last_bin():
    confidence = np.float32(1) / (np.float32(1) + np.exp(-np.float32([15, 17, 20, 40])))
    assert confidence[-1] == 1
    value = expected_calibration_error(np.zeros(4, dtype=int), two_columns(confidence.astype(np.float64)))
    assert value == pytest.approx(confidence.astype(np.float64).mean(), abs=1e-15)


def test_binary_and_top_label_are_different_quantities():
    # p(1) = .1 and .9, both rows of class 1. Positive-class: gaps .9 and .1 -> .5. Top label: confidence .9 and .9
    # in one bin, one right -> |.9 - .5| = .4.
    p = np.array([0.1, 0.9])
    assert binary_expected_calibration_error([1, 1], p) == pytest.approx(0.5)
    assert expected_calibration_error([1, 1], two_columns(p)) == pytest.approx(0.4)


def test_shape_contracts():
    with pytest.raises(ValueError, match="call the binary_ or multilabel_ function"):
        expected_calibration_error([0, 1], [0.2, 0.8])
    with pytest.raises(ValueError, match=r"expected \(n,\): the positive class's probability"):
        binary_expected_calibration_error([[0, 1]], [[0.2, 0.8]])
    with pytest.raises(ValueError, match="must sum to 1"):
        expected_calibration_error([0, 1], [[0.2, 0.3], [0.9, 0.4]])
    with pytest.raises(ValueError, match="n_bins is 0"):
        expected_calibration_error([0, 1], np.eye(2), n_bins=0)


def test_multilabel_is_the_mean_over_labels_on_observed_cells():
    rng = np.random.default_rng(5)
    probabilities = rng.random((300, 3))
    y_true = (rng.random((300, 3)) < 0.5).astype(float)
    observed = rng.random((300, 3)) < 0.6
    expected = [slow_ece(probabilities[m, k], y_true[m, k], 15) for k, m in enumerate(observed.T)]
    value = multilabel_expected_calibration_error(y_true, probabilities, observed=observed)
    assert value == pytest.approx(np.mean(expected), abs=1e-12)
    masked = np.where(observed, y_true, np.nan)
    assert multilabel_expected_calibration_error(masked, probabilities) == value
    only = multilabel_expected_calibration_error(masked, probabilities, classes=[2])
    assert only == pytest.approx(expected[2], abs=1e-12)


def test_an_all_masked_label_leaves_the_mean_and_nothing_left_is_nan():
    y_true = np.array([[1.0, np.nan], [1.0, np.nan]])
    p = np.array([[0.75, 0.5], [0.75, 0.5]])
    assert multilabel_expected_calibration_error(y_true, p) == 0.25
    assert np.isnan(multilabel_expected_calibration_error(y_true[:, 1], p[:, 1]))


def test_equal_mass_by_hand():
    # Four rows, two bins: {.5, .6} mean .55, both right, gap .45; {.7, .9} mean .8, none right, gap .8.
    # (2 * .45 + 2 * .8) / 4 = .625.
    y_true, proba = [1, 1, 0, 0], two_columns([0.55, 0.55, 0.7, 0.9])
    assert equal_mass_expected_calibration_error(y_true, proba, n_bins=2) == pytest.approx(0.625)
    # All equal: one bin remains; 2 of 4 right at .9.
    assert equal_mass_expected_calibration_error(y_true, two_columns([0.9] * 4), n_bins=4) == pytest.approx(0.4)


def test_debiased_rms_by_hand():
    # One bin of 4 rows at .9 with 2 right: (.4)^2 - .5 * .5 / 3 = .16 - .0833333 = .0766667; root .2768875.
    y_true, proba = [1, 1, 0, 0], two_columns([0.9] * 4)
    assert debiased_rms_calibration_error(y_true, proba) == pytest.approx(np.sqrt(0.16 - 0.25 / 3), abs=1e-14)
    # One bin at .5 with 2 of 4 right: 0 - .0833 is floored.
    assert debiased_rms_calibration_error([1, 1, 0, 0], np.full((4, 2), 0.5)) == 0.0


def test_debiasing_removes_most_of_the_bias_of_a_calibrated_predictor():
    rng = np.random.default_rng(11)
    p = rng.random((2000, 30))  # thirty calibrated labels of 2000 rows
    y_true = (rng.random(p.shape) < p).astype(float)
    plain = multilabel_equal_mass_expected_calibration_error(y_true, p)
    squared = [multilabel_debiased_rms_calibration_error(y_true[:, k], p[:, k]) ** 2 for k in range(30)]
    # Unbiased but for the floor at 0: far below the plain error's square, which is about .0005.
    assert np.mean(squared) < 0.4 * plain**2


def test_sweep_by_hand():
    # Sorted outcomes 0 1 | 0 1: two bins have frequencies .5, .5 (non-decreasing); three bins {0}, {1}, {0, 1} have
    # 0, 1, .5: not. So two bins: means .6 and .8, gaps .1 and .3 -> .2.
    y_true, proba = [0, 1, 0, 1], two_columns([0.55, 0.65, 0.75, 0.85])
    assert monotonic_sweep_calibration_error(y_true, proba) == pytest.approx(0.2)
    # Frequencies already fall with two bins: one bin, |.7 - .5| = .2.
    assert monotonic_sweep_calibration_error([1, 1, 0, 0], proba) == pytest.approx(0.2)


def test_classwise_averages_the_classes_chosen():
    y_true, probabilities = random_case()
    expected = [slow_ece(probabilities[:, k], y_true == k, 15) for k in range(6)]
    assert classwise_expected_calibration_error(y_true, probabilities) == pytest.approx(np.mean(expected), abs=1e-12)
    chosen = classwise_expected_calibration_error(y_true, probabilities, classes=[0, 4])
    assert chosen == pytest.approx(np.mean([expected[0], expected[4]]), abs=1e-12)


def test_reliability_table_by_hand():
    table = reliability_bins([1, 0, np.nan, 1], [0.25, 0.3, 0.3, 0.9], n_bins=4)
    assert table["lower"].to_list() == [0, 0.25, 0.5, 0.75]
    assert table["upper"].to_list() == [0.25, 0.5, 0.75, 1]
    assert table["count"].to_list() == [0, 2, 0, 1]
    assert table["mean_probability"].to_list() == [None, pytest.approx(0.275), None, 0.9]
    assert table["frequency"].to_list() == [None, 0.5, None, 1.0]


def test_six_probability_levels_fill_at_most_six_bins():
    levels = np.repeat(np.arange(6) / 5, 20)
    assert (reliability_bins(np.zeros(120), levels)["count"] > 0).sum() == 6


TOP_LABEL_ERRORS = [
    expected_calibration_error,
    equal_mass_expected_calibration_error,
    classwise_expected_calibration_error,
    debiased_rms_calibration_error,
    monotonic_sweep_calibration_error,
]


@pytest.mark.parametrize("error", TOP_LABEL_ERRORS)
@given(seed=st.integers(0, 10_000), n=st.integers(1, 80), decimals=st.sampled_from([1, 2, 12]))
@settings(max_examples=25, deadline=None)
def test_errors_are_bounded_and_ignore_row_order(error, seed, n, decimals):
    rng = np.random.default_rng(seed)
    confidence = np.round(rng.uniform(0.5, 1, n), decimals)  # few decimals make ties
    y_true, proba = rng.integers(0, 2, n), two_columns(confidence)
    value = error(y_true, proba)
    assert 0 <= value <= 1
    order = rng.permutation(n)
    assert error(y_true[order], proba[order]) == pytest.approx(value, abs=1e-12)
