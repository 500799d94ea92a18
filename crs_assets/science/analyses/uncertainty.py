"""What resampled axes say about scores: intervals, rank probabilities, differences, the leading tier.

Three kinds of replicates: ``seed`` (split seeds drawn with replacement, the test set as it is), ``case`` (seeds drawn,
and test groups drawn with them) and ``case-centred``. A resampled test set holds fewer distinct cases, which raises a
calibration error for every predictor: the replicates of a small test set lie beside what is published, with the score
among them. ``case-centred`` takes from the resamples how far an axis scatters and from the published value where it is:
each axis's replicates are moved so that their mean is the published value, which removes the bootstrap's estimate of
bias [1]_. It is the primary one.

Two readings of the panel: ``panel-fixed`` (its z as published) and ``joint`` (a peer's z under the same draw, where its
predictions are stored).

References:
    .. [1] Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 10.2.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from crs_assets.science.analyses.resampling import interval_of
from crs_assets.science.protocol import AXES, Protocol, ScoreWeights
from crs_assets.science.scoring import normalize
from crs_assets.science.statistics import clear_winner, leading_tier, rank_probabilities, top_k_probability
from crs_assets.science.validation import BoolArray, FloatArray

SEED, CASE, CENTRED = "seed", "case", "case-centred"
KINDS = (CENTRED, CASE, SEED)
PANEL_FIXED, JOINT = "panel-fixed", "joint"
AGGREGATE = "aggregate"

CALIBRATION = AXES.index("calibration")
RAW = ("auroc", "ece", "label_efficiency", "robustness")
Z = tuple(f"z_{axis}" for axis in AXES)
TERMS = ("dominance", "closeness", "worst_axis", "crs")
QUANTITIES = (*RAW, *Z, *TERMS)
COMPARED = (*RAW, "crs")


@dataclass(frozen=True, eq=False)
class Draws:
    """Every quantity of a cell, or of an encoder's aggregate, as published and under each replicate.

    Attributes:
        point: As published, float64 (quantities,), in the order of ``QUANTITIES``.
        values: Under each replicate, float64 (R, quantities); NaN where not estimable, never replaced.
        lacking: Whether a scored class had no positive or no negative in the replicate, bool (R,); it was then left
            out of the replicate's macro means.
    """

    point: FloatArray
    values: FloatArray
    lacking: BoolArray

    def of(self, quantity: str) -> FloatArray:
        """Replicates of one quantity, (R,)."""
        return self.values[:, QUANTITIES.index(quantity)]


@dataclass(frozen=True)
class Verdict:
    """Who leads, and whether anyone has won.

    Attributes:
        top: Encoder -> probability of a rank within the top k.
        tier: Encoders that are within the top k with at least the threshold probability.
        leader: Highest mean score over the replicates.
        winner: The leader, if its paired interval against every other encoder excludes 0; else None.
        inseparable: Encoders whose paired interval against the leader holds 0.
        replicates: Replicates that could be scored for every encoder.
        n_undefined: Replicates left out.
    """

    top: dict[str, float]
    tier: tuple[str, ...]
    leader: str
    winner: str | None
    inseparable: tuple[str, ...]
    replicates: int
    n_undefined: int


def centred(raw: FloatArray, published: FloatArray) -> FloatArray:
    """Raw axes (R, 4) moved so that the mean of each over its known replicates is the published value (4,).

    A calibration error that would be negative is 0.
    """
    known = ~np.isnan(raw)
    count = known.sum(axis=0)
    mean = np.where(known, raw, 0.0).sum(axis=0) / np.maximum(count, 1)
    moved: FloatArray = raw - mean + published
    moved[:, CALIBRATION] = np.maximum(moved[:, CALIBRATION], 0.0)
    return moved


def normalized(raw: FloatArray, reading: Protocol) -> FloatArray:
    """Z of raw axes (R, 4); NaN where an axis is not estimable."""
    known = ~np.isnan(raw)
    z = normalize(np.where(known, raw, 0.0), reading.axes.anchors, decimals=reading.axes.score_decimals)
    return np.where(known, z, np.nan)


def score_terms(z: FloatArray, peers: FloatArray, weights: ScoreWeights) -> FloatArray:
    """The score and its terms under each replicate, as ``scoring.reliability_score`` defines them.

    Args:
        z: Normalised profiles (R, 4).
        peers: Normalised profiles of the peers, (P, 4) as published or (R, P, 4) under the same draws.
        weights: Weights of the three terms.

    Returns:
        float64 (R, 4): dominance, closeness, worst axis, score; NaN where an axis, or a peer's, is not estimable.
    """
    mine, others = z[:, None, :], np.broadcast_to(peers, (len(z), *peers.shape[-2:]))
    dominates = (mine >= others).all(axis=2) & (mine > others).any(axis=2)
    dominance = dominates.mean(axis=1)
    closeness = 1 - np.sqrt(np.square(1 - z).sum(axis=1)) / 2
    worst = z.min(axis=1)
    crs = weights.dominance * dominance + weights.closeness * closeness + weights.worst_axis * worst
    terms = np.column_stack([dominance, closeness, worst, crs])
    unknown = np.isnan(z).any(axis=1) | np.isnan(others).any(axis=(1, 2))
    terms[unknown] = np.nan
    return terms


def quantities(raw: FloatArray, peers: FloatArray, reading: Protocol) -> FloatArray:
    """Raw axes (R, 4) with all that follows from them, float64 (R, quantities); see ``score_terms``."""
    z = normalized(raw, reading)
    return np.concatenate([raw, z, score_terms(z, peers, reading.score)], axis=1)


def aggregate(cells: Sequence[Draws]) -> Draws:
    """Mean over data sets, replicate by replicate; NaN where one of them is."""
    return Draws(
        point=np.mean([cell.point for cell in cells], axis=0),
        values=np.mean([cell.values for cell in cells], axis=0),
        lacking=np.any([cell.lacking for cell in cells], axis=0),
    )


def panel_peers(
    panel: Mapping[str, Any], reading: str, *, encoder: str, weights: str, dataset: str
) -> dict[str, FloatArray]:
    """Z (4,) of the panel entries that an encoder is scored against on a data set, by name."""
    return {
        name: np.array([entry["datasets"][dataset][reading]["z"][axis] for axis in AXES])
        for name, entry in sorted(panel["encoders"].items())
        if name != encoder
        and entry["weights"] != weights
        and dataset in entry["datasets"]
        and entry["datasets"][dataset][reading]["z"] is not None
    }


def interval_rows(draws: Draws, *, level: float) -> list[dict[str, Any]]:
    """Percentile interval of each quantity.

    Args:
        draws: A cell's or an aggregate's.
        level: Coverage, for example 0.95.

    Returns:
        Rows ``quantity``, ``value``, ``low``, ``high`` (None where no replicate is estimable), ``replicates``,
        ``n_undefined`` (left out of the interval), ``n_degenerate`` (a scored class was left out of the means), and
        ``bias``: mean of the replicates minus the value. A resampled test set holds fewer distinct cases, so that
        calibration errors and worst drops come out larger; an interval that lies beside its value says so here.
    """
    rows = []
    for quantity, value, values in zip(QUANTITIES, draws.point, draws.values.T, strict=True):
        rows.append(
            {
                "quantity": quantity,
                "value": _known(value),
                **_interval(values, level),
                "bias": _mean_of_known(values - value),
                "n_degenerate": int(draws.lacking.sum()),
            }
        )
    return rows


def dominance_rows(draws: Draws) -> list[dict[str, Any]]:
    """The distribution of dominance, which is a step function of z: rows ``dominance``, ``probability``."""
    values = draws.of("dominance")
    steps, counts = np.unique(np.round(values[~np.isnan(values)], 12), return_counts=True)
    return [
        {"dominance": float(step), "probability": float(count / counts.sum())}
        for step, count in zip(steps, counts, strict=True)
    ]


def difference_rows(draws: Mapping[str, Draws], *, level: float) -> list[dict[str, Any]]:
    """Paired differences of every two encoders under common draws: each pair once, the earlier minus the later.

    Returns:
        Rows ``encoder``, ``other``, ``quantity``, ``difference``, ``low``, ``high``, ``replicates``, ``n_undefined``.
    """
    rows = []
    for (encoder, mine), (other, theirs) in combinations(draws.items(), 2):
        for quantity in COMPARED:
            at = QUANTITIES.index(quantity)
            rows.append(
                {
                    "encoder": encoder,
                    "other": other,
                    "quantity": quantity,
                    "difference": _known(mine.point[at] - theirs.point[at]),
                    **_interval(mine.values[:, at] - theirs.values[:, at], level),
                }
            )
    return rows


def rank_rows(draws: Mapping[str, Draws]) -> list[dict[str, Any]]:
    """P(rank = r) by score, tied encoders sharing their ranks: rows ``encoder``, ``rank``, ``probability``."""
    scores = _scores(draws)
    if not scores.size:
        return []
    return [
        {"encoder": encoder, "rank": rank, "probability": float(probability)}
        for encoder, row in zip(draws, rank_probabilities(scores), strict=True)
        for rank, probability in enumerate(row, start=1)
    ]


def verdict(draws: Mapping[str, Draws], *, level: float, top_k: int, threshold: float) -> Verdict | None:
    """The leading tier, and a winner only where its paired interval against every other encoder excludes 0.

    Args:
        draws: Ranked encoders under common draws.
        level: Coverage of the intervals.
        top_k: How far up is the top; no more than there are encoders.
        threshold: Probability of the top that the tier's members have to have.

    Returns:
        The verdict; None where fewer than two encoders are ranked, or no replicate can be scored for all of them.
    """
    scores, names = _scores(draws), list(draws)
    if not scores.size or len(names) < 2:
        return None
    k = min(top_k, len(names))
    winner = clear_winner(scores, level=level)
    leader = int(scores.mean(axis=0).argmax())
    lows = [interval_of(scores[:, leader] - theirs, level=level)[0] for theirs in scores.T]
    return Verdict(
        top=dict(zip(names, top_k_probability(scores, k=k).tolist(), strict=True)),
        tier=tuple(names[at] for at in leading_tier(scores, k=k, threshold=threshold)),
        leader=names[leader],
        winner=None if winner is None else names[winner],
        inseparable=tuple(name for at, name in enumerate(names) if at != leader and lows[at] <= 0),
        replicates=len(scores),
        n_undefined=len(next(iter(draws.values())).values) - len(scores),
    )


def depends_on_panel(quantity: str) -> bool:
    """Whether a quantity depends on the peers that a cell is scored against."""
    return quantity in ("dominance", "crs")


def _scores(draws: Mapping[str, Draws]) -> FloatArray:
    """Scores (R, encoders) of the replicates that can be scored for every encoder."""
    if not draws:
        return np.empty((0, 0))
    scores = np.stack([each.of("crs") for each in draws.values()], axis=1)
    return scores[~np.isnan(scores).any(axis=1)]


def _interval(values: FloatArray, level: float) -> dict[str, Any]:
    undefined = int(np.isnan(values).sum())
    low, high = interval_of(values, level=level)
    return {
        "low": _known(low),
        "high": _known(high),
        "replicates": len(values) - undefined,
        "n_undefined": undefined,
    }


def _mean_of_known(values: FloatArray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
