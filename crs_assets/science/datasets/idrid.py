"""IDRiD, part B: grades of diabetic retinopathy and of the risk of macular oedema.

Porwal et al., Data 2018. Names of images restart in the test set, so the set is part of an image's id.
"""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import grade_column, subgroup_columns
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import find_base, image_paths, require_files, undouble
from crs_assets.science.datasets.options import IdridOptions
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, SPLIT, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import RawTable
from crs_assets.science.datasets.text_tables import ROW, TextTable, read_text_tables
from crs_assets.science.identifiers import image_key_column

TABLES = {
    "train": "2. Groundtruths/a. IDRiD_Disease Grading_Training Labels.csv",
    "test": "2. Groundtruths/b. IDRiD_Disease Grading_Testing Labels.csv",
}
IMAGE_FOLDERS = {"train": "1. Original Images/a. Training Set", "test": "1. Original Images/b. Testing Set"}
NOT_SELECTED = "split_not_selected"

_NESTED = ("*", "*/*")
_IMAGE, _GRADE = "Image name", "Retinopathy grade"
_SUBGROUPS = {"macular_oedema": "Risk of macular edema"}


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in the layout of IDRiD's part B, training and test set pooled; every image is its own group.

    Which set an image is of becomes the column ``split`` where the entry's ``test_split`` is official.

    Raises:
        DatasetError: With every problem of the tables.
    """
    options = IdridOptions.model_validate(spec.reader_options)
    base = find_base(root, tuple(TABLES.values()), _NESTED)
    paths = require_files(base, tuple(TABLES.values()), spec.id)
    tables = read_text_tables(paths, spec.id)
    problems = Problems(spec.id)
    columns = [table.require([_IMAGE, _GRADE], problems) for table in tables]
    problems.raise_any()
    parts = []
    for split, table, named in zip(TABLES, tables, columns, strict=True):
        part = _rows(table, named, spec, problems)
        path = image_paths(part[KEY], undouble(base / IMAGE_FOLDERS[split]), root, "jpg")
        excluded = None if options.split in ("all", split) else NOT_SELECTED
        parts.append(
            part.hstack([path]).with_columns(
                (pl.lit(f"{split}/") + pl.col(KEY)).alias(KEY),
                pl.lit(excluded, dtype=pl.String).alias(EXCLUDED),
                *([pl.lit(split).alias(SPLIT)] if spec.test_split == "official" else []),
            )
        )
    return finish_table(pl.concat(parts), spec, root, paths, problems)


def _rows(table: TextTable, columns: dict[str, str], spec: DatasetSpec, problems: Problems) -> pl.DataFrame:
    return table.frame.select(
        ROW,
        pl.lit(table.name).alias(TABLE),
        image_key_column(pl.col(columns[_IMAGE]).str.strip_chars()).alias(KEY),
        pl.lit(None, dtype=pl.String).alias(GROUP),
    ).hstack(
        [
            grade_column(table, columns[_GRADE], len(spec.classes), problems),
            *subgroup_columns(table, spec, _SUBGROUPS, problems),
        ]
    )
