"""What bootstrap replicates say about ranks: rank probabilities, the leading tier, and whether anyone has won."""

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.statistics.intervals import percentile_interval
from crs_assets.science.validation import FloatArray, finite_array

_REPLICATES_AT_ONCE = 4096


def rank_probabilities(replicates: ArrayLike) -> FloatArray:
    """Probability of each rank, with tied encoders sharing the ranks they occupy equally.

    Args:
        replicates: Scores, higher is better, shape (replicates, encoders), without NaN.

    Returns:
        float64 (encoders, encoders): element [e, r] is P(encoder e has rank r + 1). Rows and columns sum to 1.

    Raises:
        ValueError: If shape or values are not as described.
    """
    scores = finite_array(replicates, name="replicates", ndim=(2,))
    n_encoders = scores.shape[1]
    ranks = np.arange(n_encoders)
    total = np.zeros((n_encoders, n_encoders))
    for first in range(0, len(scores), _REPLICATES_AT_ONCE):
        part = scores[first : first + _REPLICATES_AT_ONCE]
        better = (part[:, None, :] > part[:, :, None]).sum(axis=2)[..., None]
        tied = (part[:, None, :] == part[:, :, None]).sum(axis=2)[..., None]
        total += np.where((ranks >= better) & (ranks < better + tied), 1.0 / tied, 0.0).sum(axis=0)
    return total / len(scores)


def top_k_probability(replicates: ArrayLike, *, k: int) -> FloatArray:
    """Probability of being among the k best; an encoder tied across the border counts its share of the places.

    Args:
        replicates: Scores, higher is better, shape (replicates, encoders), without NaN.
        k: Number of places, 1..encoders.

    Returns:
        float64 (encoders,), summing to k.

    Raises:
        ValueError: If shape or values are not as described.
    """
    probabilities = rank_probabilities(replicates)
    if not 1 <= k <= len(probabilities):
        raise ValueError(f"k is {k}, expected 1..{len(probabilities)} for {len(probabilities)} encoders.")
    return np.asarray(probabilities[:, :k].sum(axis=1), dtype=np.float64)


def leading_tier(replicates: ArrayLike, *, k: int = 3, threshold: float = 0.95) -> tuple[int, ...]:
    """Encoders that are among the k best with at least the threshold probability.

    Args:
        replicates: Scores, higher is better, shape (replicates, encoders), without NaN.
        k: Number of places.
        threshold: Smallest probability.

    Returns:
        Positions, ascending; empty if no encoder is that sure.

    Raises:
        ValueError: If shape or values are not as described.
    """
    # A probability is a sum of shares such as 1/3; without slack a certain place could read 1 - 1e-16.
    certain = top_k_probability(replicates, k=k) >= threshold - 1e-12
    return tuple(int(index) for index in np.flatnonzero(certain))


def clear_winner(replicates: ArrayLike, *, level: float) -> int | None:
    """The encoder whose paired interval of difference to every other one lies above 0, if there is one.

    Args:
        replicates: Scores under common draws, higher is better, shape (replicates, encoders), without NaN.
        level: Coverage of the intervals, for example 0.95.

    Returns:
        Its position, or None.

    Raises:
        ValueError: If shape or values are not as described, or there is only one encoder.
    """
    scores = finite_array(replicates, name="replicates", ndim=(2,))
    if scores.shape[1] < 2:
        raise ValueError("replicates holds one encoder, expected at least 2; a winner needs someone to beat.")
    best = int(scores.mean(axis=0).argmax())
    others = np.delete(scores, best, axis=1)
    lower, _ = percentile_interval((scores[:, [best]] - others).T, level=level)
    return best if bool((lower > 0).all()) else None
