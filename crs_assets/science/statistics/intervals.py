"""Percentile intervals, and the bootstrap over seeds."""

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.validation import FloatArray, IntArray, finite_array, open_unit, positive_int


def percentile_interval(replicates: ArrayLike, *, level: float) -> tuple[FloatArray, FloatArray]:
    """Equal-tailed percentile interval over the last axis, linear interpolation (2.5 and 97.5 % at level 0.95).

    Args:
        replicates: Replicate values, shape (..., replicates), without NaN.
        level: Coverage, for example 0.95.

    Returns:
        (lower, upper), float64 arrays of shape (...).

    Raises:
        ValueError: If a value is not finite or the level leaves (0, 1).
    """
    values = finite_array(replicates, name="replicates", ndim=(1, 2, 3, 4))
    tail = (1 - open_unit(level, name="level")) / 2
    lower, upper = np.quantile(values, (tail, 1 - tail), axis=-1)
    return np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)


def seed_bootstrap_indices(n_seeds: int, replicates: int, rng: np.random.Generator) -> IntArray:
    """Positions of seeds drawn with replacement: one draw, to be used for all encoders and data sets.

    Each draw is sorted, so that equal multisets give equal means to the bit; S seeds have only C(2S - 1, S) of them
    (126 for five), which is why fine tail probabilities mean nothing here.

    Args:
        n_seeds: Number of seeds S.
        replicates: Number of draws.
        rng: Source of the draws.

    Returns:
        int64 (replicates, S), each in 0..S - 1.

    Raises:
        ValueError: If a count is below 1.
    """
    size = (positive_int(replicates, name="replicates"), positive_int(n_seeds, name="n_seeds"))
    return np.sort(rng.integers(0, n_seeds, size=size), axis=1)


def seed_bootstrap_means(values: ArrayLike, indices: IntArray) -> FloatArray:
    """Mean over drawn seeds, for each replicate.

    Args:
        values: Per-seed values, seeds on the last axis: (..., S), without NaN.
        indices: From ``seed_bootstrap_indices`` (replicates, S).

    Returns:
        float64 (..., replicates).

    Raises:
        ValueError: If a value is not finite or the number of seeds differs.
    """
    per_seed = finite_array(values, name="values", ndim=(1, 2, 3, 4))
    if per_seed.shape[-1] != indices.shape[1]:
        raise ValueError(
            f"values has {per_seed.shape[-1]} seeds, indices were drawn for {indices.shape[1]}; draw anew."
        )
    means: FloatArray = per_seed[..., indices].mean(axis=-1)
    return means
