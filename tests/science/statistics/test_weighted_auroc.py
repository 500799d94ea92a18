import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from crs_assets.science.metrics import macro_auroc
from crs_assets.science.statistics import WeightedAuroc


def tied_case(seed, n=80):
    rng = np.random.default_rng(seed)
    y_true = (rng.random(n) < 0.4).astype(int)
    return y_true, rng.integers(0, 9, n).astype(float), rng


@given(seed=st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_counts_equal_the_auroc_of_repeated_rows_exactly(seed):
    y_true, score, rng = tied_case(seed)
    counts = rng.integers(0, 4, size=(len(score), 5))
    values = WeightedAuroc(y_true, score)(counts)
    for value, drawn in zip(values, counts.T, strict=True):
        rows = np.repeat(np.arange(len(score)), drawn)
        np.testing.assert_array_equal(value, macro_auroc(y_true[rows], score[rows]))


def test_real_weights_match_sklearn():
    y_true, score, rng = tied_case(3)
    weights = rng.random((len(score), 4))
    expected = [roc_auc_score(y_true, score, sample_weight=column) for column in weights.T]
    np.testing.assert_allclose(WeightedAuroc(y_true, score)(weights), expected, atol=1e-13)


def test_unobserved_rows_do_not_count():
    y_true, score, rng = tied_case(4)
    observed = rng.random(len(score)) < 0.5
    weights = rng.integers(0, 3, size=(len(score), 3))
    masked = WeightedAuroc(np.where(observed, y_true, np.nan), score)(weights)
    kept = WeightedAuroc(y_true[observed], score[observed])(weights[observed])
    np.testing.assert_array_equal(masked, kept)
    np.testing.assert_array_equal(WeightedAuroc(y_true, score, observed)(weights), kept)


@given(seed=st.integers(0, 10_000), n=st.integers(2, 60), levels=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_rows_of_a_group_share_its_weight_in_float32_as_in_float64(seed, n, levels):
    rng = np.random.default_rng(seed)
    y_true, score = (rng.random(n) < 0.5).astype(int), rng.integers(0, levels, n).astype(float)
    groups = rng.integers(0, 12, n)
    counts = rng.integers(0, 4, size=(12, 3))
    auroc = WeightedAuroc(y_true, score, groups=groups, n_groups=12)
    expected = WeightedAuroc(y_true, score)(counts[groups])
    np.testing.assert_array_equal(auroc(counts), expected)
    np.testing.assert_array_equal(auroc.evaluate(counts.astype(np.float32)), expected)


def test_a_one_class_resample_is_nan_and_leaves_its_neighbours_alone():
    weights = np.array([[1, 0, 1], [1, 1, 0], [1, 1, 1]])
    # Labels 1 0 0: replicate 2 has no positive; replicate 3 keeps .9 > .3.
    np.testing.assert_array_equal(WeightedAuroc([1, 0, 0], [0.9, 0.1, 0.3])(weights), [1.0, np.nan, 1.0])
    np.testing.assert_array_equal(WeightedAuroc([1, 1, 1], [0.9, 0.1, 0.3])(weights), [np.nan] * 3)


def test_weights_are_checked():
    auroc = WeightedAuroc([1, 0], [0.9, 0.1])
    with pytest.raises(ValueError, match="weights has 3 rows, expected 2"):
        auroc(np.ones((3, 1)))
    with pytest.raises(ValueError, match="negative or NaN"):
        auroc(np.array([[1.0], [-1.0]]))
    with pytest.raises(ValueError, match=r"weights has shape \(2,\), expected a 2-D array"):
        auroc(np.ones(2))
    with pytest.raises(ValueError, match="groups has 3 rows from -1, expected 2 from 0"):
        WeightedAuroc([1, 0], [0.9, 0.1], groups=[0, -1, 1])
    with pytest.raises(ValueError, match="one WeightedAuroc per label"):
        WeightedAuroc(np.zeros((3, 2)), np.zeros((3, 2)))
