"""The end of every reader: canonical ids, and the checks that no layout is exempt from."""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import SUBGROUP
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import Count, RawTable
from crs_assets.science.datasets.text_tables import ROW
from crs_assets.science.identifiers import group_id_column, image_id_column, image_key_column, unusable_key_column
from crs_assets.science.labels import label_columns

TABLE = "(table)"
KEY = "(key)"
GROUP = "(group)"
EXCLUDED = "(excluded)"

UNGROUPED = "without_group"
NO_LABEL_OBSERVED = "no_label_observed"


def finish_table(rows: pl.DataFrame, spec: DatasetSpec, root: Path, tables: list[Path], problems: Problems) -> RawTable:
    """Turn a reader's rows into a raw table.

    Args:
        rows: ``TABLE``, ``ROW``, ``KEY``, ``GROUP`` (null: the image is its own group), ``EXCLUDED`` (reason, null
            where kept), ``path``, label columns, subgroup columns, and further columns to keep.
        spec: The data set.
        root: The data set's folder.
        tables: The tables that were read.
        problems: What the reader recorded; raised here together with what is found.

    Raises:
        DatasetError: With every problem of the tables.
    """
    rows = rows.with_columns(image_key_column(pl.col(KEY)).alias(KEY))
    _check_keys(rows, problems)
    problems.raise_any()
    kept = rows.filter(pl.col(EXCLUDED).is_null())
    if not kept.height:
        problems.add(spec.id, f"no rows are left of {rows.height}", "Check the tables and the options of the reader.")
    problems.raise_any()
    excluded = rows.filter(pl.col(EXCLUDED).is_not_null()).group_by(EXCLUDED).len().sort(EXCLUDED)
    return RawTable(
        frame=_canonical(kept, spec),
        exclusions=tuple(Count(reason, count) for reason, count in excluded.iter_rows()),
        notices=_notices(kept, spec),
        tables=tuple(path.relative_to(root).as_posix() for path in tables),
    )


def _check_keys(rows: pl.DataFrame, problems: Problems) -> None:
    unusable = unusable_key_column(pl.col(KEY))
    checks = {
        "image ids are empty, or hold white space at an end, control characters, or path parts like '..'": unusable,
        "groups have white space at an end or control characters": pl.col(GROUP).str.contains(
            r"[\x00-\x1f\x7f]|^\s|\s$"
        ),
        "image ids repeat": ~unusable & pl.col(KEY).is_duplicated(),
        "image ids differ in case only": ~unusable
        & pl.col(KEY).str.to_lowercase().is_duplicated()
        & ~pl.col(KEY).is_duplicated(),
        "paths repeat": ~pl.col(KEY).is_duplicated() & pl.col("path").is_duplicated(),
    }
    cures = {"image ids repeat": "Keep one row per image.", "paths repeat": "Give every image its own file."}
    # All duplicates are found on the whole, then reported per table.
    flags = rows.select(TABLE, ROW, *(check.fill_null(value=False).alias(what) for what, check in checks.items()))
    for what in checks:
        for (table,), found in flags.filter(pl.col(what)).group_by([TABLE], maintain_order=True):
            problems.add(str(table), what, cures.get(what, "Correct the cells."), found[ROW])


def _canonical(kept: pl.DataFrame, spec: DatasetSpec) -> pl.DataFrame:
    ids = kept.select(
        image_id_column(spec.id, pl.col(KEY)).alias("image_id"),
        group_id_column(spec.id, pl.coalesce(GROUP, KEY)).alias("group_id"),
        "path",
    )
    subgroups = [f"{SUBGROUP}:{name}" for name in spec.subgroups]
    further = [name for name in kept.columns if name not in (TABLE, ROW, KEY, GROUP, EXCLUDED, "path")]
    order = [*label_columns(spec), *subgroups]
    return ids.hstack(kept.select(*order, *(name for name in further if name not in order)))


def _notices(kept: pl.DataFrame, spec: DatasetSpec) -> tuple[Count, ...]:
    counts = {UNGROUPED: kept[GROUP].null_count() if spec.group != "image" else 0}
    if spec.task == "multilabel":
        blank = pl.all_horizontal(pl.col(column).is_null() for column in label_columns(spec))
        counts[NO_LABEL_OBSERVED] = kept.filter(blank).height
    for name in spec.subgroups:
        if kept[f"{SUBGROUP}:{name}"].null_count() == kept.height:
            counts[f"subgroup_unknown_throughout:{name}"] = kept.height
    return tuple(Count(reason, count) for reason, count in counts.items() if count)
