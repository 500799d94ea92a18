"""Nested label subsets: whole groups in one order per seed, so that a larger fraction contains every smaller one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crs_assets.science.splits.groups import BoolArray, Groups, IntArray, exact


@dataclass(frozen=True)
class NestedSubsets:
    """The label subsets of one role.

    Attributes:
        members: ``(m,)`` positions of the role's groups in ``Groups.ids``, in the order in which they are taken.
        enters_at: ``(m,)`` index of the smallest fraction whose subset holds the group.
        images: Realised images of each fraction.
        floor: For each fraction, whether the first groups of every class alone exceed it.
        distinct: Whether no two fractions come to the same subset.
    """

    members: IntArray
    enters_at: IntArray
    images: tuple[int, ...]
    floor: tuple[bool, ...]
    distinct: bool


def nest(
    groups: Groups,
    members: IntArray,
    rank: IntArray,
    fractions: Sequence[float],
    *,
    both_signs: bool,
    min_images: int = 0,
) -> NestedSubsets:
    """Order a role's groups and cut the order at each fraction.

    Groups are taken in ascending (rank in stratum + 0.5) / groups in stratum, then hash, which spreads every stratum
    evenly; before them come the first groups, in that order, that hold each class. Groups are taken until the images
    first reach ``round(f n)``, half to even.

    Args:
        groups: All groups.
        members: Positions of the role's groups.
        rank: ``(g,)`` hash rank of all groups.
        fractions: Label fractions, ascending to 1.
        both_signs: Whether a negative of each class is wanted first as well (multilabel).
        min_images: Every subset has at least this many images, or all.
    """
    ordered, first = _order(groups, members, rank, both_signs=both_signs)
    images = groups.images[ordered]
    total = int(images.sum())
    targets = [max(round(exact(fraction) * total), min(min_images, total)) for fraction in fractions]
    before = np.cumsum(images) - images
    taken = (before[:, None] < np.array(targets)) | (np.arange(len(ordered)) < first)[:, None]
    sizes = [int(images[column].sum()) for column in taken.T]
    first_images = int(images[:first].sum())
    return NestedSubsets(
        members=ordered,
        enters_at=taken.argmax(axis=1).astype(np.int64),
        images=tuple(sizes),
        floor=tuple(first_images > exact(fraction) * total for fraction in fractions),
        distinct=len(set(sizes)) == len(sizes),
    )


def _order(groups: Groups, members: IntArray, rank: IntArray, *, both_signs: bool) -> tuple[IntArray, int]:
    """Groups in the order in which they are taken, and how many of them come first to hold each class."""
    spread = members[np.lexsort((rank[members], _quantile(groups.stratum[members], rank[members])))]
    wanted = [groups.positive[spread]] + ([groups.negative[spread]] if both_signs else [])
    holds = np.concatenate(wanted, axis=1)
    first = np.unique(holds.argmax(axis=0)[holds.any(axis=0)]) if len(spread) else np.empty(0, dtype=np.int64)
    is_first: BoolArray = np.isin(np.arange(len(spread)), first)
    return np.concatenate([spread[is_first], spread[~is_first]]), len(first)


def _quantile(stratum: IntArray, rank: IntArray) -> npt.NDArray[np.float64]:
    """(rank in stratum + 0.5) / groups in stratum. Equal quotients give equal floats: division is correctly rounded."""
    order = np.lexsort((rank, stratum))
    names, start, size = np.unique(stratum[order], return_index=True, return_counts=True)
    position = np.searchsorted(names, stratum[order])
    quantile = np.empty(len(stratum))
    quantile[order] = (np.arange(len(stratum)) - start[position] + 0.5) / size[position]
    return quantile
