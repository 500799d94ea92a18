"""Cases that recalibration maps are fitted on: which images, in which order, and proof of which they were."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.evaluation import Logits
from crs_assets.science.splits.groups import hash_rank
from crs_assets.science.validation import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class Cases:
    """Labelled logits that a map may be fitted on, in ascending order of image id.

    Attributes:
        ids: Image ids.
        groups: Group of each image: patient, lesion, or the image itself.
        labels: (n,) int class indices, or (n, L) float with NaN where not observed.
        logits: (n, C), as the probe gave them or as they are read.
    """

    ids: tuple[str, ...]
    groups: tuple[str, ...]
    labels: NDArray[Any]
    logits: Logits

    @classmethod
    def of(cls, ids: Sequence[str], groups: Sequence[str], labels: NDArray[Any], logits: Logits) -> "Cases":
        """Cases from rows in any order: sorted, so that row order can move no sum.

        Raises:
            ValueError: If lengths differ or an id repeats.
        """
        lengths = {"ids": len(ids), "groups": len(groups), "labels": len(labels), "logits": len(logits)}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"cases have {lengths}; expected one row of each per image.")
        if repeated := len(ids) - len(set(ids)):
            raise ValueError(f"{repeated} image ids repeat among {len(ids)} cases; give every image one row.")
        order = sorted(range(len(ids)), key=ids.__getitem__)
        return cls(tuple(ids[i] for i in order), tuple(groups[i] for i in order), labels[order], logits[order])

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: IntArray) -> "Cases":
        """Those of the rows, which are positions in ascending order."""
        ids, groups = (tuple(values[row] for row in rows) for values in (self.ids, self.groups))
        return Cases(ids, groups, self.labels[rows], self.logits[rows])

    @property
    def sha256(self) -> str:
        """``rows_sha256`` of the ids."""
        return rows_sha256(self.ids)


def rows_sha256(ids: Iterable[str]) -> str:
    """Which images they were, without naming one: SHA-256 of the ascending ids, one a line, as 64 hex digits."""
    return hashlib.sha256("".join(f"{name}\n" for name in sorted(ids)).encode("utf-8")).hexdigest()


def case_subsets(groups: Sequence[str], counts: Sequence[int], *key: str | int) -> Mapping[int, IntArray | None]:
    """Nested subsets of about so many images: whole groups in one order, until the images first reach the count.

    The order is ascending SHA-256 of ``<key parts>|<group>``. As the order is one, a larger subset holds every smaller.

    Args:
        groups: Group of each image.
        counts: Numbers of images wanted.
        *key: Salt and names that decide the order.

    Returns:
        Count -> rows in ascending order, int64; at least the count, more by less than one group. None where there are
        fewer images than the count.
    """
    before = _images_before(groups, key)
    return {count: np.flatnonzero(before < count) if count <= len(groups) else None for count in counts}


def fit_half(groups: Sequence[str], *key: str | int) -> BoolArray:
    """Which images are of the half that maps may be fitted on; the others are evaluated.

    Groups in ascending SHA-256 of ``<key parts>|<group>`` until their images first reach half of all.

    Args:
        groups: Group of each image.
        *key: Salt and names that decide the order.

    Returns:
        bool (n,); no group is on both sides.
    """
    return 2 * _images_before(groups, key) < len(groups)


def _images_before(groups: Sequence[str], key: tuple[str | int, ...]) -> IntArray:
    """For each image, how many images come in groups before its own."""
    if not len(groups):
        return np.empty(0, dtype=np.int64)
    names, code, images = np.unique(np.asarray(groups, dtype=object), return_inverse=True, return_counts=True)
    order = np.argsort(hash_rank("|".join(map(str, key)), names.tolist()))
    before = np.empty(len(names), dtype=np.int64)
    before[order] = np.cumsum(images[order]) - images[order]
    return before[code.reshape(-1)]
