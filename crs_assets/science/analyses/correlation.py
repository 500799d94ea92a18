"""Correlations with the number of pairs that they rest on, an interval over resampled pairs, or why there is none."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.statistics import percentile_interval
from crs_assets.science.validation import FloatArray, IntArray, finite_array, positive_int

MIN_PAIRS = 3
"""Two points always lie on one line: below three a correlation says nothing."""


@dataclass(frozen=True)
class Correlation:
    """A correlation coefficient.

    Attributes:
        n: Pairs.
        value: In [-1, 1]; None where it cannot be estimated.
        lower: Lower end of the percentile interval over resampled pairs; None without one.
        upper: Upper end.
        replicates: Resamples that the interval rests on: those in which both sides varied.
        reason: Why there is no value.
    """

    n: int
    value: float | None
    lower: float | None = None
    upper: float | None = None
    replicates: int = 0
    reason: str | None = None


def pearson(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Pearson's product-moment correlation.

    Args:
        x: Finite values (n,).
        y: Finite values of the same items in the same order.

    Raises:
        ValueError: If lengths differ or a value is not finite.
    """
    a, b, reason = _pairs(x, y)
    return Correlation(len(a), None if reason else float(_rows(a, b)), reason=reason)


def spearman(x: ArrayLike, y: ArrayLike, *, draws: IntArray | None = None, level: float | None = None) -> Correlation:
    """Spearman's rho: Pearson's correlation of average ranks.

    Args:
        x: Finite values (n,).
        y: Finite values of the same items in the same order.
        draws: From ``pair_draws``, for an interval over resampled pairs.
        level: Coverage of the interval; needed with ``draws``.

    Raises:
        ValueError: If lengths differ, a value is not finite, or draws come without a level or for another n.
    """
    a, b, reason = _pairs(x, y)
    if reason:
        return Correlation(len(a), None, reason=reason)
    value = float(_rank_rows(a, b))
    if draws is None:
        return Correlation(len(a), value)
    if level is None:
        raise ValueError("draws come without a level; give the interval's coverage, for example 0.95.")
    return Correlation(len(a), value, *interval(resampled_spearman(a, b, draws), level=level))


def resampled_spearman(x: ArrayLike, y: ArrayLike, draws: IntArray) -> FloatArray:
    """Spearman's rho of each resample of the pairs, float64 (replicates,); NaN where a side does not vary.

    Args:
        x: Finite values (n,).
        y: Finite values of the same items in the same order.
        draws: From ``pair_draws``; the same draws for several x give paired replicates.

    Raises:
        ValueError: If a value is not finite or the draws are for another n.
    """
    a, b = finite_array(x, name="x", ndim=(1,)), finite_array(y, name="y", ndim=(1,))
    if draws.shape[1] != len(a):
        raise ValueError(f"draws of shape {draws.shape} for {len(a)} pairs; draw positions for as many.")
    return _rank_rows(a[draws], b[draws])


def interval(replicates: FloatArray, *, level: float) -> tuple[float | None, float | None, int]:
    """Percentile interval of the replicates that are not NaN, and how many they are; None, None, 0 where none is."""
    known = replicates[np.isfinite(replicates)]
    if not len(known):
        return None, None, 0
    lower, upper = percentile_interval(known, level=level)
    return float(lower), float(upper), len(known)


def pair_draws(n: int, replicates: int, rng: np.random.Generator) -> IntArray:
    """Positions of pairs drawn with replacement: one draw, to be used for everything measured on the same pairs.

    Args:
        n: Number of pairs.
        replicates: Number of draws.
        rng: Source of the draws.

    Returns:
        int64 (replicates, n), each in 0..n - 1.

    Raises:
        ValueError: If a count is below 1.
    """
    size = (positive_int(replicates, name="replicates"), positive_int(n, name="n"))
    return rng.integers(0, n, size=size)


def _pairs(x: ArrayLike, y: ArrayLike) -> tuple[FloatArray, FloatArray, str | None]:
    n = np.size(x)
    if n != np.size(y):
        raise ValueError(f"got {n} and {np.size(y)} values; pass the same items in one order.")
    if n < MIN_PAIRS:
        return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64), f"n = {n}, needs {MIN_PAIRS}"
    a, b = finite_array(x, name="x", ndim=(1,)), finite_array(y, name="y", ndim=(1,))
    constant = np.ptp(a) == 0 or np.ptp(b) == 0
    return a, b, "all values of one side are equal" if constant else None


def _rank_rows(x: FloatArray, y: FloatArray) -> FloatArray:
    # A second of import, which loading the code location would pay.
    from scipy.stats import rankdata

    return _rows(rankdata(x, axis=-1), rankdata(y, axis=-1))


def _rows(x: FloatArray, y: FloatArray) -> FloatArray:
    """Correlation along the last axis; NaN where a side does not vary."""
    a, b = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    scale = np.sqrt((a * a).sum(axis=-1) * (b * b).sum(axis=-1))
    found = np.divide((a * b).sum(axis=-1), scale, out=np.full(np.shape(scale), np.nan), where=scale > 0)
    clipped: FloatArray = np.clip(found, -1.0, 1.0)
    return clipped
