"""APTOS 2019 training set: one grade of diabetic retinopathy per fundus photograph.

Asia Pacific Tele-Ophthalmology Society, APTOS 2019 Blindness Detection. Neither patient nor eye is published.
"""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import grade_column, subgroup_columns
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import find_base, folders_named, image_paths, require_files
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import RawTable
from crs_assets.science.datasets.text_tables import ROW, TextTable, read_text_tables
from crs_assets.science.identifiers import image_key_column

# The published table, or those that copies divide it into; the published test.csv has no grades.
TABLES = (("train.csv",), ("train_1.csv", "valid.csv", "test.csv"), ("labels/trainLabels19.csv",))
# The published folder, those of the copies, and folders of classes (their names are not read: the table says more).
IMAGE_FOLDERS = ("train_images", "val_images", "test_images", "resized train 19", "colored_images/*")

_NESTED = ("*",)
_COLUMNS = ("id_code", "diagnosis")


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in the layout of APTOS 2019, or of a public copy that divides, resizes or re-encodes it.

    An image is its own group, unless the table has a column ``patient_id``: two eyes of one patient belong together.
    Copies whose pixels were filtered (``gaussian_filtered_images``) are another data set, and their folder is not read.

    Raises:
        DatasetError: With every problem of the tables.
    """
    base = find_base(root, [names[0] for names in TABLES], _NESTED)
    names = next(names for names in TABLES if (base / names[0]).is_file())
    paths = require_files(base, names, spec.id)
    problems = Problems(spec.id)
    tables = read_text_tables(paths, spec.id)
    columns = [table.require(_COLUMNS, problems) for table in tables]
    problems.raise_any()
    rows = pl.concat(_rows(table, named, spec, problems) for table, named in zip(tables, columns, strict=True))
    path = image_paths(rows[KEY], folders_named(base, IMAGE_FOLDERS) or [base / IMAGE_FOLDERS[0]], root, "png")
    return finish_table(rows.hstack([path]), spec, root, paths, problems)


def _rows(table: TextTable, columns: dict[str, str], spec: DatasetSpec, problems: Problems) -> pl.DataFrame:
    patient = table.find("patient_id")
    return table.frame.select(
        ROW,
        pl.lit(table.name).alias(TABLE),
        image_key_column(pl.col(columns["id_code"])).alias(KEY),
        (pl.col(patient) if patient else pl.lit(None, dtype=pl.String)).alias(GROUP),
        pl.lit(None, dtype=pl.String).alias(EXCLUDED),
    ).hstack(
        [
            grade_column(table, columns["diagnosis"], len(spec.classes), problems),
            *subgroup_columns(table, spec, {}, problems),
        ]
    )
