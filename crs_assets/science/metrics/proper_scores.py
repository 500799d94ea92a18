"""Brier score and log loss: proper scores, which reward honest probabilities."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax

from crs_assets.science.validation import (
    BoolArray,
    FloatArray,
    LabelColumns,
    class_subset,
    label_columns,
    label_probabilities,
    multiclass_probabilities,
    multiclass_scores,
)

_SMALLEST_PROBABILITY = float(np.finfo(np.float64).eps)
"""A certain and wrong prediction costs 36 nats, not infinity; the convention of scikit-learn for float64."""


def multiclass_brier_score(y_true: ArrayLike, y_proba: ArrayLike) -> float:
    """Mean over rows of the squared distance between probabilities and the one-hot truth, summed over classes [1]_.

    Brier's original form: twice ``binary_brier_score`` when K = 2.

    Args:
        y_true: Class indices (n,).
        y_proba: Probabilities (n, K), rows summing to 1.

    Returns:
        A loss in [0, 2], lower is better.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.

    References:
        .. [1] Brier, "Verification of forecasts expressed in terms of probability", Monthly Weather Review 78, 1950.
    """
    labels, probabilities = multiclass_probabilities(y_true, y_proba)
    truth = labels[:, None] == np.arange(probabilities.shape[1])
    return float(np.mean(np.sum((probabilities - truth) ** 2, axis=1)))


def binary_brier_score(y_true: ArrayLike, y_proba: ArrayLike, *, observed: ArrayLike | None = None) -> float:
    """Mean squared difference between the positive-class probability and the 0/1 label.

    Args:
        y_true: 0/1 labels (n,); NaN = not observed.
        y_proba: Probability of the positive class (n,).
        observed: Bool mask (n,).

    Returns:
        A loss in [0, 1], lower is better; NaN if nothing is observed.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    return multilabel_brier_score(y_true, y_proba, observed=observed)


def multilabel_brier_score(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    classes: Sequence[int] | None = None,
) -> float:
    """Mean over labels of ``binary_brier_score`` on the label's observed cells.

    Args:
        y_true: 0/1 labels (n, L); NaN = not observed.
        y_proba: Probabilities (n, L).
        observed: Bool mask (n, L).
        classes: Labels to average over; all by default.

    Returns:
        A loss in [0, 1], lower is better; labels with no observed cell are left out, NaN if none is left.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    columns = label_probabilities(y_true, y_proba, observed)
    return _mean_over_labels(columns, (columns.score - columns.positive) ** 2, classes)


def multiclass_log_loss(y_true: ArrayLike, y_proba: ArrayLike) -> float:
    """Mean negative log-likelihood of the true class, in nats.

    Args:
        y_true: Class indices (n,).
        y_proba: Probabilities (n, K), rows summing to 1; below float64's epsilon they count as epsilon. Use
            ``multiclass_log_loss_from_logits`` where logits are at hand.

    Returns:
        A loss in [0, 36.04...], lower is better.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    labels, probabilities = multiclass_probabilities(y_true, y_proba)
    return float(-np.mean(_clipped_log(probabilities[np.arange(len(labels)), labels])))


def multiclass_log_loss_from_logits(y_true: ArrayLike, logits: ArrayLike) -> float:
    """Mean negative log-likelihood of the true class under the softmax of the logits, in nats, without clipping.

    Args:
        y_true: Class indices (n,).
        logits: Unnormalised log-probabilities (n, K).

    Returns:
        A loss in [0, infinity), lower is better.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    labels, values = multiclass_scores(y_true, logits, name="logits")
    return float(-np.mean(log_softmax(values, axis=1)[np.arange(len(labels)), labels]))


def binary_log_loss(y_true: ArrayLike, y_proba: ArrayLike, *, observed: ArrayLike | None = None) -> float:
    """Mean negative Bernoulli log-likelihood of the 0/1 label, in nats.

    Args:
        y_true: 0/1 labels (n,); NaN = not observed.
        y_proba: Probability of the positive class (n,); a probability of the seen outcome below float64's epsilon
            counts as epsilon.
        observed: Bool mask (n,).

    Returns:
        A loss in [0, 36.04...], lower is better; NaN if nothing is observed.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    return multilabel_log_loss(y_true, y_proba, observed=observed)


def multilabel_log_loss(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    classes: Sequence[int] | None = None,
) -> float:
    """Mean over labels of ``binary_log_loss`` on the label's observed cells.

    Args:
        y_true: 0/1 labels (n, L); NaN = not observed.
        y_proba: Probabilities (n, L).
        observed: Bool mask (n, L).
        classes: Labels to average over; all by default.

    Returns:
        A loss in nats, lower is better; labels with no observed cell are left out, NaN if none is left.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    columns = label_probabilities(y_true, y_proba, observed)
    likelihood = np.where(columns.positive, columns.score, 1 - columns.score)
    return _mean_over_labels(columns, -_clipped_log(likelihood), classes)


def multilabel_log_loss_from_logits(
    y_true: ArrayLike,
    logits: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    classes: Sequence[int] | None = None,
) -> float:
    """Mean over labels of the Bernoulli log loss under the sigmoid of the logits, in nats, without clipping.

    Args:
        y_true: 0/1 labels (n,) or (n, L); NaN = not observed.
        logits: Log-odds of the positive class, same shape.
        observed: Bool mask, same shape.
        classes: Labels to average over; all by default.

    Returns:
        A loss in [0, infinity), lower is better; labels with no observed cell are left out, NaN if none is left.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    columns = label_columns(y_true, logits, observed, name="logits")
    loss = np.logaddexp(0.0, np.where(columns.positive, -columns.score, columns.score))
    return _mean_over_labels(columns, loss, classes)


def _clipped_log(likelihood: FloatArray) -> FloatArray:
    return np.log(np.clip(likelihood, _SMALLEST_PROBABILITY, 1.0))


def _mean_over_labels(columns: LabelColumns, loss: FloatArray, classes: Sequence[int] | None) -> float:
    chosen = class_subset(classes, loss.shape[1])
    observed: BoolArray = columns.observed[:, chosen]
    counts = observed.sum(axis=0)
    if not counts.any():
        return float("nan")
    sums = np.where(observed, loss[:, chosen], 0.0).sum(axis=0)
    return float(np.mean(sums[counts > 0] / counts[counts > 0]))
