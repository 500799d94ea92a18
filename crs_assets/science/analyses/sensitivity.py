"""How much of a ranking is the protocol's choice: anchors moved, the score's weights over their whole simplex."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from crs_assets.science.analyses.rescoring import Profiles, mean_scores, with_anchors
from crs_assets.science.protocol import AXES, Anchor, AxisType, Protocol, ScoreWeights
from crs_assets.science.validation import FloatArray, finite_array

TIE_DECIMALS = 12
"""Scores that differ by less are rounding of one value, and share their rank."""

TERMS = ("dominance", "closeness", "worst_axis")
WEIGHTING_SCHEMA: dict[str, Any] = {
    "encoder": pl.Utf8,
    **dict.fromkeys(("share_first", "rank_best", "rank_worst", "rank_published"), pl.Float64),
    "weightings": pl.Int64,
}


def moved_anchors(
    anchors: Mapping[AxisType, Anchor], change: float
) -> Iterator[tuple[str, AxisType, dict[AxisType, Anchor]]]:
    """Anchors with one end of one axis moved by a share of their distance, towards the other end and away from it.

    Args:
        anchors: The protocol's.
        change: The share, in (0, 1).

    Yields:
        (what was moved, its axis, all four anchors).
    """
    for axis in AXES:
        zero, one = anchors[axis].zero, anchors[axis].one
        for sign in (-1, 1):
            step = sign * change * (one - zero)
            yield f"zero {sign * change:+.0%}", axis, {**anchors, axis: Anchor(zero=zero + step, one=one)}
            yield f"one {sign * change:+.0%}", axis, {**anchors, axis: Anchor(zero=zero, one=one + step)}


def scores_with_anchors(
    profiles: Profiles,
    peers: Profiles,
    reading: Protocol,
    anchors: Mapping[AxisType, Anchor],
    datasets: Sequence[str],
) -> dict[str, float]:
    """Mean CRS over data sets under other anchors, which hold for the panel as well.

    Args:
        profiles: Encoders to score.
        peers: The panel's encoders.
        reading: Whose weights apply.
        anchors: In place of the reading's.
        datasets: Data sets to average over.
    """
    return mean_scores(
        with_anchors(profiles, reading, anchors), with_anchors(peers, reading, anchors), reading, datasets
    )


def weight_simplex(step: float) -> FloatArray:
    """Every weighting of the three terms on a grid: float64 (weightings, 3), rows non-negative and summing to 1.

    Args:
        step: Distance of the grid; 1 is a multiple of it (0.05 gives 231 weightings).

    Raises:
        ValueError: If 1 is no multiple of the step.
    """
    parts = round(1 / step)
    if abs(parts * step - 1) > 1e-9:
        raise ValueError(f"1 is no multiple of the weight step {step:g}; choose for example 0.05.")
    counts = [(i, j, parts - i - j) for i in range(parts + 1) for j in range(parts + 1 - i)]
    return np.array(counts, dtype=np.float64) / parts


def weighting_sensitivity(terms: pl.DataFrame, published: ScoreWeights, *, step: float) -> pl.DataFrame:
    """Rank of each encoder over the whole simplex of weightings.

    The score is linear in its weights, so the mean terms of an encoder give its score under any weighting.

    Args:
        terms: ``encoder`` and the means of ``dominance``, ``closeness`` and ``worst_axis``; at least one row.
        published: The protocol's weights.
        step: Distance of the grid.

    Returns:
        One row per encoder (``WEIGHTING_SCHEMA``): share of weightings in which it is first (a tie is split equally),
        its best, worst and published rank (1 = first, ties share the mean).

    Raises:
        ValueError: If a term is not finite or 1 is no multiple of the step.
    """
    ordered = terms.sort("encoder")
    values = finite_array(ordered.select(TERMS).to_numpy(), name="terms", ndim=(2,))
    grid = weight_simplex(step)
    ranks, first = _ranks(_scores(values, grid)), _first(_scores(values, grid))
    at_published = _ranks(_scores(values, np.array([[getattr(published, name) for name in TERMS]])))[0]
    columns = {
        "encoder": ordered["encoder"],
        "share_first": first.mean(axis=0),
        "rank_best": ranks.min(axis=0),
        "rank_worst": ranks.max(axis=0),
        "rank_published": at_published,
        "weightings": [len(grid)] * ordered.height,
    }
    return pl.DataFrame(columns, schema=WEIGHTING_SCHEMA).sort("rank_published", "encoder")


def _scores(terms: FloatArray, weights: FloatArray) -> FloatArray:
    """Scores (weightings, encoders), summed term by term: equal encoders get equal scores to the bit."""
    parts = [weights[:, [position]] * terms[None, :, position] for position in range(len(TERMS))]
    scores: FloatArray = np.round(parts[0] + parts[1] + parts[2], TIE_DECIMALS)
    return scores


def _ranks(scores: FloatArray) -> FloatArray:
    # A second of import, which loading the code location would pay.
    from scipy.stats import rankdata

    ranks: FloatArray = rankdata(-scores, axis=1)
    return ranks


def _first(scores: FloatArray) -> FloatArray:
    """Share of the first place, (weightings, encoders); rows sum to 1."""
    is_top = scores == scores.max(axis=1, keepdims=True)
    share: FloatArray = is_top / is_top.sum(axis=1, keepdims=True)
    return share
