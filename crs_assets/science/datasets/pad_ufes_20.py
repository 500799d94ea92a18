"""PAD-UFES-20: photographs of skin lesions by telephone, with the patient's skin type.

Pacheco et al., Data in Brief 2020. Whether a lesion was biopsied (``biopsed``) gives malignancy away, so it is never
read.
"""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import class_column, number, subgroup_columns
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import find_base, folders_named, image_paths, require_files
from crs_assets.science.datasets.options import ClassNameOptions
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import RawTable
from crs_assets.science.datasets.text_tables import ROW, TextTable, read_text_tables
from crs_assets.science.identifiers import image_key_column

TABLE_NAME = "metadata.csv"
IMAGE_FOLDERS = ("images/imgs_part_[123]", "imgs_part_[123]", "images")
SKIN_TYPES = 6

_NESTED = ("*",)
_COLUMNS = ("img_id", "patient_id", "diagnostic")
_SKIN_TYPE = "fitspatrick"  # the table's spelling
_SUBGROUPS = {"sex": "gender", "skin_type": _SKIN_TYPE, "anatom_site": "region"}


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in the layout of PAD-UFES-20: one table, images in three parts or in one folder.

    The subgroup ``skin_type`` is Fitzpatrick's, ``1`` to ``6``, unknown where nobody recorded it.

    Raises:
        DatasetError: With every problem of the table.
    """
    options = ClassNameOptions.model_validate(spec.reader_options)
    base = find_base(root, [TABLE_NAME], _NESTED)
    paths = require_files(base, [TABLE_NAME], spec.id)
    (table,) = read_text_tables(paths, spec.id)
    problems = Problems(spec.id)
    columns = table.require(_COLUMNS, problems)
    problems.raise_any()
    table = _with_skin_type(table, problems)
    rows = table.frame.select(
        ROW,
        pl.lit(table.name).alias(TABLE),
        image_key_column(pl.col(columns["img_id"]).str.strip_chars()).alias(KEY),
        pl.col(columns["patient_id"]).str.strip_chars().alias(GROUP),
        pl.lit(None, dtype=pl.String).alias(EXCLUDED),
    ).hstack(
        [
            class_column(table, columns["diagnostic"], spec.classes, problems, names=options.names, ignore_case=True),
            *subgroup_columns(table, spec, _SUBGROUPS, problems),
        ]
    )
    path = image_paths(rows[KEY], folders_named(base, IMAGE_FOLDERS) or [base / "images"], root, "png")
    return finish_table(rows.hstack([path]), spec, root, paths, problems)


def _with_skin_type(table: TextTable, problems: Problems) -> TextTable:
    """The table with skin types as whole numbers; exports write them as ``2.0``."""
    column = table.find(_SKIN_TYPE)
    if column is None:
        return table
    value = number(pl.col(column))
    allowed = pl.col(column).is_null() | value.is_in([float(kind) for kind in range(1, SKIN_TYPES + 1)])
    wrong = table.frame.filter(~allowed.fill_null(value=False))[ROW]
    problems.add(table.name, f"column {column!r}: expected 1 to {SKIN_TYPES} or blank", "Correct the cells.", wrong)
    return TextTable(
        table.name, table.frame.with_columns(value.cast(pl.Int64, strict=False).cast(pl.String).alias(column))
    )
