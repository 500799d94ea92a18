"""DeLong's analytic variance of AUROC: one binary label, one test set, independent cases.

Not valid for a macro-AUROC, for averages over seeds, or for several images of one patient; use the group bootstrap
there.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.validation import FloatArray, finite_array, label_columns


class DelongEstimate(NamedTuple):
    """AUROCs of several scores on the same cases, with their sampling covariance.

    Attributes:
        auroc: float64 (E,).
        covariance: float64 (E, E).
    """

    auroc: FloatArray
    covariance: FloatArray


def delong_covariance(y_true: ArrayLike, y_scores: ArrayLike) -> DelongEstimate:
    """AUROCs and their covariance by DeLong et al. [1]_, in the O(n log n) form of Sun and Xu [2]_.

    Args:
        y_true: 0/1 labels (n,), at least two of each.
        y_scores: Scores (n, E), one column per model, higher = more likely positive.

    Raises:
        ValueError: If shapes or values are not as described, or a class has fewer than two cases.

    References:
        .. [1] DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
           characteristic curves: a nonparametric approach", Biometrics 44, 1988.
        .. [2] Sun and Xu, "Fast implementation of DeLong's algorithm for comparing the areas under correlated receiver
           operating characteristic curves", IEEE Signal Processing Letters 21, 2014.
    """
    scores = finite_array(y_scores, name="y_scores", ndim=(2,))
    positive = label_columns(y_true, scores[:, 0]).column(0)[0]
    if len(positive) != len(scores):
        raise ValueError("y_true holds NaN; DeLong's method needs every case observed, drop the others.")
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    if min(n_positive, n_negative) < 2:
        raise ValueError(f"y_true has {n_positive} positives and {n_negative} negatives, expected at least 2 of each.")
    above, below = scores[positive].T, scores[~positive].T
    of_positive = np.stack([_share_below(one, other) for one, other in zip(above, below, strict=True)])
    of_negative = 1 - np.stack([_share_below(other, one) for one, other in zip(above, below, strict=True)])
    covariance = np.cov(of_positive) / n_positive + np.cov(of_negative) / n_negative
    return DelongEstimate(of_positive.mean(axis=1), covariance.reshape(len(above), len(above)))


def delong_variance(y_true: ArrayLike, y_score: ArrayLike) -> tuple[float, float]:
    """AUROC of one binary label and its sampling variance; see ``delong_covariance``.

    Args:
        y_true: 0/1 labels (n,), at least two of each.
        y_score: Scores (n,), higher = more likely positive.

    Returns:
        (auroc, variance).

    Raises:
        ValueError: As ``delong_covariance``.
    """
    score = finite_array(y_score, name="y_score", ndim=(1,))
    estimate = delong_covariance(y_true, score[:, None])
    return float(estimate.auroc[0]), float(estimate.covariance[0, 0])


def _share_below(values: FloatArray, reference: FloatArray) -> FloatArray:
    """Share of the reference that lies below each value, ties counted one half."""
    ordered = np.sort(reference)
    left = np.searchsorted(ordered, values, side="left")
    right = np.searchsorted(ordered, values, side="right")
    return (left + right) / (2 * len(reference))
