"""How well scores order positives above negatives, and how often the top label is right."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.validation import (
    BoolArray,
    FloatArray,
    class_subset,
    multiclass_scores,
    one_vs_rest,
)


def macro_auroc(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    classes: Sequence[int] | None = None,
) -> float:
    """Unweighted mean over classes of the one-vs-rest area under the ROC curve.

    Args:
        y_true: Class indices (n,) with ``y_score`` (n, K); or 0/1 labels (n, L), NaN = not observed, with
            ``y_score`` (n, L); or 0/1 labels (n,) with ``y_score`` (n,).
        y_score: Scores, higher = more likely positive. Any monotone scale per column; log-softmax for softmax models.
        observed: Bool mask shaped as ``y_true``, for binary and multilabel input only.
        classes: Columns to average over; all by default. The other columns change nothing.

    Returns:
        Mean over the columns that have a positive and a negative, in [0, 1], higher is better, chance 0.5; NaN if no
        column has both.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    return _mean_estimable(per_class_auroc(y_true, y_score, observed=observed), classes)


def per_class_auroc(y_true: ArrayLike, y_score: ArrayLike, *, observed: ArrayLike | None = None) -> FloatArray:
    """Area under the ROC curve of each class against the rest, ties counted one half (Mann-Whitney) [1]_.

    Args:
        y_true: As in ``macro_auroc``.
        y_score: As in ``macro_auroc``.
        observed: As in ``macro_auroc``.

    Returns:
        float64 (L,), each in [0, 1]; NaN for a class with no positive or no negative.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.

    References:
        .. [1] Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC)
           curve", Radiology 143, 1982.
    """
    columns = one_vs_rest(y_true, y_score, observed)
    return np.array([_auroc(*columns.column(index)) for index in range(columns.score.shape[1])])


def macro_auprc(
    y_true: ArrayLike,
    y_score: ArrayLike,
    *,
    observed: ArrayLike | None = None,
    classes: Sequence[int] | None = None,
) -> float:
    """Unweighted mean over classes of the one-vs-rest average precision.

    Args:
        y_true: As in ``macro_auroc``.
        y_score: As in ``macro_auroc``.
        observed: As in ``macro_auroc``.
        classes: As in ``macro_auroc``.

    Returns:
        Mean over the columns that have a positive and a negative, in (0, 1], higher is better, chance = prevalence;
        NaN if no column has both.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    return _mean_estimable(per_class_auprc(y_true, y_score, observed=observed), classes)


def per_class_auprc(y_true: ArrayLike, y_score: ArrayLike, *, observed: ArrayLike | None = None) -> FloatArray:
    """Average precision of each class against the rest: sum of precision times recall step, without interpolation.

    Tied scores share one threshold, so row order cannot matter.

    Args:
        y_true: As in ``macro_auroc``.
        y_score: As in ``macro_auroc``.
        observed: As in ``macro_auroc``.

    Returns:
        float64 (L,), each in (0, 1]; NaN for a class with no positive or no negative.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    columns = one_vs_rest(y_true, y_score, observed)
    return np.array([_average_precision(*columns.column(index)) for index in range(columns.score.shape[1])])


def accuracy(y_true: ArrayLike, y_score: ArrayLike) -> float:
    """Share of rows whose highest score is at the true class; the lowest index wins among equal scores.

    Args:
        y_true: Class indices (n,).
        y_score: Probabilities, log-probabilities or logits (n, K).

    Returns:
        A share in [0, 1], higher is better.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    labels, scores = multiclass_scores(y_true, y_score)
    return float(np.mean(scores.argmax(axis=1) == labels))


def quadratic_weighted_kappa(y_true: ArrayLike, y_score: ArrayLike) -> float:
    """Cohen's kappa with squared-distance weights between the true grade and the top-scored one [1]_.

    Args:
        y_true: Grades as class indices (n,), in their natural order.
        y_score: Probabilities, log-probabilities or logits (n, K); the lowest index wins among equal scores.

    Returns:
        Agreement in [-1, 1], higher is better, chance 0; NaN if truth and prediction are one and the same constant.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.

    References:
        .. [1] Cohen, "Weighted kappa", Psychological Bulletin 70, 1968.
    """
    labels, scores = multiclass_scores(y_true, y_score)
    grades = scores.argmax(axis=1)
    n_classes = scores.shape[1]
    squared = np.subtract.outer(np.arange(n_classes), np.arange(n_classes)) ** 2
    marginals = np.outer(np.bincount(labels, minlength=n_classes), np.bincount(grades, minlength=n_classes))
    by_chance = int((squared * marginals).sum())
    if by_chance == 0:
        return float("nan")
    return float(1 - len(labels) * int(((labels - grades) ** 2).sum()) / by_chance)


def _mean_estimable(per_class: FloatArray, classes: Sequence[int] | None) -> float:
    chosen = per_class[class_subset(classes, len(per_class))]
    estimable = chosen[~np.isnan(chosen)]
    return float(estimable.mean()) if len(estimable) else float("nan")


def _auroc(positive: BoolArray, score: FloatArray) -> float:
    """Mann-Whitney statistic in integers: sorting values is faster than ranking them, and the count is exact."""
    above, below = np.sort(score[positive]), np.sort(score[~positive])
    if not len(above) or not len(below):
        return float("nan")
    wins = int(np.searchsorted(below, above, side="left").sum())
    wins_and_ties = int(np.searchsorted(below, above, side="right").sum())
    return (wins + wins_and_ties) / (2 * len(above) * len(below))


def _average_precision(positive: BoolArray, score: FloatArray) -> float:
    total = int(positive.sum())
    if total in (0, len(positive)):
        return float("nan")
    order = np.argsort(-score, kind="stable")
    last_of_tie = np.append(np.flatnonzero(np.diff(score[order])), len(order) - 1)
    hits = np.cumsum(positive[order])[last_of_tie]
    return float(np.sum(np.diff(hits, prepend=0) * (hits / (last_of_tie + 1))) / total)
