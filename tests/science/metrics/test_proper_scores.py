import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import brier_score_loss, log_loss

from crs_assets.science.metrics import (
    binary_brier_score,
    binary_log_loss,
    multiclass_brier_score,
    multiclass_log_loss,
    multiclass_log_loss_from_logits,
    multilabel_brier_score,
    multilabel_log_loss,
    multilabel_log_loss_from_logits,
)


@pytest.fixture
def multiclass():
    rng = np.random.default_rng(3)
    return rng.integers(0, 4, 200), rng.normal(size=(200, 4)) * 3


@pytest.fixture
def multilabel():
    rng = np.random.default_rng(4)
    logits = rng.normal(size=(150, 3)) * 2
    return (rng.random((150, 3)) < 0.4).astype(float), logits, rng.random((150, 3)) < 0.6


def test_multiclass_brier_by_hand():
    # Row 1: (.3)^2 + (.2)^2 + (.1)^2 = .14; row 2: (.5)^2 + (.4)^2 + (.9)^2 = 1.22; mean .68.
    assert multiclass_brier_score([0, 2], [[0.7, 0.2, 0.1], [0.5, 0.4, 0.1]]) == pytest.approx(0.68, abs=1e-15)


def test_multiclass_scores_match_sklearn(multiclass):
    y_true, logits = multiclass
    probabilities = softmax(logits, axis=1)
    expected = brier_score_loss(y_true, probabilities, labels=range(4), scale_by_half=False)
    assert multiclass_brier_score(y_true, probabilities) == pytest.approx(expected, rel=1e-12)
    assert multiclass_log_loss(y_true, probabilities) == pytest.approx(log_loss(y_true, probabilities), rel=1e-12)
    assert multiclass_log_loss_from_logits(y_true, logits) == pytest.approx(log_loss(y_true, probabilities), rel=1e-12)


def test_multilabel_scores_are_means_of_binary_ones(multilabel):
    y_true, logits, observed = multilabel
    probabilities = expit(logits)
    columns = [(y_true[m, k], probabilities[m, k]) for k, m in enumerate(observed.T)]
    brier = np.mean([brier_score_loss(y, p) for y, p in columns])
    loss = np.mean([log_loss(y, p) for y, p in columns])
    assert multilabel_brier_score(y_true, probabilities, observed=observed) == pytest.approx(brier, rel=1e-12)
    assert multilabel_log_loss(y_true, probabilities, observed=observed) == pytest.approx(loss, rel=1e-12)
    assert multilabel_log_loss_from_logits(y_true, logits, observed=observed) == pytest.approx(loss, rel=1e-12)
    y, p = columns[1]
    assert binary_brier_score(y, p) == pytest.approx(brier_score_loss(y, p), rel=1e-12)
    assert binary_log_loss(y, p) == pytest.approx(log_loss(y, p), rel=1e-12)


def test_two_class_brier_is_twice_the_binary_one():
    y_true, p = np.array([0, 1, 1]), np.array([0.2, 0.7, 0.1])
    both = np.stack([1 - p, p], axis=1)
    assert multiclass_brier_score(y_true, both) == pytest.approx(2 * binary_brier_score(y_true, p), abs=1e-15)


def test_certain_and_wrong_is_finite_from_probabilities_and_exact_from_logits():
    certain = np.array([[0.0, 1.0]])
    assert multiclass_log_loss([0], certain) == pytest.approx(-np.log(np.finfo(float).eps))
    assert multiclass_brier_score([0], certain) == 2.0
    assert multiclass_log_loss_from_logits([0], [[0.0, 1000.0]]) == 1000.0
    assert multilabel_log_loss_from_logits([0], [1000.0]) == 1000.0
    assert multilabel_log_loss_from_logits([1], [1000.0]) == 0.0


def test_labels_without_observed_cells_leave_the_mean(multilabel):
    y_true, logits, observed = multilabel
    observed = observed.copy()
    observed[:, 1] = False
    kept = multilabel_log_loss_from_logits(y_true[:, [0, 2]], logits[:, [0, 2]], observed=observed[:, [0, 2]])
    assert multilabel_log_loss_from_logits(y_true, logits, observed=observed) == kept
    assert multilabel_log_loss_from_logits(y_true, logits, observed=observed, classes=[0, 2]) == kept
    assert np.isnan(multilabel_brier_score([np.nan, np.nan], [0.5, 0.5]))
