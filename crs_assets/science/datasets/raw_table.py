"""The end of every reader: canonical ids, and the checks that no layout is exempt from."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import SUBGROUP
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.presence import check_root, missing_files
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import Count, RawTable
from crs_assets.science.datasets.text_tables import ROW
from crs_assets.science.identifiers import group_id_column, image_id_column, image_key_column, unusable_key_column
from crs_assets.science.labels import LABEL, UNCERTAIN, label_columns

TABLE = "(table)"
KEY = "(key)"
GROUP = "(group)"
EXCLUDED = "(excluded)"
DECLARED = "declared"
SPLIT = "split"
OFFICIAL_TEST = "test"

UNGROUPED = "without_group"
NO_LABEL_OBSERVED = "no_label_observed"


def finish_table(
    rows: pl.DataFrame,
    spec: DatasetSpec,
    root: Path,
    tables: list[Path],
    problems: Problems,
    *,
    notices: Sequence[Count] = (),
) -> RawTable:
    """Turn a reader's rows into a raw table.

    Args:
        rows: ``TABLE``, ``ROW``, ``KEY``, ``GROUP`` (null: the image is its own group), ``EXCLUDED`` (reason, null
            where kept), ``path`` (null where what the table says is unusable), label columns, subgroup columns,
            ``declared:<fact>`` of files, and further columns to keep, such as ``split`` (the official one).
        spec: The data set.
        root: The data set's folder.
        tables: The tables that were read.
        problems: What the reader recorded; raised here together with what is found.
        notices: What the reader noticed.

    Raises:
        DatasetError: With every problem of the tables, and the image files that are missing beside them.
    """
    rows = rows.with_columns(image_key_column(pl.col(KEY)).alias(KEY))
    _check_keys(rows, problems)
    kept = rows.filter(pl.col(EXCLUDED).is_null())
    if not kept.height:
        problems.add(spec.id, f"no rows are left of {rows.height}", "Check the tables and the options of the reader.")
    if spec.test_split == "official":
        _check_official_test(kept, spec, problems)
    if problems:
        tell_missing_files(kept.filter(pl.col(KEY).is_not_null()), root, problems)
    problems.raise_any()
    excluded = rows.filter(pl.col(EXCLUDED).is_not_null()).group_by(EXCLUDED).len().sort(EXCLUDED)
    return RawTable(
        frame=_canonical(kept, spec),
        exclusions=tuple(Count(reason, count) for reason, count in excluded.iter_rows()),
        notices=(*_notices(kept, spec), *(notice for notice in notices if notice.rows)),
        tables=tuple(path.relative_to(root).as_posix() for path in tables),
        origin=kept.select(pl.col(TABLE).alias("table"), pl.col(ROW).alias("row"), pl.col(_declared(kept))),
    )


def tell_missing_files(rows: pl.DataFrame, root: Path, problems: Problems) -> None:
    """Tell of files that an index would miss, so that they are fetched while the tables are mended.

    Args:
        rows: ``TABLE``, ``ROW`` and ``path``; rows without a path are passed over.
        root: The data set's folder.
        problems: Where they are recorded: a wrong root, or the rows without a file.
    """
    named = rows.filter(pl.col("path").is_not_null())
    missing = missing_files(named["path"], root)
    if check_root(missing, problems):
        for (table,), found in named.filter(missing).group_by([TABLE], maintain_order=True):
            problems.add(str(table), "image files are missing", "Put them there, or they are left out.", found[ROW])


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
        "paths repeat": ~pl.col(KEY).is_duplicated() & pl.col("path").is_not_null() & pl.col("path").is_duplicated(),
    }
    cures = {"image ids repeat": "Keep one row per image.", "paths repeat": "Give every image its own file."}
    # All duplicates are found on the whole, then reported per table.
    flags = rows.select(TABLE, ROW, *(check.fill_null(value=False).alias(what) for what, check in checks.items()))
    for what in checks:
        for (table,), found in flags.filter(pl.col(what)).group_by([TABLE], maintain_order=True):
            problems.add(str(table), what, cures.get(what, "Correct the cells."), found[ROW])


def _check_official_test(kept: pl.DataFrame, spec: DatasetSpec, problems: Problems) -> None:
    if SPLIT not in kept.columns:
        what = f"test_split is 'official', and what {spec.reader!r} reads names no split"
        problems.add(spec.id, what, "Add a column 'split' to the table, or leave test_split out.")
    elif not (kept[SPLIT] == OFFICIAL_TEST).any():
        what = f"test_split is 'official', and no image that is kept is in the split {OFFICIAL_TEST!r}"
        problems.add(spec.id, what, "Read the test set's table too, or leave test_split out.")


def _canonical(kept: pl.DataFrame, spec: DatasetSpec) -> pl.DataFrame:
    ids = kept.select(
        image_id_column(spec.id, pl.col(KEY)).alias("image_id"),
        group_id_column(spec.id, pl.coalesce(GROUP, KEY)).alias("group_id"),
        "path",
    )
    subgroups = [f"{SUBGROUP}:{name}" for name in spec.subgroups]
    own = (TABLE, ROW, KEY, GROUP, EXCLUDED, "path", *_declared(kept))
    further = [name for name in kept.columns if name not in own]
    order = [*label_columns(spec), *subgroups]
    labels = kept.select(label_columns(spec)).hstack(kept.select(_derived_columns(spec)))
    return ids.hstack(labels).hstack(kept.select(*subgroups, *(name for name in further if name not in order)))


def _declared(rows: pl.DataFrame) -> list[str]:
    return [name for name in rows.columns if name.startswith(f"{DECLARED}:")]


def _derived_columns(spec: DatasetSpec) -> list[pl.Expr]:
    """``label:<name>`` of each derived label: 1 where a member is, else uncertain where one is, else as observed."""
    columns: list[pl.Expr] = []
    for name, members in spec.derived.items():
        if spec.task == "multilabel":
            cells = [pl.col(f"{LABEL}:{member}") for member in members]
            observed = pl.any_horizontal(pl.col(column).is_not_null() for column in label_columns(spec))
            value: pl.Expr = (
                pl.when(pl.any_horizontal((cell == 1).fill_null(value=False) for cell in cells))
                .then(1)
                .when(pl.any_horizontal((cell == UNCERTAIN).fill_null(value=False) for cell in cells))
                .then(UNCERTAIN)
                .when(observed)
                .then(0)
            )
        else:
            value = pl.col(LABEL).is_in([spec.classes.index(member) for member in members])
        columns.append(value.cast(pl.Int8).alias(f"{LABEL}:{name}"))
    return columns


def _notices(kept: pl.DataFrame, spec: DatasetSpec) -> tuple[Count, ...]:
    counts = {UNGROUPED: kept[GROUP].null_count() if spec.group != "image" else 0}
    if spec.task == "multilabel":
        blank = pl.all_horizontal(pl.col(column).is_null() for column in label_columns(spec))
        counts[NO_LABEL_OBSERVED] = kept.filter(blank).height
    for name in spec.subgroups:
        if kept[f"{SUBGROUP}:{name}"].null_count() == kept.height:
            counts[f"subgroup_unknown_throughout:{name}"] = kept.height
    return tuple(Count(reason, count) for reason, count in counts.items() if count)
