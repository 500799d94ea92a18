"""HAM10000: dermatoscopic images of pigmented lesions, several of one lesion.

Tschandl, Rosendahl, Kittler, Scientific Data 2018. How a diagnosis was made (``dx_type``) gives malignancy away, so it
is never read.
"""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import class_column, subgroup_columns
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import find_base, first_of, folders_named, image_paths, require_files
from crs_assets.science.datasets.options import ClassNameOptions
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import RawTable
from crs_assets.science.datasets.text_tables import ROW, read_text_tables
from crs_assets.science.identifiers import image_key_column

# The archive of record leaves the extension out.
TABLE_NAMES = ("HAM10000_metadata.csv", "HAM10000_metadata")
IMAGE_FOLDERS = ("HAM10000_images_part_[12]", "HAM10000_images*", "images")

_NESTED = ("*",)
_COLUMNS = ("image_id", "lesion_id", "dx")
_SUBGROUPS = {"anatom_site": "localization"}


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in the layout of HAM10000: one table, images in two parts or in one folder.

    The table's diagnoses are classes whatever their case; ``reader_options.names`` maps those that are called otherwise
    (``akiec`` is AK in ISIC's later sets).

    Raises:
        DatasetError: With every problem of the table.
    """
    options = ClassNameOptions.model_validate(spec.reader_options)
    base = find_base(root, TABLE_NAMES, _NESTED)
    paths = require_files(base, [first_of(base, TABLE_NAMES)], spec.id)
    (table,) = read_text_tables(paths, spec.id)
    problems = Problems(spec.id)
    columns = table.require(_COLUMNS, problems)
    problems.raise_any()
    rows = table.frame.select(
        ROW,
        pl.lit(table.name).alias(TABLE),
        image_key_column(pl.col(columns["image_id"]).str.strip_chars()).alias(KEY),
        pl.col(columns["lesion_id"]).str.strip_chars().alias(GROUP),
        pl.lit(None, dtype=pl.String).alias(EXCLUDED),
    ).hstack(
        [
            class_column(table, columns["dx"], spec.classes, problems, names=options.names, ignore_case=True),
            *subgroup_columns(table, spec, _SUBGROUPS, problems),
        ]
    )
    path = image_paths(rows[KEY], folders_named(base, IMAGE_FOLDERS) or [base / "images"], root, "jpg")
    return finish_table(rows.hstack([path]), spec, root, paths, problems)
