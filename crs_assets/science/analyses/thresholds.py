"""Decisions at a threshold: how one is chosen, what it is worth, how sure a share is."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from crs_assets.science.validation import BoolArray, FloatArray, open_unit

TargetType = Literal["sensitivity", "specificity"]


def choose_threshold(positive: BoolArray, score: FloatArray, kind: TargetType, target: float) -> float | None:
    """The observed score that meets a target at the least cost to the other side.

    A case is called positive where its score is at or above the threshold. For a sensitivity it is the highest score
    whose sensitivity reaches the target, for a specificity the lowest whose specificity does.

    Args:
        positive: Whether a case is positive, bool (n,); both signs occur.
        score: float64 (n,), higher = more likely positive.
        kind: What the target is of.
        target: Wanted share, in (0, 1).

    Returns:
        The threshold; None where no observed score reaches the target, because too many negatives share the highest.
    """
    wanted = open_unit(target, name="target")
    if kind == "sensitivity":
        descending = np.sort(score[positive])[::-1]
        # Shares are compared as quotients: target times count may round above the whole number it stands for.
        reached = np.arange(1, len(descending) + 1) / len(descending) >= wanted
        return float(descending[int(np.argmax(reached))])
    candidates = np.unique(score)
    negatives = np.sort(score[~positive])
    reached = np.searchsorted(negatives, candidates, side="left") / len(negatives) >= wanted
    return float(candidates[int(np.argmax(reached))]) if reached.any() else None


def predictive_values(
    sensitivity: ArrayLike, specificity: ArrayLike, prevalences: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    """Positive and negative predictive value at stated prevalences, by Bayes' theorem.

    Args:
        sensitivity: Share of positives called positive, in [0, 1], any shape.
        specificity: Share of negatives called negative, in [0, 1], the same shape.
        prevalences: Shares of positives in the population, each in (0, 1).

    Returns:
        Two float64 arrays, prevalences on a first axis of their own, each value in [0, 1], higher is better; NaN where
        nobody is called positive (or negative).
    """
    hits, passes = np.asarray(sensitivity, dtype=np.float64), np.asarray(specificity, dtype=np.float64)
    share = np.asarray(prevalences, dtype=np.float64).reshape(-1, *[1] * hits.ndim)
    true_positive, false_positive = hits * share, (1 - passes) * (1 - share)
    true_negative, false_negative = passes * (1 - share), (1 - hits) * share
    return _quotients(true_positive, false_positive), _quotients(true_negative, false_negative)


def net_benefit(
    true_positives: ArrayLike, false_positives: ArrayLike, n: ArrayLike, threshold: ArrayLike
) -> FloatArray:
    """Net benefit of a model: true positives per case, less false positives weighed by the odds of the threshold [1]_.

    Treating all is the case where every positive and every negative is called positive; treating none gives 0.

    Args:
        true_positives: Positives called positive at the threshold probability.
        false_positives: Negatives called positive.
        n: Cases in all.
        threshold: Threshold probability, in (0, 1): the risk at which treatment is a toss-up.

    Returns:
        Net true positives per case, float64 in the broadcast shape, higher is better, at most the prevalence; NaN where
        there is no case.

    References:
        .. [1] Vickers and Elkin, "Decision curve analysis: a novel method for evaluating prediction models", Medical
           Decision Making 26, 2006.
    """
    odds = np.asarray(threshold, dtype=np.float64) / (1 - np.asarray(threshold, dtype=np.float64))
    worth = np.asarray(true_positives, dtype=np.float64) - odds * np.asarray(false_positives, dtype=np.float64)
    cases = np.broadcast_to(np.asarray(n, dtype=np.float64), worth.shape)
    benefit: FloatArray = np.divide(worth, cases, out=np.full(worth.shape, np.nan), where=cases > 0)
    return benefit


def wilson_interval(successes: int, trials: int, *, level: float) -> tuple[float, float]:
    """Wilson's score interval of a share of independent trials, without continuity correction [1]_.

    Args:
        successes: How often the event happened.
        trials: How often it could have, at least 1.
        level: Coverage, for example 0.95.

    Returns:
        Lower and upper end, within [0, 1].

    References:
        .. [1] Wilson, "Probable inference, the law of succession, and statistical inference", Journal of the American
           Statistical Association 22, 1927.
    """
    z = float(ndtri((1 + open_unit(level, name="level")) / 2))
    share, shrink = successes / trials, 1 + z**2 / trials
    centre = (share + z**2 / (2 * trials)) / shrink
    half = z / shrink * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
    # At 0 and at all successes the end is exact and only rounding could move it.
    low = 0.0 if successes == 0 else float(centre - half)
    return low, 1.0 if successes == trials else float(centre + half)


def _quotients(part: FloatArray, rest: FloatArray) -> FloatArray:
    whole = part + rest
    shares: FloatArray = np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    return shares
