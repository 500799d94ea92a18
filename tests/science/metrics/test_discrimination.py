import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.metrics import accuracy_score, average_precision_score, cohen_kappa_score, roc_auc_score

from crs_assets.science.metrics import (
    accuracy,
    macro_auprc,
    macro_auroc,
    per_class_auprc,
    per_class_auroc,
    quadratic_weighted_kappa,
)


@pytest.fixture
def multiclass():
    rng = np.random.default_rng(7)
    y_true = rng.integers(0, 5, 400)
    return y_true, np.round(rng.normal(size=(400, 5)) + 1.2 * np.eye(5)[y_true], 1)  # rounding makes ties


@pytest.fixture
def multilabel():
    rng = np.random.default_rng(8)
    y_true = (rng.random((300, 4)) < (0.05, 0.3, 0.5, 0.9)).astype(float)
    scores = np.round(rng.normal(size=y_true.shape) + y_true, 1)
    return y_true, scores, rng.random(y_true.shape) < 0.7


def test_four_pairs_by_hand():
    # Pairs (positive, negative): .8>.2, .8>.5, .5>.2, .5=.5 -> (3 + 1/2) / 4.
    assert macro_auroc([1, 1, 0, 0], [0.8, 0.5, 0.2, 0.5]) == 0.875


def test_multiclass_is_one_versus_rest(multiclass):
    y_true, scores = multiclass
    expected = [roc_auc_score(y_true == k, scores[:, k]) for k in range(5)]
    np.testing.assert_allclose(per_class_auroc(y_true, scores), expected, atol=1e-14)
    assert macro_auroc(y_true, scores) == pytest.approx(np.mean(expected), abs=1e-14)
    probabilities = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    by_sklearn = roc_auc_score(y_true, probabilities, multi_class="ovr", average="macro")
    assert macro_auroc(y_true, probabilities) == pytest.approx(by_sklearn, abs=1e-14)


def test_multilabel_uses_only_observed_cells(multilabel):
    y_true, scores, observed = multilabel
    expected = [roc_auc_score(y_true[m, k], scores[m, k]) for k, m in enumerate(observed.T)]
    assert macro_auroc(y_true, scores, observed=observed) == pytest.approx(np.mean(expected), abs=1e-14)
    with_nan = np.where(observed, y_true, np.nan)
    garbage = np.where(observed, scores, np.nan)
    assert macro_auroc(with_nan, garbage) == macro_auroc(y_true, scores, observed=observed)


def test_average_precision_matches_sklearn_with_ties(multiclass, multilabel):
    y_true, scores = multiclass
    expected = [average_precision_score(y_true == k, scores[:, k]) for k in range(5)]
    np.testing.assert_allclose(per_class_auprc(y_true, scores), expected, atol=1e-14)
    labels, label_scores, observed = multilabel
    by_label = [average_precision_score(labels[m, k], label_scores[m, k]) for k, m in enumerate(observed.T)]
    assert macro_auprc(labels, label_scores, observed=observed) == pytest.approx(np.mean(by_label), abs=1e-14)


def test_an_absent_class_is_nan_and_leaves_the_mean():
    y_true = np.array([0, 0, 1, 1])  # class 2 never occurs
    scores = np.array([[2.0, 1, 0], [1, 2, 0], [0, 3, 0], [0, 3, 0]])
    # Class 0: positives 2, 1 over negatives 0, 0 -> 1. Class 1: positives 3, 3 over negatives 1, 2 -> 1.
    np.testing.assert_array_equal(per_class_auroc(y_true, scores), [1.0, 1.0, np.nan])
    assert macro_auroc(y_true, scores) == 1.0
    assert np.isnan(per_class_auprc(y_true, scores)[2])


def test_nothing_estimable_is_nan_never_zero():
    assert np.isnan(macro_auroc([0, 0, 0], [0.1, 0.2, 0.3]))
    assert np.isnan(macro_auroc([1, 1, 1], [0.1, 0.2, 0.3]))
    assert np.isnan(macro_auprc([1, 1, 1], [0.1, 0.2, 0.3]))


def test_an_all_masked_label_is_nan_and_leaves_the_mean(multilabel):
    y_true, scores, observed = multilabel
    observed = observed.copy()
    observed[:, 2] = False
    per_label = per_class_auroc(y_true, scores, observed=observed)
    assert np.isnan(per_label[2])
    assert macro_auroc(y_true, scores, observed=observed) == np.mean(per_label[[0, 1, 3]])


def test_classes_choose_what_is_averaged(multiclass):
    y_true, scores = multiclass
    assert macro_auroc(y_true, scores, classes=[1, 3]) == np.mean(per_class_auroc(y_true, scores)[[1, 3]])


def test_perfect_separation_is_exactly_one_and_reversal_exactly_zero():
    y_true = np.arange(1001) > 700
    assert macro_auroc(y_true, np.arange(1001) / 3) == 1.0
    assert macro_auroc(y_true, -np.arange(1001) / 3) == 0.0


def test_constant_scores_are_exactly_one_half():
    assert macro_auroc([0, 1, 1, 0, 1], np.full(5, 0.3)) == 0.5


_binary = st.integers(2, 60).flatmap(
    lambda n: st.tuples(
        hnp.arrays(np.int64, n, elements=st.integers(0, 1)),
        hnp.arrays(np.float64, n, elements=st.integers(-6, 6).map(float)),
        st.permutations(range(n)),
    )
)


@given(_binary)
@settings(max_examples=80, deadline=None)
def test_auroc_properties(case):
    y_true, scores, order = case
    value = macro_auroc(y_true, scores)
    if y_true.min() == y_true.max():
        assert np.isnan(value)
        return
    wins = (scores[y_true == 1][:, None] > scores[y_true == 0]) + 0.5 * (
        scores[y_true == 1][:, None] == scores[y_true == 0]
    )
    assert value == pytest.approx(wins.mean(), abs=1e-15)
    assert macro_auroc(y_true[list(order)], scores[list(order)]) == value
    assert macro_auroc(y_true, scores**3) == value
    assert macro_auroc(y_true, -scores) == pytest.approx(1 - value, abs=1e-15)


@given(_binary)
@settings(max_examples=80, deadline=None)
def test_average_precision_properties(case):
    y_true, scores, order = case
    value = macro_auprc(y_true, scores)
    if y_true.min() == y_true.max():
        assert np.isnan(value)
        return
    assert value == pytest.approx(average_precision_score(y_true, scores), abs=1e-14)
    assert macro_auprc(y_true[list(order)], scores[list(order)]) == value


def test_accuracy_takes_the_lowest_index_among_equal(multiclass):
    y_true, scores = multiclass
    assert accuracy(y_true, scores) == accuracy_score(y_true, scores.argmax(axis=1))
    # Three classes tie at the top: index 0 is the prediction.
    assert accuracy([0, 1, 2], np.full((3, 3), 1 / 3)) == pytest.approx(1 / 3)


def test_quadratic_kappa_matches_sklearn(multiclass):
    y_true, scores = multiclass
    expected = cohen_kappa_score(y_true, scores.argmax(axis=1), weights="quadratic")
    assert quadratic_weighted_kappa(y_true, scores) == pytest.approx(expected, abs=1e-14)


def test_quadratic_kappa_limits():
    grades = np.array([0, 1, 2, 2])
    assert quadratic_weighted_kappa(grades, np.eye(3)[grades]) == 1.0
    assert quadratic_weighted_kappa(grades, np.eye(3)[[1, 1, 1, 1]]) == 0.0  # a constant guess is chance
    assert np.isnan(quadratic_weighted_kappa([1, 1], np.eye(3)[[1, 1]]))
