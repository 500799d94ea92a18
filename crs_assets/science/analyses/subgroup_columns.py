"""Subgroup columns of an index: which image belongs to which group, ages in bands, missing values apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science.datasets.columns import AGE, SUBGROUP
from crs_assets.science.validation import IntArray

UNKNOWN = "unknown"


@dataclass(frozen=True, eq=False)
class SubgroupColumn:
    """One subgroup column over the rows of an index.

    Attributes:
        name: The column's name, without its prefix.
        groups: Names of the groups that occur: ages ascending, others in alphabetical order, ``UNKNOWN`` last.
        member: int64 (n,), the position in ``groups`` of each row.
    """

    name: str
    groups: tuple[str, ...]
    member: IntArray

    def rows(self, group: str) -> NDArray[np.intp]:
        """Rows of a group; none where it does not occur."""
        return np.flatnonzero(self.member == self.groups.index(group)) if group in self.groups else np.empty(0, np.intp)


def subgroup_columns(index: pl.DataFrame, age_edges: Sequence[float]) -> tuple[SubgroupColumn, ...]:
    """The subgroup columns of an index that hold any value, in the order of the index.

    Args:
        index: Rows of an index; its columns ``sub:<name>`` are read.
        age_edges: Lower edges of the age bands, years, ascending.
    """
    prefix = f"{SUBGROUP}:"
    names = [column.removeprefix(prefix) for column in index.columns if column.startswith(prefix)]
    columns = (_column(name, index[f"{prefix}{name}"], age_edges) for name in names)
    return tuple(column for column in columns if column is not None)


def age_bands(ages: pl.Series, edges: Sequence[float]) -> list[str | None]:
    """The age band of each row.

    Args:
        ages: Years; null or NaN where unknown.
        edges: Lower edges of the bands, years, ascending; an edge belongs to the band above it.

    Returns:
        For edges 0, 40 and 65 one of ``under 40``, ``40 to under 65``, ``65 and over``; None where unknown.
    """
    cuts, names = _bands(edges)
    years = ages.cast(pl.Float64).fill_nan(None)
    return [None if age is None else names[int(np.searchsorted(cuts, age, side="right"))] for age in years]


def _bands(edges: Sequence[float]) -> tuple[list[float], list[str]]:
    """Inner edges and names of the bands: below the first positive edge lies the youngest band."""
    cuts = [float(edge) for edge in edges if edge > 0]
    if not cuts:
        return cuts, ["any age"]
    inner = [f"{low:g} to under {high:g}" for low, high in pairwise(cuts)]
    return cuts, [f"under {cuts[0]:g}", *inner, f"{cuts[-1]:g} and over"]


def _column(name: str, values: pl.Series, age_edges: Sequence[float]) -> SubgroupColumn | None:
    is_age = name == AGE
    texts: list[Any] = age_bands(values, age_edges) if is_age else values.cast(pl.String).to_list()
    known = {text for text in texts if text is not None and text != UNKNOWN}
    if not known:
        return None
    ordered = [band for band in _bands(age_edges)[1] if band in known] if is_age else sorted(known)
    has_unknown = any(text not in known for text in texts)
    groups = (*ordered, *([UNKNOWN] if has_unknown else []))
    at = {group: position for position, group in enumerate(groups)}
    member = np.array([at[text if text in known else UNKNOWN] for text in texts], dtype=np.int64)
    return SubgroupColumn(name, groups, member)
