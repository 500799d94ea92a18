"""ISIC 2019 training set: one-hot ground truth, lesions from the metadata.

Tschandl et al., Scientific Data 2018 (HAM10000); Codella et al., ISBI 2018 (MSK); Combalia et al., 2019,
arXiv:1908.02288 (BCN20000). No patient is known; one lesion is photographed up to 31 times.
"""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import number, one_hot_column, subgroup_columns
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import find_base, image_paths, require_files, undouble
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import RawTable
from crs_assets.science.datasets.text_tables import ROW, TextTable, read_text_tables
from crs_assets.science.identifiers import image_key_column

TABLES = ("ISIC_2019_Training_GroundTruth.csv", "ISIC_2019_Training_Metadata.csv")
IMAGE_FOLDER = "ISIC_2019_Training_Input"
UNKNOWN_CLASS = "UNK"
UNKNOWN_EXCLUDED = "unknown_class"
CENTRE = "centre"

_NESTED = ("*",)
_SUBGROUPS = {"age": "age_approx", "anatom_site": "anatom_site_general"}
_IMAGE = "image"


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in the layout of the ISIC 2019 training set.

    The suffix ``_downsampled`` is part of an image's id. Images of the class ``UNK``, which is no class of the data
    set, are excluded and counted; an image without a lesion is its own group. The subgroup ``centre`` (BCN, HAM, MSK)
    is read off the lesion and image ids.

    Raises:
        DatasetError: With every problem of the tables.
    """
    base = find_base(root, TABLES, _NESTED)
    paths = require_files(base, TABLES, spec.id)
    truth, metadata = read_text_tables(paths, spec.id)
    problems = Problems(spec.id)
    columns = truth.require([_IMAGE, *spec.classes], problems)
    metadata.require([_IMAGE, "lesion_id"], problems)
    problems.raise_any()
    unknown = truth.find(UNKNOWN_CLASS)
    one_hot = {name: columns[name] for name in spec.classes} | ({UNKNOWN_CLASS: unknown} if unknown else {})
    rows = truth.frame.select(
        ROW,
        pl.lit(truth.name).alias(TABLE),
        image_key_column(pl.col(columns[_IMAGE])).alias(KEY),
        pl.when(number(pl.col(unknown)) == 1).then(pl.lit(UNKNOWN_EXCLUDED)).otherwise(None).alias(EXCLUDED)
        if unknown
        else pl.lit(None, dtype=pl.String).alias(EXCLUDED),
    ).hstack([one_hot_column(truth, one_hot, problems)])
    rows = _with_metadata(rows, metadata, spec, problems)
    path = image_paths(rows[KEY], undouble(base / IMAGE_FOLDER), root, "jpg")
    return finish_table(rows.hstack([path]), spec, root, paths, problems)


def _with_metadata(rows: pl.DataFrame, metadata: TextTable, spec: DatasetSpec, problems: Problems) -> pl.DataFrame:
    image, lesion = (pl.col(metadata.find(name) or name) for name in (_IMAGE, "lesion_id"))
    key = image_key_column(image)
    described = metadata.frame.select(key.alias(KEY), lesion.alias(GROUP)).hstack(
        subgroup_columns(metadata, spec, _SUBGROUPS, problems)
    )
    repeated = described[KEY].is_duplicated()
    problems.add(metadata.name, "images repeat", "Keep one row per image.", metadata.frame.filter(repeated)[ROW])
    problems.add(
        str(rows[TABLE][0]),
        f"images have no row in {metadata.name}",
        "Without their lesions they could be on two sides of a split; use the metadata of the same release.",
        rows.join(described, on=KEY, how="anti")[ROW],
    )
    joined = rows.join(described.filter(~repeated), on=KEY, how="left", maintain_order="left")
    return joined.with_columns(_centre().alias(f"sub:{CENTRE}")) if CENTRE in spec.subgroups else joined


def _centre() -> pl.Expr:
    """Prefix of the lesion id; only MSK's images were downsampled."""
    downsampled = pl.when(pl.col(KEY).str.ends_with("_downsampled")).then(pl.lit("MSK"))
    return pl.coalesce(pl.col(GROUP).str.extract(r"^(BCN|HAM|MSK)"), downsampled)
