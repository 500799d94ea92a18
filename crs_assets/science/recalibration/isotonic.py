"""Isotonic regression: a non-decreasing step-wise linear curve from stated to observed probability."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.recalibration.logits import fitting_data, logit_array, probabilities
from crs_assets.science.validation import FloatArray


@dataclass(frozen=True, eq=False)
class IsotonicMap:
    """One curve per class, then renormalised; it creates ties and may set probabilities to exactly 0 or 1.

    Attributes:
        stated: Knots of each curve on the stated probability, ascending; K arrays, or one for one binary label.
        observed: Value of each curve at its knots, non-decreasing in [0, 1].
    """

    stated: tuple[FloatArray, ...]
    observed: tuple[FloatArray, ...]

    def transform(self, logits: ArrayLike) -> FloatArray:
        """Logits (n, K) to probabilities (n, K) that sum to 1; logits (n,) to positive-class probabilities (n,).

        Beyond the outer knots a curve is constant. A row whose curves are all 0 becomes uniform.

        Raises:
            ValueError: If the logits are not finite or have another shape than the fitted one.
        """
        stated = _columns(probabilities(logit_array(logits)))
        if stated.shape[1] != len(self.stated):
            raise ValueError(f"logits has {stated.shape[1]} column(s), the map was fitted on {len(self.stated)}.")
        curves = zip(stated.T, self.stated, self.observed, strict=True)
        mapped = np.stack([np.interp(column, knots, heights) for column, knots, heights in curves], axis=1)
        if mapped.shape[1] == 1:
            return np.asarray(mapped[:, 0], dtype=np.float64)
        total = mapped.sum(axis=1, keepdims=True)
        uniform = np.full(mapped.shape, 1.0 / mapped.shape[1])
        renormalised: FloatArray = np.divide(mapped, total, out=uniform, where=total > 0)
        return renormalised


def fit_isotonic(logits: ArrayLike, y_true: ArrayLike) -> IsotonicMap:
    """Least-squares isotonic curve of each class against the rest on the stated probability [1]_.

    Args:
        logits: Logits (n, K) for classes, or (n,) for one binary label. Log-probabilities are logits.
        y_true: Class indices (n,), or 0/1 labels (n,) of which both occur.

    Raises:
        ValueError: If shapes or values are not as described.

    References:
        .. [1] Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability estimates",
           KDD 2002.
    """
    from sklearn.isotonic import IsotonicRegression

    values, truth = fitting_data(logits, y_true)
    stated, observed = [], []
    for column, target in zip(_columns(probabilities(values)).T, _columns(truth).T, strict=True):
        curve = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(column, target)
        stated.append(np.asarray(curve.X_thresholds_, dtype=np.float64))
        observed.append(np.asarray(curve.y_thresholds_, dtype=np.float64))
    return IsotonicMap(tuple(stated), tuple(observed))


def _columns(values: FloatArray) -> FloatArray:
    return values.reshape(len(values), -1)
