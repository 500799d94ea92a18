"""Dominance with a margin: an axis is better or worse only beyond the paired case interval of the difference.

The published dominance counts every difference of the sixth decimal, however little of it test patients can tell.
"""

import math
from collections.abc import Sequence

import numpy as np

from crs_assets.science.analyses.resampling import interval_of
from crs_assets.science.protocol import ScoreWeights
from crs_assets.science.validation import FloatArray


def dominates_beyond(mine: FloatArray, theirs: FloatArray, *, level: float) -> bool | None:
    """Whether a profile dominates another: no axis is worse, one is better, both beyond the interval.

    Args:
        mine: Normalised axes under each resample of seeds and test groups, float64 (R, 4); NaN where not estimable.
        theirs: Those of the other under the same resamples.
        level: Coverage of the paired intervals, for example 0.95.

    Returns:
        None where no resample can estimate an axis of both.
    """
    intervals = [interval_of(difference, level=level) for difference in (mine - theirs).T]
    if any(math.isnan(low) for low, _ in intervals):
        return None
    return not any(high < 0 for _, high in intervals) and any(low > 0 for low, _ in intervals)


def margin_dominance(mine: FloatArray, peers: Sequence[FloatArray], *, level: float) -> float | None:
    """Share of the peers that a profile dominates with the margin, in [0, 1], higher is better.

    Args:
        mine: As for ``dominates_beyond``.
        peers: The same of each peer; at least one.
        level: Coverage of the paired intervals.

    Returns:
        None where one of the peers cannot be compared: leaving it out would change what the share is of.
    """
    found = [dominates_beyond(mine, peer, level=level) for peer in peers]
    known = [dominated for dominated in found if dominated is not None]
    return float(np.mean(known)) if len(known) == len(found) else None


def score_with_dominance(dominance: float, closeness: float, worst_axis: float, weights: ScoreWeights) -> float:
    """CRS with another dominance in place of the published one; its other terms stay."""
    return math.fsum((weights.dominance * dominance, weights.closeness * closeness, weights.worst_axis * worst_axis))
