"""MIMIC-CXR-JPG 2.0.0 and 2.1.0: labels per study, images per DICOM id; AP and PA views only.

Johnson et al., Scientific Data 2019, arXiv:1901.07042. The tables are called 2.0.0 in both releases.
"""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import multilabel_columns, subgroup_columns
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import find_base, relative, require_files
from crs_assets.science.datasets.options import MimicCxrJpgOptions
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, SPLIT, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import RawTable
from crs_assets.science.datasets.text_tables import ROW, TextTable, read_text_tables

TABLES = tuple(f"mimic-cxr-2.0.0-{part}.csv" for part in ("metadata", "split", "chexpert"))
SPLITS = ("train", "validate", "test")

NOT_SELECTED = "split_not_selected"
VIEW_UNKNOWN = "view_unknown"
NOT_FRONTAL = "view_not_frontal"
NO_LABEL_ROW = "study_without_labels"

_NESTED = ("*", "*/*")
_STUDY = ("subject_id", "study_id")
_SUBGROUPS = {"view": "ViewPosition"}
_CHECK = "Fetch the three tables of one release again."


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in the layout of MIMIC-CXR-JPG, tables gzip-compressed or not.

    Metadata and split are joined on ``dicom_id``, labels on ``(subject_id, study_id)``. A row is excluded for the
    first that holds: its split is not selected, its ViewPosition is blank, is not AP or PA, its study has no labels.
    A study whose labels are all blank stays, with nothing observed.

    Raises:
        DatasetError: With every problem of the tables.
    """
    options = MimicCxrJpgOptions.model_validate(spec.reader_options)
    base = find_base(root, [name for table in TABLES[:1] for name in (f"{table}.gz", table)], _NESTED)
    paths = require_files(base, TABLES, spec.id)
    metadata, split, chexpert = read_text_tables(paths, spec.id)
    problems = Problems(spec.id)
    for table, names in ((metadata, ["dicom_id", "ViewPosition"]), (split, ["dicom_id", *_STUDY, "split"])):
        table.require(names, problems)
    columns = chexpert.require([*_STUDY, *spec.classes], problems)
    problems.raise_any()
    labels = _labels(chexpert, {name: columns[name] for name in spec.classes}, problems)
    images = _images(metadata, _official_splits(split, problems), spec, problems)
    rows = images.join(labels, on=_STUDY, how="left", maintain_order="left")
    rows = _located(_excluded(rows, options), base, root)
    if spec.test_split != "official":
        rows = rows.drop(SPLIT)
    return finish_table(rows, spec, root, paths, problems)


def _labels(table: TextTable, columns: dict[str, str], problems: Problems) -> pl.DataFrame:
    study = _ids(table, _STUDY, problems)
    _refuse_repeats(table, study, _STUDY, problems)
    labels = study.hstack(multilabel_columns(table, columns, problems)).with_columns(
        pl.lit(value=True).alias("labelled")
    )
    return labels.unique(_STUDY, keep="first")


def _official_splits(table: TextTable, problems: Problems) -> pl.DataFrame:
    ids = _ids(table, _STUDY, problems).hstack(_named(table, ("dicom_id", "split")))
    _refuse_repeats(table, ids, ("dicom_id",), problems)
    unknown = ~pl.col("split").is_in(SPLITS).fill_null(value=False)
    expected = f"column 'split': expected one of {list(SPLITS)}"
    problems.add(
        table.name, expected, "Use the table of the release.", table.frame.filter(ids.select(unknown).to_series())[ROW]
    )
    divided = ids.filter(pl.col("split").n_unique().over("subject_id") > 1)
    if divided.height:
        count = divided["subject_id"].n_unique()
        problems.add(table.name, f"{count} subjects are in more than one split", "Use the table of the release.")
    return ids.unique("dicom_id", keep="first")


def _images(metadata: TextTable, splits: pl.DataFrame, spec: DatasetSpec, problems: Problems) -> pl.DataFrame:
    images = _named(metadata, ("dicom_id", "ViewPosition")).hstack([metadata.frame[ROW]])
    images = images.hstack(subgroup_columns(metadata, spec, _SUBGROUPS, problems))
    joined = images.join(splits, on="dicom_id", how="left", maintain_order="left")
    unmatched = joined.filter(pl.col("dicom_id").is_not_null() & pl.col("split").is_null())
    problems.add(metadata.name, "images have no row in the split table", _CHECK, unmatched[ROW])
    for name in _STUDY:
        if (column := metadata.find(name)) is not None:
            own = metadata.frame.select(ROW, pl.col(column).str.strip_chars().alias("own"))
            differing = joined.join(own, on=ROW, how="inner").filter(pl.col("own") != pl.col(name))
            problems.add(metadata.name, f"column {column!r} differs from the split table", _CHECK, differing[ROW])
    return joined.with_columns(pl.lit(metadata.name).alias(TABLE))


def _ids(table: TextTable, names: tuple[str, ...], problems: Problems) -> pl.DataFrame:
    ids = _named(table, names)
    for name in names:
        wrong = ~ids[name].str.contains(r"^\d+$").fill_null(value=False)
        problems.add(
            table.name, f"column {name!r}: expected digits only", "Export ids as text.", table.frame.filter(wrong)[ROW]
        )
    return ids


def _named(table: TextTable, names: tuple[str, ...]) -> pl.DataFrame:
    return table.frame.select(pl.col(table.find(name) or name).str.strip_chars().alias(name) for name in names)


def _refuse_repeats(table: TextTable, frame: pl.DataFrame, names: tuple[str, ...], problems: Problems) -> None:
    repeated = frame.select(pl.struct(names).is_duplicated()).to_series()
    problems.add(
        table.name, f"{' with '.join(names)} repeats", "Keep one row of each.", table.frame.filter(repeated)[ROW]
    )


def _excluded(rows: pl.DataFrame, options: MimicCxrJpgOptions) -> pl.DataFrame:
    selected = SPLITS if options.split == "all" else options.split.split("+")
    view = pl.col("ViewPosition").str.to_uppercase()
    reason = (
        pl.when(~pl.col("split").is_in(selected))
        .then(pl.lit(NOT_SELECTED))
        .when(view.is_null())
        .then(pl.lit(VIEW_UNKNOWN))
        .when(~view.is_in(["AP", "PA"]))
        .then(pl.lit(NOT_FRONTAL))
        .when(pl.col("labelled").is_null())
        .then(pl.lit(NO_LABEL_ROW))
    )
    return rows.with_columns(reason.alias(EXCLUDED)).drop("labelled", "ViewPosition")


def _located(rows: pl.DataFrame, base: Path, root: Path) -> pl.DataFrame:
    subject, study = pl.col("subject_id"), pl.col("study_id")
    path = pl.concat_str(
        pl.lit(f"{relative(base / 'files', root)}p"), subject.str.slice(0, 2), pl.lit("/p"), subject,
        pl.lit("/s"), study, pl.lit("/"), pl.col("dicom_id"), pl.lit(".jpg"),
    )  # fmt: skip
    return rows.with_columns(path.alias("path"), pl.col("dicom_id").alias(KEY), subject.alias(GROUP)).drop(
        "dicom_id", *_STUDY
    )
