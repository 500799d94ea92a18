"""How far two rankings of the same encoders agree."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.validation import FloatArray, IntArray, finite_array


@dataclass(frozen=True)
class RankAgreement:
    """Agreement of two rankings.

    Attributes:
        kendall_tau: Kendall's tau-b, in [-1, 1]; NaN if either ranking is one tie.
        spearman_rho: Pearson correlation of average ranks, in [-1, 1]; NaN if either ranking is one tie.
        reversed_pairs: Pairs ordered strictly one way by a and strictly the other way by b.
        tied_pairs: Pairs tied in either ranking, never counted as reversed.
        pairs: All pairs.
        mean_displacement: Mean absolute difference of average ranks.
        moves: Average rank in a minus average rank in b, per encoder: positive = b places it higher.
        top_k: The k of the overlap.
        top_k_overlap: Share of a's top k that is in b's top k.
        is_top_k_tied: Whether a tie at either border was broken, so that another order could change the overlap.
    """

    kendall_tau: float
    spearman_rho: float
    reversed_pairs: int
    tied_pairs: int
    pairs: int
    mean_displacement: float
    moves: tuple[float, ...]
    top_k: int
    top_k_overlap: float
    is_top_k_tied: bool


def rank_agreement(
    scores_a: ArrayLike, scores_b: ArrayLike, *, k: int = 3, ids: Sequence[str] | None = None
) -> RankAgreement:
    """Compare two rankings: Kendall tau-b [1]_, Spearman rho, reversed pairs, displacement, top-k overlap.

    Args:
        scores_a: Scores, higher is better, shape (n,), n >= 2.
        scores_b: Scores of the same encoders in the same order, higher is better.
        k: Size of the top group, 1..n.
        ids: Names that break ties at the border of the top k, ascending; positions by default.

    Raises:
        ValueError: If lengths differ or are below 2, a score is not finite, k is out of range, or ids repeat.

    References:
        .. [1] Kendall, "The treatment of ties in ranking problems", Biometrika 33, 1945.
    """
    # A second of import, which loading the code location would pay.
    from scipy.stats import rankdata

    a = finite_array(scores_a, name="scores_a", ndim=(1,))
    b = finite_array(scores_b, name="scores_b", ndim=(1,))
    names = np.arange(len(a)) if ids is None else np.asarray(ids)
    _check_sizes(a, b, k, names)
    first, second = np.triu_indices(len(a), 1)
    sign_a, sign_b = np.sign(a[first] - a[second]), np.sign(b[first] - b[second])
    rank_a, rank_b = rankdata(-a), rankdata(-b)
    top_a, top_b = _top(a, names, k), _top(b, names, k)
    return RankAgreement(
        kendall_tau=_correlation(sign_a, sign_b),
        spearman_rho=_correlation(rank_a - rank_a.mean(), rank_b - rank_b.mean()),
        reversed_pairs=int(np.sum(sign_a * sign_b < 0)),
        tied_pairs=int(np.sum(sign_a * sign_b == 0)),
        pairs=len(first),
        mean_displacement=float(np.mean(np.abs(rank_a - rank_b))),
        moves=tuple(float(move) for move in rank_a - rank_b),
        top_k=k,
        top_k_overlap=len(top_a & top_b) / k,
        is_top_k_tied=_is_border_tied(a, k) or _is_border_tied(b, k),
    )


def _correlation(x: FloatArray, y: FloatArray) -> float:
    """Cosine of two centred vectors; on signs of pairs this is tau-b, on average ranks Spearman's rho."""
    scale = float(np.sqrt(np.sum(x * x) * np.sum(y * y)))
    return float(np.sum(x * y)) / scale if scale > 0 else float("nan")


def _top(scores: FloatArray, names: IntArray, k: int) -> set[int]:
    return {int(index) for index in np.lexsort((names, -scores))[:k]}


def _is_border_tied(scores: FloatArray, k: int) -> bool:
    descending = -np.sort(-scores)
    return k < len(scores) and bool(descending[k - 1] == descending[k])


def _check_sizes(a: FloatArray, b: FloatArray, k: int, names: IntArray) -> None:
    if len(a) != len(b) or len(names) != len(a):
        raise ValueError(
            f"got {len(a)} and {len(b)} scores for {len(names)} encoders; pass the same encoders in one order."
        )
    if len(a) < 2:
        raise ValueError("got scores of one encoder, expected at least 2 to compare rankings.")
    if not 1 <= k <= len(a):
        raise ValueError(f"k is {k}, expected 1..{len(a)} for {len(a)} encoders.")
    if len(np.unique(names)) != len(names):
        raise ValueError("ids repeat; pass one distinct id per encoder.")
