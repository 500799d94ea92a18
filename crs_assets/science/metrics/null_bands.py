"""How large the calibration error of a perfectly calibrated predictor would be on the same finite test set."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.metrics.binning import equal_width_bin
from crs_assets.science.validation import (
    FloatArray,
    class_subset,
    label_probabilities,
    open_unit,
    positive_int,
    probability_rows,
)

_CELLS_AT_ONCE = 2_000_000
"""Uniform numbers held at once: 16 MB."""


def null_band(y_proba: ArrayLike, *, draws: int, level: float, rng: np.random.Generator, n_bins: int = 15) -> float:
    """Quantile of ``expected_calibration_error`` when labels are drawn from the predicted probabilities themselves.

    A top label is then correct with exactly its confidence, so only confidences are needed (consistency resampling,
    Broecker and Smith, Weather and Forecasting 22, 2007).

    Args:
        y_proba: Probabilities (n, K), rows summing to 1.
        draws: Number of label draws.
        level: Quantile, for example 0.95.
        rng: Source of the draws; the result does not depend on row order.
        n_bins: Number of equal-width bins.

    Returns:
        The quantile (linear interpolation), in [0, 1]; an observed error below it is compatible with calibration.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    confidence = probability_rows(y_proba).max(axis=1)
    errors = _null_errors(confidence, positive_int(draws, name="draws"), rng, n_bins)
    return float(np.quantile(errors, open_unit(level, name="level")))


def multilabel_null_band(
    y_proba: ArrayLike,
    *,
    draws: int,
    level: float,
    rng: np.random.Generator,
    observed: ArrayLike | None = None,
    n_bins: int = 15,
    classes: Sequence[int] | None = None,
) -> float:
    """Quantile of ``multilabel_expected_calibration_error`` with labels drawn independently from the probabilities.

    Args:
        y_proba: Probabilities (n,) or (n, L).
        draws: Number of label draws.
        level: Quantile, for example 0.95.
        rng: Source of the draws; the result does not depend on row order.
        observed: Bool mask of the same shape.
        n_bins: Number of equal-width bins.
        classes: Labels to average over; all by default.

    Returns:
        The quantile (linear interpolation), in [0, 1]; NaN if no cell is observed.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    columns = label_probabilities(np.zeros(np.shape(y_proba)), y_proba, observed)
    positive_int(draws, name="draws")
    stated = (columns.column(index)[1] for index in class_subset(classes, columns.score.shape[1]))
    per_label = [_null_errors(probability, draws, rng, n_bins) for probability in stated if len(probability)]
    if not per_label:
        return float("nan")
    return float(np.quantile(np.mean(per_label, axis=0), open_unit(level, name="level")))


def _null_errors(probability: FloatArray, draws: int, rng: np.random.Generator, n_bins: int) -> FloatArray:
    """One error per draw; probabilities are sorted first, so bins are runs and row order cannot matter."""
    ordered = np.sort(probability)
    bins = equal_width_bin(ordered, n_bins)
    starts = np.append(np.searchsorted(bins, np.unique(bins)), len(bins))
    stated = np.array([ordered[low:high].sum() for low, high in pairwise(starts)])
    chunk = max(1, _CELLS_AT_ONCE // len(ordered))
    errors = []
    for first in range(0, draws, chunk):
        hits = rng.random((min(chunk, draws - first), len(ordered))) < ordered
        seen = [np.count_nonzero(hits[:, low:high], axis=1) for low, high in pairwise(starts)]
        errors.append(np.abs(np.stack(seen, axis=1) - stated).sum(axis=1) / len(ordered))
    return np.concatenate(errors)
