"""CheXpert: small, full and batch-wise releases, CheXlocalize's naming; frontal views only.

Irvin et al., AAAI 2019, arXiv:1901.07031; Saporta et al., Nature Machine Intelligence 2022 (CheXlocalize).
"""

import os
from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import multilabel_columns, subgroup_columns
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import find_base, relative, require_files
from crs_assets.science.datasets.options import ChexpertOptions
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, SPLIT, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import RawTable
from crs_assets.science.datasets.text_tables import ROW, TextTable, read_text_tables

LATERAL = "lateral_view"

_NESTED = ("CheXpert*", "CheXpert*/CheXpert*", "chexpertchestxrays*", "chexpertchestxrays*/CheXpert-v1.0*")
_BATCHES = "CheXpert-v1.0 batch *"
# Any prefix, the folder of the split where the release has one, then what identifies the image in every release.
_PATH = (
    r"^(?:.*?/)??(?:(?P<split>train|valid|val|test)/)?"
    r"(?P<key>(?P<patient>patient\d+)/study\d+/view\d+_(?P<view>frontal|lateral))\.(?P<extension>\w+)$"
)
_OTHER_NAME = {"valid": "val", "val": "valid"}
_SUBGROUPS = {"view": "AP/PA"}


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in the layout of CheXpert.

    Labels are matched by column name. Lateral views are excluded and counted; where a table has no column
    ``Frontal/Lateral`` the file name decides. An age of 0 means unknown.

    Raises:
        DatasetError: With every problem of the tables.
    """
    options = ChexpertOptions.model_validate(spec.reader_options)
    base = find_base(root, options.tables, _NESTED)
    paths = require_files(base, options.tables, spec.id)
    problems = Problems(spec.id)
    parts = [_rows(table, spec, problems) for table in read_text_tables(paths, spec.id)]
    if any(part.width == 0 for part in parts):
        problems.raise_any()
    rows = pl.concat(parts)
    rows = _located(rows, base, root)
    if spec.test_split != "official":
        rows = rows.drop(SPLIT)
    return finish_table(rows, spec, root, paths, problems)


def _rows(table: TextTable, spec: DatasetSpec, problems: Problems) -> pl.DataFrame:
    columns = table.require([*spec.classes, "Path"], problems)
    if len(columns) <= len(spec.classes):
        return pl.DataFrame()
    path = columns.pop("Path")
    parts = table.frame.select(
        ROW,
        pl.lit(table.name).alias(TABLE),
        pl.col(path).str.replace_all(r"\\", "/").str.extract_groups(_PATH).alias("parts"),
    ).unnest("parts")
    problems.add(
        table.name,
        f"column {path!r}: expected [...]/patientNNNNN/studyN/viewN_frontal.jpg or _lateral.jpg",
        "Correct the cells.",
        parts.filter(pl.col("key").is_null())[ROW],
    )
    return parts.rename({"key": KEY, "patient": GROUP}).hstack(
        [
            _excluded(table, parts["view"], problems),
            *multilabel_columns(table, columns, problems),
            *subgroup_columns(table, spec, _SUBGROUPS, problems, zero_age=False),
        ]
    )


def _excluded(table: TextTable, view_of_name: pl.Series, problems: Problems) -> pl.Series:
    column = table.find("Frontal/Lateral")
    view = view_of_name if column is None else table.frame[column].str.strip_chars().str.to_lowercase()
    known = view.is_in(["frontal", "lateral"]).fill_null(value=False)
    if column is not None:
        expected = f"column {column!r}: expected Frontal or Lateral"
        problems.add(table.name, expected, "Correct the cells.", table.frame.filter(~known)[ROW])
    return pl.select(pl.when(view == "lateral").then(pl.lit(LATERAL)).alias(EXCLUDED)).to_series()


def _located(rows: pl.DataFrame, base: Path, root: Path) -> pl.DataFrame:
    """Add ``path``: the folder that this copy keeps a row's image in, its key and its extension."""
    by_split = pl.col("split").replace_strict(
        {split: _split_folder(base, split, root) for split in ("train", "valid", "val", "test")},
        default=relative(base, root),
        return_dtype=pl.String,
    )
    rows = rows.join(_batches(base, root), on=GROUP, how="left", maintain_order="left")
    folder = pl.coalesce(pl.when(pl.col("split") == "train").then("batch"), by_split)
    path = pl.concat_str(folder, pl.col(KEY), pl.lit("."), pl.col("extension")).alias("path")
    return rows.with_columns(path).drop("view", "extension", "batch")


def _split_folder(base: Path, split: str, root: Path) -> str:
    names = [split, _OTHER_NAME.get(split, split)]
    name = next((name for name in names if (base / name).is_dir()), split)
    return relative(base / name, root)


def _batches(base: Path, root: Path) -> pl.DataFrame:
    """Folder of each training patient where the release comes in batches, which have no folder ``train``."""
    folders: dict[str, str] = {}
    if not (base / "train").is_dir() and root.resolve() != base.resolve():
        for batch in sorted(base.parent.glob(_BATCHES)):
            if batch.is_dir() and batch != base:
                folders |= {entry.name: relative(batch, root) for entry in os.scandir(batch)}
    return pl.DataFrame(
        {GROUP: list(folders), "batch": list(folders.values())}, schema={GROUP: pl.String, "batch": pl.String}
    )
