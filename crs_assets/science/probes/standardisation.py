"""Mean and scale of features, by which a linear probe's penalty is measured."""

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.validation import FloatArray, IntArray, refuse

_BLOCK_ROWS = 2048


def standardisation(
    features: NDArray[np.floating], rows: IntArray, *, std_floor: float, std_zero: float
) -> tuple[FloatArray, FloatArray]:
    """Mean and floored standard deviation of every feature over some rows.

    Two passes over the rows in float64 (the deviations are summed about the mean of the first pass, so a large mean
    costs no digits), ddof 0, a block of rows at a time: nothing of the size of ``features`` is made.

    A nearly constant feature would be blown up by its own tiny deviation, so the divisor is floored at a share of the
    median deviation over the features that are not constant.

    Args:
        features: (n, d) float32 or float16; may be memory-mapped.
        rows: Row indices to take the statistics over, all of the seed's train split.
        std_floor: Smallest divisor, as a share of the median standard deviation; 0 floors nothing.
        std_zero: A feature whose own standard deviation is below this is set to 0.

    Returns:
        ``mean`` and ``scale``, each (d,) float64. The standardised feature is ``(x - mean) / scale``; a scale of
        ``inf`` sets the feature to 0, which is what division by it does.

    Raises:
        ValueError: If there is no row, or a value is not finite.
    """
    rows = np.asarray(rows, dtype=np.int64)
    refuse([] if len(rows) else ["standardisation needs at least one row, got none; is the train split empty?"])
    refuse(non_finite_rows(features, rows))
    mean = np.zeros(features.shape[1])
    for block in row_blocks(rows):
        mean += features[block].sum(axis=0, dtype=np.float64)
    mean /= len(rows)
    square = np.zeros_like(mean)
    for block in row_blocks(rows):
        deviation = features[block].astype(np.float64) - mean
        square += np.einsum("ij,ij->j", deviation, deviation)
    std = np.sqrt(square / len(rows))
    varies = std >= std_zero
    floor = std_floor * float(np.median(std[varies])) if varies.any() else 0.0
    return mean, np.where(varies, np.maximum(std, floor), np.inf)


def standardised(features: NDArray[np.floating], mean: FloatArray, scale: FloatArray) -> FloatArray:
    """Features on the scale that ``standardisation`` measured.

    Args:
        features: (n, d) as stored.
        mean: (d,) subtracted from each feature.
        scale: (d,) divisors; ``inf`` sets a feature to 0.

    Returns:
        (n, d) float64.
    """
    values: FloatArray = (features.astype(np.float64) - mean) / scale
    return values


def row_blocks(rows: IntArray, size: int = _BLOCK_ROWS) -> list[IntArray]:
    """Cut row indices into consecutive blocks of at most ``size``."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def non_finite_rows(features: NDArray[np.floating], rows: IntArray) -> list[str]:
    """One sentence about rows that hold NaN or infinity; empty if there is none."""
    count, first = 0, -1
    for block in row_blocks(rows):
        bad = ~np.isfinite(features[block]).all(axis=1)
        if bad.any() and not count:
            first = int(block[np.argmax(bad)])
        count += int(bad.sum())
    if not count:
        return []
    return [f"features: {count} of {len(rows)} rows hold NaN or infinity, the first is row {first}; extract them again"]
