"""ISIC 2020 training set: melanoma or not, with patients and a published list of duplicate images.

Rotemberg et al., Scientific Data 2021. The list holds pairs that look alike and differ in their bytes.
"""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.columns import grade_column, subgroup_columns
from crs_assets.science.datasets.duplicates import merge_groups
from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.locations import find_base, first_of, folders_named, image_paths, require_files
from crs_assets.science.datasets.options import Isic2020Options
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import Count, RawTable
from crs_assets.science.datasets.text_tables import ROW, TextTable, read_text_tables
from crs_assets.science.identifiers import image_key_column
from crs_assets.science.labels import LABEL

TABLE_NAMES = ("ISIC_2020_Training_GroundTruth_v2.csv", "ISIC_2020_Training_GroundTruth.csv", "train.csv")
IMAGE_FOLDERS = ("train", "jpeg/train", "ISIC_2020_Training_JPEG/train", "ISIC_2020_Training_JPEG", "images")
LISTED_DUPLICATES = "listed_duplicates"
CONTRADICTING = "listed_duplicate_contradicts"

_NESTED = ("*",)
_COLUMNS = ("image_name", "patient_id", "target")
_SUBGROUPS = {"age": "age_approx", "anatom_site": "anatom_site_general_challenge"}
_PAIR = ("image_name_1", "image_name_2")


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in the layout of the ISIC 2020 training set.

    The classes are one label, or two classes in the order benign, malignant. The images of a listed pair share a group
    where the list is there; a pair whose targets contradict is excluded, both images.

    Raises:
        DatasetError: With every problem of the tables.
    """
    options = Isic2020Options.model_validate(spec.reader_options)
    base = find_base(root, TABLE_NAMES, _NESTED)
    names = [first_of(base, TABLE_NAMES)]
    if options.duplicates and (base / options.duplicates).is_file():
        names.append(options.duplicates)
    paths = require_files(base, names, spec.id)
    table, *lists = read_text_tables(paths, spec.id)
    problems = Problems(spec.id)
    columns = table.require(_COLUMNS, problems)
    for pairs in lists:
        pairs.require(_PAIR, problems)
    if len(spec.classes) != (1 if spec.task == "multilabel" else 2):
        problems.add(spec.id, "expected one label, or two classes", "Correct the entry's classes.")
    problems.raise_any()
    rows = table.frame.select(
        ROW,
        pl.lit(table.name).alias(TABLE),
        image_key_column(pl.col(columns["image_name"]).str.strip_chars()).alias(KEY),
        pl.col(columns["patient_id"]).str.strip_chars().alias(GROUP),
        pl.lit(None, dtype=pl.String).alias(EXCLUDED),
    ).hstack([_target(table, columns["target"], spec, problems), *subgroup_columns(table, spec, _SUBGROUPS, problems)])
    listed = 0
    if lists:
        rows, listed = _joined(rows, lists[0], rows.columns[rows.columns.index(EXCLUDED) + 1])
    path = image_paths(rows[KEY], folders_named(base, IMAGE_FOLDERS) or [base / "train"], root, "jpg")
    notices = [Count(LISTED_DUPLICATES, listed)]
    return finish_table(rows.hstack([path]), spec, root, paths, problems, notices=notices)


def _target(table: TextTable, column: str, spec: DatasetSpec, problems: Problems) -> pl.Series:
    target = grade_column(table, column, 2, problems)
    return target.cast(pl.Int8).alias(f"{LABEL}:{spec.classes[0]}") if spec.task == "multilabel" else target


def _joined(rows: pl.DataFrame, pairs: TextTable, label: str) -> tuple[pl.DataFrame, int]:
    """Rows with the groups of listed pairs joined and contradicting pairs excluded; how many images are listed."""
    known = rows.select(KEY, pl.coalesce(GROUP, KEY).alias("group"), label)
    listed = pairs.frame.select(
        image_key_column(pl.col(pairs.find(name) or name).str.strip_chars()).alias(name) for name in _PAIR
    )
    for name in _PAIR:
        listed = listed.join(known.rename({KEY: name, "group": f"group of {name}", label: f"label of {name}"}), on=name)
    first, second = (f"group of {name}" for name in _PAIR)
    groups = [*listed[first].to_list(), *listed[second].to_list()]
    union = merge_groups(groups, listed.select(first, second).rows())
    contradicting = listed.filter(pl.col(f"label of {_PAIR[0]}") != pl.col(f"label of {_PAIR[1]}"))
    refused = [*contradicting[_PAIR[0]].to_list(), *contradicting[_PAIR[1]].to_list()]
    members = {*listed[_PAIR[0]].to_list(), *listed[_PAIR[1]].to_list()}
    own = pl.coalesce(GROUP, KEY)
    return rows.with_columns(
        pl.when(own.is_in(list(union))).then(own.replace(union)).otherwise(GROUP).alias(GROUP),
        pl.when(pl.col(KEY).is_in(refused)).then(pl.lit(CONTRADICTING)).otherwise(EXCLUDED).alias(EXCLUDED),
    ), len(members)
