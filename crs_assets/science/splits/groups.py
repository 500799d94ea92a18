"""Groups of images that must stay together, their strata, and their order by hash."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import polars as pl

from crs_assets.science.labels import LabelSpace, membership

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

KEY_COLUMNS = ("image_id", "group_id", "quarantine")


@dataclass(frozen=True)
class Groups:
    """The groups of an index's usable rows, in ascending order of group id.

    Attributes:
        ids: ``(g,)`` group ids.
        code: ``(n,)`` position in ``ids`` of each usable row.
        images: ``(g,)`` usable images of each group.
        positive: ``(g, classes)`` whether any image of the group is a definite positive of the class.
        negative: ``(g, classes)`` whether any image of the group is a definite negative of the class.
        stratum: ``(g,)`` the class, rarest in the data set, among the group's positives; the number of classes where
            the group has no positive.
    """

    ids: tuple[str, ...]
    code: IntArray
    images: IntArray
    positive: BoolArray
    negative: BoolArray
    stratum: IntArray


def usable_rows(index: pl.DataFrame) -> pl.DataFrame:
    """The rows that may have a role, sorted by image id.

    Raises:
        ValueError: If key columns are missing, image ids repeat, or a usable row has no group.
    """
    if missing := [column for column in KEY_COLUMNS if column not in index.columns]:
        raise ValueError(f"the index lacks the columns {missing}; expected at least {list(KEY_COLUMNS)}.")
    rows = index.filter(pl.col("quarantine").is_null()).sort("image_id")
    problems = []
    if repeated := rows.height - rows["image_id"].n_unique():
        problems.append(f"{repeated} image ids repeat; give every image one row")
    if ungrouped := rows["group_id"].null_count():
        problems.append(f"{ungrouped} usable rows have no group_id; where no patient is known, use the image id")
    if problems:
        raise ValueError(f"the index cannot be split: {'; '.join(problems)}.")
    return rows


def group_rows(rows: pl.DataFrame, space: LabelSpace) -> Groups:
    """Collect usable rows into groups and place each group in its stratum.

    The rarity of a class is its number of definitely positive images among the rows; ties go to the earlier class.

    Args:
        rows: What ``usable_rows`` returned.
        space: The data set.
    """
    ids, code = np.unique(rows["group_id"].to_numpy().astype(object), return_inverse=True)
    code = code.astype(np.int64).reshape(-1)
    row_positive, row_negative = membership(rows, space)
    positive = _any_per_group(row_positive, code, len(ids))
    negative = _any_per_group(row_negative, code, len(ids))
    return Groups(
        ids=tuple(ids.tolist()),
        code=code,
        images=np.bincount(code, minlength=len(ids)).astype(np.int64),
        positive=positive,
        negative=negative,
        stratum=_strata(positive, row_positive.sum(axis=0)),
    )


def hash_rank(prefix: str, ids: Sequence[str]) -> IntArray:
    """Rank of each id in ascending order of SHA-256 of ``<prefix>|<id>`` in UTF-8.

    Returns:
        ``(g,)`` ranks from 0, all distinct; equal digests, should they ever occur, follow the order of ``ids``.
    """
    digests = b"".join(hashlib.sha256(f"{prefix}|{name}".encode()).digest() for name in ids)
    words = np.frombuffer(digests, dtype=">u8").reshape(-1, 4)
    rank = np.empty(len(ids), dtype=np.int64)
    rank[np.lexsort((words[:, 3], words[:, 2], words[:, 1], words[:, 0]))] = np.arange(len(ids))
    return rank


def cut_strata(images: IntArray, stratum: IntArray, rank: IntArray, fractions: Sequence[float]) -> IntArray:
    """Cut each stratum's groups, in order of rank, into consecutive parts.

    A part takes groups until the images first reach its cumulative fraction of the stratum's images; a group is never
    divided, and what the last fraction leaves over is one more part.

    Args:
        images: ``(g,)`` images of each group.
        stratum: ``(g,)`` stratum of each group.
        rank: ``(g,)`` rank of each group.
        fractions: Cumulative fractions, ascending.

    Returns:
        ``(g,)`` the part of each group, from 0 to ``len(fractions)``.
    """
    order = np.lexsort((rank, stratum))
    part = np.empty(len(images), dtype=np.int64)
    for name in np.unique(stratum):
        members = order[stratum[order] == name]
        total = int(images[members].sum())
        before = np.cumsum(images[members]) - images[members]
        targets = np.array([-(-exact(fraction) * total // 1) for fraction in fractions], dtype=np.int64)
        part[members] = (before[:, None] >= targets).sum(axis=1)
    return part


def exact(fraction: float) -> Fraction:
    """The decimal fraction as it is written, so that 0.1 of 30 is 3 and no rounding error adds an image."""
    return Fraction(str(fraction))


def _any_per_group(flags: BoolArray, code: IntArray, groups: int) -> BoolArray:
    counts = np.zeros((groups, flags.shape[1]), dtype=bool)
    rows, columns = np.nonzero(flags)
    counts[code[rows], columns] = True
    return counts


def _strata(positive: BoolArray, frequency: npt.NDArray[np.integer]) -> IntArray:
    rarest_first = np.argsort(frequency, kind="stable")
    first = rarest_first[positive[:, rarest_first].argmax(axis=1)]
    stratum: IntArray = np.where(positive.any(axis=1), first, positive.shape[1]).astype(np.int64)
    return stratum
