"""APTOS 2019 training set: one grade of diabetic retinopathy per fundus photograph.

Asia Pacific Tele-Ophthalmology Society, APTOS 2019 Blindness Detection. Neither patient nor eye is published.
"""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import grade_column, subgroup_columns
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import find_base, image_paths, require_files, undouble
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import RawTable
from crs_assets.science.datasets.text_tables import ROW, read_text_tables
from crs_assets.science.identifiers import image_key_column

TABLE_NAME = "train.csv"
IMAGE_FOLDER = "train_images"

_NESTED = ("*",)


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in the layout of APTOS 2019: ``train.csv`` and ``train_images``, PNG or a copy in another format.

    An image is its own group, unless the table has a column ``patient_id``: two eyes of one patient belong together.

    Raises:
        DatasetError: With every problem of the table.
    """
    base = find_base(root, [TABLE_NAME], _NESTED)
    paths = require_files(base, [TABLE_NAME], spec.id)
    (table,) = read_text_tables(paths, spec.id)
    problems = Problems(spec.id)
    columns = table.require(["id_code", "diagnosis"], problems)
    problems.raise_any()
    patient = table.find("patient_id")
    rows = table.frame.select(
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
    path = image_paths(rows[KEY], undouble(base / IMAGE_FOLDER), root, "png")
    return finish_table(rows.hstack([path]), spec, root, paths, problems)
