"""A table of one's own: CSV or Parquet, one row per image; what the classes mean is in the data set's TOML entry.

Columns: ``image_id``, ``path``, ``patient_id`` or ``group_id``; ``label`` (a class name) or ``label:<class>``
(multilabel: 1, 0, -1, blank; else one-hot); optionally ``split`` (train, val, cal, test), ``view``, ``site``,
``exclude``, ``sha256``, ``bytes``, ``width``, ``height`` and one column per subgroup, ``sub:<name>`` or ``<name>``.
Further columns are ignored. A table that calls them otherwise is read as it is: ``reader_options`` says what is what.
"""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import (
    class_column,
    multilabel_columns,
    one_hot_column,
    subgroup_columns,
)
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import relative, require_files
from crs_assets.science.datasets.options import ManifestOptions
from crs_assets.science.datasets.raw_table import (
    DECLARED,
    EXCLUDED,
    GROUP,
    KEY,
    TABLE,
    finish_table,
    tell_missing_files,
)
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import RawTable
from crs_assets.science.datasets.text_tables import ROW, TextTable, read_text_tables
from crs_assets.science.images.sources import NPZ
from crs_assets.science.labels import LABEL

SPLITS = ("train", "val", "cal", "test")
MARKED = "excluded_in_manifest"
VIEW_NOT_SELECTED = "view_not_selected"
SITE_NOT_SELECTED = "site_not_selected"
AT_ANOTHER_SITE = "group_at_another_site"
WITHOUT_LABEL = "without_label"
DECLARABLE = ("sha256", "bytes", "width", "height")

# Control characters, absolute, a drive, a backslash, a step upwards, or white space at an end.
_UNSAFE_PATH = r"[\x00-\x1f]|^/|^[A-Za-z]:|\\|(?:^|/)\.\.(?:/|$)|^\s|\s$"
_FLAGS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a manifest.

    Paths are relative to the manifest. A row without patient or group is its own group and counted in the notices. Of a
    target, groups with images at a site that is not selected are left out: its source may have been fitted on them.

    Raises:
        DatasetError: With every problem of the table.
    """
    options = ManifestOptions.model_validate(spec.reader_options)
    (path,) = paths = require_files(root, [options.file], spec.id)
    (table,) = read_text_tables(paths, spec.id)
    problems = Problems(spec.id)
    table = _called_as_here(table, options, problems)
    columns = table.require(["image_id", "path"], problems)
    label_columns = _label_columns(table, spec, options, problems)
    group = _group_column(table, problems)
    place = [pl.col(ROW), pl.lit(table.name).alias(TABLE)]
    if "path" in columns:
        place.append(_path(pl.col(columns["path"]), relative(path.parent, root)).alias("path"))
        if problems:
            tell_missing_files(table.frame.select(place), root, problems)
    problems.raise_any()
    rows = table.frame.select(
        *place,
        pl.col(columns["image_id"]).alias(KEY),
        pl.col(group).alias(GROUP),
        _excluded(table, spec, options, label_columns, group, problems),
        *(pl.col(column).alias(f"{DECLARED}:{fact}") for fact in DECLARABLE if (column := table.find(fact))),
        *([pl.col(column).alias("split")] if (column := table.find("split")) else []),
    ).hstack(
        [
            *_labels(table, spec, options, label_columns, problems),
            *subgroup_columns(table, spec, _subgroups(table, spec), problems),
        ]
    )
    for text in (columns["image_id"], group):
        _refuse_decimals(table, text, problems)
    _check_paths(table, columns["path"], rows, problems)
    _check_splits(table, rows, problems)
    if options.shared_file == "refuse":
        _check_contents(table, rows, problems)
    return finish_table(rows, spec, root, paths, problems)


def absent_subgroups(root: Path, spec: DatasetSpec) -> dict[str, str]:
    """Subgroups of an entry that its manifest has no column for; such a one is unknown for every image.

    Returns:
        Subgroup -> the table, the columns looked for, those that it has, and the cure.

    Raises:
        DatasetError: If the table cannot be read.
    """
    options = ManifestOptions.model_validate(spec.reader_options)
    (table,) = read_text_tables(require_files(root, [options.file], spec.id), spec.id)
    named = _called_as_here(table, options, Problems(spec.id))
    columns = [column for column in table.frame.columns if column != ROW]
    return {
        name: (
            f"{table.name}: subgroups names {name!r}, and there is no column 'sub:{name}' or {name!r}; the table has "
            f"{columns}. Nothing can be told of it: add the column, say which one it is (reader_options.columns = "
            f'{{ {name} = "its column" }}), or take {name!r} out of subgroups.'
        )
        for name in spec.subgroups
        if named.find(f"sub:{name}") is None and named.find(name) is None
    }


def _called_as_here(table: TextTable, options: ManifestOptions, problems: Problems) -> TextTable:
    """The table with the columns of ``options.columns`` under the names that a manifest has for them."""
    found = table.require(list(options.columns.values()), problems)
    return TextTable(
        table.name,
        table.frame.with_columns(
            pl.col(found[column]).alias(name) for name, column in options.columns.items() if column in found
        ),
    )


def _label_columns(table: TextTable, spec: DatasetSpec, options: ManifestOptions, problems: Problems) -> dict[str, str]:
    """Column of each class; where class names are in one column, that column under ``label``."""
    if spec.task != "multilabel" and (single := table.find(LABEL)) is not None:
        return {LABEL: single}
    found = table.require([f"{options.label_prefix}{name}" for name in spec.classes], problems)
    return {name.removeprefix(options.label_prefix): column for name, column in found.items()}


def _labels(
    table: TextTable, spec: DatasetSpec, options: ManifestOptions, columns: dict[str, str], problems: Problems
) -> list[pl.Series]:
    if list(columns) == [LABEL]:
        required = options.blank_label == "refuse"
        column = columns[LABEL]
        return [class_column(table, column, spec.classes, problems, names=options.names, blank_is_wrong=required)]
    if spec.task == "multilabel":
        return multilabel_columns(table, columns, problems).get_columns()
    return [one_hot_column(table, columns, problems)]


def _group_column(table: TextTable, problems: Problems) -> str:
    column = table.find("group_id") or table.find("patient_id")
    if column is None:
        cure = "Add one: without it, images of one patient could be on two sides of a split."
        problems.add(table.name, "neither a column 'patient_id' nor 'group_id'", cure)
    return column or ""


def _subgroups(table: TextTable, spec: DatasetSpec) -> dict[str, str]:
    return {name: f"sub:{name}" for name in spec.subgroups if table.find(f"sub:{name}")}


def _path(cells: pl.Expr, prefix: str) -> pl.Expr:
    """The path from the root, null where the table's own is not a safe one."""
    file = cells.str.strip_prefix(NPZ)
    archive = pl.lit(NPZ + prefix) + file
    path = pl.when(cells.str.starts_with(NPZ)).then(archive).otherwise(pl.lit(prefix) + cells)
    return pl.when(~file.str.contains(_UNSAFE_PATH)).then(path)


def _excluded(
    table: TextTable,
    spec: DatasetSpec,
    options: ManifestOptions,
    labels: dict[str, str],
    group: str,
    problems: Problems,
) -> pl.Expr:
    """The reason that a row is left out for, null where it is kept."""
    reason = pl.lit(None, dtype=pl.String)
    if options.blank_label == "exclude":
        blank = pl.all_horizontal(pl.col(column).is_null() for column in labels.values())
        reason = pl.when(blank).then(pl.lit(WITHOUT_LABEL))
    if options.views:
        seen = _one_of(table, ("view",), options.views, "views", problems)
        reason = pl.when(~seen).then(pl.lit(VIEW_NOT_SELECTED)).otherwise(reason)
    if options.sites:
        here = _one_of(table, ("site", "sub:site"), options.sites, "sites", problems)
        if spec.role == "target":
            elsewhere = pl.col(group).is_not_null() & (~here).any().over(group)
            reason = pl.when(elsewhere).then(pl.lit(AT_ANOTHER_SITE)).otherwise(reason)
        reason = pl.when(~here).then(pl.lit(SITE_NOT_SELECTED)).otherwise(reason)
    if (column := table.find("exclude")) is not None:
        flag = (
            pl.col(column)
            .str.strip_chars()
            .str.to_lowercase()
            .replace_strict(_FLAGS, default=None, return_dtype=pl.Boolean)
        )
        wrong = table.frame.filter(pl.col(column).is_not_null() & flag.is_null())[ROW]
        problems.add(table.name, f"column {column!r}: expected true, false or blank", "Correct the cells.", wrong)
        reason = pl.when(flag).then(pl.lit(MARKED)).otherwise(reason)
    return reason.alias(EXCLUDED)


def _one_of(
    table: TextTable, names: tuple[str, ...], values: tuple[str, ...], option: str, problems: Problems
) -> pl.Expr:
    """Where a column, the first of these that the table has, holds one of the values."""
    column = next((found for name in names if (found := table.find(name)) is not None), None)
    if column is None:
        cure = "Add it, or unset the option."
        problems.add(table.name, f"reader_options.{option} is set and there is no column {names[0]!r}", cure)
        return pl.lit(value=True)
    return pl.col(column).str.strip_chars().is_in(values).fill_null(value=False)


def _refuse_decimals(table: TextTable, column: str, problems: Problems) -> None:
    """Ids that all end in ``.0`` were numbers once, and may have lost leading zeros and digits."""
    ids = table.frame[column].drop_nulls()
    if ids.len() and ids.str.contains(r"^\d+\.0$").all():
        cure = "Export them as text from where they still are text."
        problems.add(table.name, f"column {column!r}: ids are written as decimal numbers", cure)


def _check_paths(table: TextTable, column: str, rows: pl.DataFrame, problems: Problems) -> None:
    problems.add(
        table.name,
        f"column {column!r}: expected a relative path with '/', without '..' and without white space at its ends",
        "Write paths relative to the manifest.",
        rows.filter(pl.col("path").is_null())[ROW],
    )


def _check_splits(table: TextTable, rows: pl.DataFrame, problems: Problems) -> None:
    if "split" not in rows.columns:
        return
    wrong = ~pl.col("split").is_in(SPLITS).fill_null(value=False)
    expected = f"column 'split': expected one of {list(SPLITS)} in every row"
    problems.add(table.name, expected, "Fill it for all rows or leave the column out.", rows.filter(wrong)[ROW])
    divided = rows.filter(pl.col(GROUP).is_not_null() & (pl.col("split").n_unique().over(GROUP) > 1))
    problems.add(table.name, "groups are in more than one split", "Keep each group in one split.", divided[ROW])


def _check_contents(table: TextTable, rows: pl.DataFrame, problems: Problems) -> None:
    column = table.find("sha256")
    if column is None:
        return
    content = rows.hstack([table.frame[column].str.strip_chars().str.to_lowercase().alias("content")])
    shared = content.filter(pl.col("content").is_not_null() & (pl.coalesce(GROUP, KEY).n_unique().over("content") > 1))
    cure = "One file belongs to one patient; give both rows one group or remove one."
    problems.add(table.name, f"column {column!r}: one file under different groups", cure, shared[ROW])
