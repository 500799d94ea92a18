"""Counting a data set: what was read, left out, quarantined and used, and whether that is what was expected."""

from collections.abc import Sequence
from operator import or_

import polars as pl

from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import DatasetIndex, RawTable
from crs_assets.science.labels import LABEL

SUPPRESSED_BELOW = 10
"""Smallest count of patients' images that a published table shows, zero apart."""
WITHHELD = "suppressed"
"""In place of a count that would give away a small one."""

_SCHEMA = {"kind": pl.String, "name": pl.String, "count": pl.Int64}
_Row = tuple[str, str, int]


def suppress_small(count: int) -> str:
    """A count as published tables show it: ``<10`` for 1 to 9, which could point at a person."""
    return f"<{SUPPRESSED_BELOW}" if is_small(count) else str(count)


def is_small(count: int) -> bool:
    """Whether a count is 1 to 9."""
    return 0 < count < SUPPRESSED_BELOW


def withheld(counts: Sequence[int], small: Sequence[bool], *, adds_up: bool) -> list[bool]:
    """Which counts of a list are not told, so that no small one follows from the others.

    Where the counts add up to a total that is told, a single small one is that total less the others, and several that
    are all 1 or all 9 follow from their sum; then the next smallest is not told either: secondary suppression [1]_.

    Args:
        counts: The counts.
        small: Which of them must not be told in any case.
        adds_up: Whether their total is told.

    References:
        .. [1] Hundepool et al., "Statistical Disclosure Control", Wiley 2012, chapter 4.
    """
    hidden = list(small)
    total, cells = sum(count for count, is_hidden in zip(counts, hidden, strict=True) if is_hidden), sum(hidden)
    follows = cells == 1 or (cells > 1 and total in (cells, (SUPPRESSED_BELOW - 1) * cells))
    others = [(count, at) for at, count in enumerate(counts) if count and not hidden[at]]
    if adds_up and follows and others:
        hidden[min(others)[1]] = True
    return hidden


def tell(counts: Sequence[int], *, adds_up: bool, of_few: Sequence[bool] | None = None) -> list[str]:
    """Counts as published tables show them, so that none of 1 to 9 follows from the others.

    Args:
        counts: The counts.
        adds_up: Whether their total is told.
        of_few: Which of them are of few people, however many images these have; only small counts where not given.

    Returns:
        ``<10`` for 1 to 9; ``suppressed`` for these and any other that has to be hidden too, all alike.
    """
    small = [is_small(count) for count in counts]
    hidden = withheld(counts, [*map(or_, small, of_few)] if of_few else small, adds_up=adds_up)
    mark = f"<{SUPPRESSED_BELOW}" if hidden == small else WITHHELD
    return [mark if is_hidden else str(count) for count, is_hidden in zip(counts, hidden, strict=True)]


def count_raw(raw: RawTable, spec: DatasetSpec) -> pl.DataFrame:
    """Counts of the tables as read.

    Returns:
        ``kind``, ``name``, ``count``: ``read`` images, groups and positives of each class (``positives``), ``excluded``
        and ``noticed`` rows by reason.
    """
    rows: list[_Row] = [("read", "images", raw.frame.height), ("read", "groups", raw.frame["group_id"].n_unique())]
    rows += [("read_positives", name, count) for name, count in _positives(raw.frame, spec).items()]
    rows += [("excluded", item.reason, item.rows) for item in raw.exclusions]
    rows += [("noticed", item.reason, item.rows) for item in raw.notices]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def count_summary(index: DatasetIndex, spec: DatasetSpec) -> pl.DataFrame:
    """The data set in figures, one per row.

    Returns:
        ``dataset``, ``kind``, ``name``, ``count`` (text), in this order: ``read`` images and groups, ``excluded`` by
        reason, ``noticed`` by reason, ``quarantined`` by reason, ``flagged`` by quality flag, ``used`` images and
        groups, ``positives`` of each class among those, as ``tell`` shows them: not where few images or groups carry
        the class, or lack it.
    """
    used = index.frame.filter(pl.col("quarantine").is_null())
    by_reason = index.frame.filter(pl.col("quarantine").is_not_null())["quarantine"].value_counts().sort("quarantine")
    flags = used["flags"].explode().drop_nulls().value_counts().sort("flags")
    rows: list[_Row] = [row for row in index.counts.iter_rows() if row[0] != "read_positives"]
    rows += [("quarantined", reason, count) for reason, count in by_reason.iter_rows()]
    rows += [("flagged", flag, count) for flag, count in flags.iter_rows()]
    rows += [("used", "images", used.height), ("used", "groups", used["group_id"].n_unique())]
    carriers = _carriers(used, spec)
    positives = {name: int(carries.sum()) for name, carries in carriers.items()}
    of_few = [_divides_off_few(used["group_id"], carries) for carries in carriers.values()]
    # Every image has one class, unless it may have several: then the classes make no total.
    told = tell(list(positives.values()), adds_up=spec.task != "multilabel", of_few=of_few)
    shown = [(spec.id, kind, name, str(count)) for kind, name, count in rows]
    shown += [(spec.id, "positives", name, text) for name, text in zip(positives, told, strict=True)]
    return pl.DataFrame(shown, schema=["dataset", "kind", "name", "count"], orient="row")


def check_expected(index: DatasetIndex, spec: DatasetSpec) -> list[str]:
    """How the tables as read differ from the counts that the catalogue expects; empty where they do not."""
    expected = {("read", "images"): spec.expected.images, ("read", "groups"): spec.expected.groups}
    expected |= {("read_positives", name): count for name, count in spec.expected.positives.items()}
    seen = {(kind, name): count for kind, name, count in index.counts.iter_rows()}
    return [
        f"{spec.id}: {seen[key]:,} {_called(*key)} read, {count:,} expected; the files are not those of the "
        "release, or not all of them."
        for key, count in expected.items()
        if count is not None and seen[key] != count
    ]


def _called(kind: str, name: str) -> str:
    return name if kind == "read" else f"positives of {name}"


def _positives(frame: pl.DataFrame, spec: DatasetSpec) -> dict[str, int]:
    return {name: int(carries.sum()) for name, carries in _carriers(frame, spec).items()}


def _carriers(frame: pl.DataFrame, spec: DatasetSpec) -> dict[str, pl.Series]:
    """Class -> which images carry it."""
    if spec.task == "multilabel":
        found = {name: frame[f"{LABEL}:{name}"] == 1 for name in spec.classes}
    else:
        found = {name: frame[LABEL] == position for position, name in enumerate(spec.classes)}
    return {name: carries.fill_null(value=False) for name, carries in found.items()}


def _divides_off_few(groups: pl.Series, carries: pl.Series) -> bool:
    """Whether a class is carried, or lacked, by a few people or images: what lacks it follows from what is used."""
    sides = [groups.filter(side) for side in (carries, ~carries)]
    return bool(carries.any()) and any(is_small(side.len()) or is_small(side.n_unique()) for side in sides)
