"""Counting a data set: what was read, left out, quarantined and used, and whether that is what was expected."""

import polars as pl

from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import DatasetIndex, RawTable
from crs_assets.science.labels import LABEL

SUPPRESSED_BELOW = 10
"""Smallest count of patients' images that a published table shows, zero apart."""

_SCHEMA = {"kind": pl.String, "name": pl.String, "count": pl.Int64}
_Row = tuple[str, str, int]


def suppress_small(count: int) -> str:
    """A count as published tables show it: ``<10`` for 1 to 9, which could point at a person."""
    return f"<{SUPPRESSED_BELOW}" if 0 < count < SUPPRESSED_BELOW else str(count)


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
        ``dataset``, ``kind``, ``name``, ``count`` (text, small cells suppressed where they count positives), in this
        order: ``read`` images and groups, ``excluded`` by reason, ``noticed`` by reason, ``quarantined`` by reason,
        ``flagged`` by quality flag, ``used`` images and groups, ``positives`` of each class among those.
    """
    used = index.frame.filter(pl.col("quarantine").is_null())
    by_reason = index.frame.filter(pl.col("quarantine").is_not_null())["quarantine"].value_counts().sort("quarantine")
    flags = used["flags"].explode().drop_nulls().value_counts().sort("flags")
    rows: list[_Row] = [row for row in index.counts.iter_rows() if row[0] != "read_positives"]
    rows += [("quarantined", reason, count) for reason, count in by_reason.iter_rows()]
    rows += [("flagged", flag, count) for flag, count in flags.iter_rows()]
    rows += [("used", "images", used.height), ("used", "groups", used["group_id"].n_unique())]
    rows += [("positives", name, count) for name, count in _positives(used, spec).items()]
    shown = [
        (spec.id, kind, name, suppress_small(count) if kind == "positives" else str(count))
        for kind, name, count in rows
    ]
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
    if spec.task == "multilabel":
        return {name: int((frame[f"{LABEL}:{name}"] == 1).sum()) for name in spec.classes}
    return {name: int((frame[LABEL] == position).sum()) for position, name in enumerate(spec.classes)}
