"""NIH ChestX-ray14: findings of a frontal view in one cell, mined from its report.

Wang et al., CVPR 2017, arXiv:1705.02315. The table of 2020 corrects ages and patients of the one of 2017.
"""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import AGE_RANGE, normalised, number, subgroup_columns
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import find_base, first_of, folders_named, image_paths, require_files
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec, normalise_name
from crs_assets.science.datasets.tables import Count, RawTable
from crs_assets.science.datasets.text_tables import ROW, TextTable, read_text_tables
from crs_assets.science.identifiers import image_key_column
from crs_assets.science.labels import LABEL

TABLE_NAMES = ("Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv")
IMAGE_FOLDERS = ("images_[0-9][0-9][0-9]/images", "images_[0-9][0-9][0-9]", "images")
NO_FINDING = "No Finding"
AGE_OUT_OF_RANGE = f"age_above_{AGE_RANGE[1]}"

_NESTED = ("*",)
_IMAGE, _FINDINGS, _PATIENT, _AGE = "Image Index", "Finding Labels", "Patient ID", "Patient Age"
_SUBGROUPS = {"age": _AGE, "sex": "Patient Gender", "view": "View Position"}
_PATIENT_DIGITS = 8


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in the layout of ChestX-ray14: the table of 2020 where both are there, images in parts or in one.

    A finding that a cell does not name is a negative. The first release writes ages as ``058Y``, in months or days for
    infants; the one of 2017 has ages above 400. Those above 120 are unknown, and counted.

    Raises:
        DatasetError: With every problem of the table.
    """
    base = find_base(root, [*TABLE_NAMES, *(f"{name}.gz" for name in TABLE_NAMES)], _NESTED)
    paths = require_files(base, [first_of(base, TABLE_NAMES)], spec.id)
    (table,) = read_text_tables(paths, spec.id)
    problems = Problems(spec.id)
    columns = table.require([_IMAGE, _FINDINGS, _PATIENT], problems)
    problems.raise_any()
    table, too_old = _with_ages_in_years(table)
    rows = table.frame.select(
        ROW,
        pl.lit(table.name).alias(TABLE),
        image_key_column(pl.col(columns[_IMAGE]).str.strip_chars()).alias(KEY),
        pl.col(columns[_PATIENT]).str.strip_chars().str.zfill(_PATIENT_DIGITS).alias(GROUP),
        pl.lit(None, dtype=pl.String).alias(EXCLUDED),
    ).hstack(
        [
            *_findings(table, columns[_FINDINGS], spec, problems),
            *subgroup_columns(table, spec, _SUBGROUPS, problems),
        ]
    )
    path = image_paths(rows[KEY], folders_named(base, IMAGE_FOLDERS) or [base / "images"], root, "png")
    notices = [Count(AGE_OUT_OF_RANGE, too_old)]
    return finish_table(rows.hstack([path]), spec, root, paths, problems, notices=notices)


def _findings(table: TextTable, column: str, spec: DatasetSpec, problems: Problems) -> list[pl.Series]:
    named = normalised(pl.col(column)).str.split("|").list.eval(pl.element().str.strip_chars())
    known = [normalise_name(name) for name in (*spec.classes, NO_FINDING)]
    unknown = named.list.eval(~pl.element().is_in(known)).list.any().fill_null(value=True)
    expected = f"column {column!r}: expected {NO_FINDING!r} or some of {list(spec.classes)}, with '|' between them"
    problems.add(table.name, expected, "Correct the cells, or the entry's classes.", table.frame.filter(unknown)[ROW])
    cells = table.frame.select(
        named.list.contains(normalise_name(name)).cast(pl.Int8).alias(f"{LABEL}:{name}") for name in spec.classes
    )
    return cells.get_columns()


def _with_ages_in_years(table: TextTable) -> tuple[TextTable, int]:
    """The table with ages as plain numbers of years, and how many of them are no age."""
    column = table.find(_AGE)
    if column is None:
        return table, 0
    text = pl.col(column).str.strip_chars().str.to_uppercase()
    years = (
        pl.when(text.str.contains(r"^\d+[MD]$"))
        .then(pl.lit("0"))
        .when(text.str.contains(r"^\d+Y$"))
        .then(text.str.strip_suffix("Y"))
        .otherwise(pl.col(column))
    )
    frame = table.frame.with_columns(years.alias(column))
    too_old = (number(pl.col(column)) > AGE_RANGE[1]).fill_null(value=False)
    count = frame.filter(too_old).height
    return TextTable(table.name, frame.with_columns(pl.when(~too_old).then(pl.col(column)).alias(column))), count
