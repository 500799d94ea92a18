"""Data sets: specifications (``spec``), one reader per layout (``readers``), the index of images (``index``)."""

from crs_assets.science.datasets.check import DatasetCheck, check_dataset, render_check
from crs_assets.science.datasets.counts import check_expected, count_summary, suppress_small
from crs_assets.science.datasets.errors import DatasetError
from crs_assets.science.datasets.fetching import fetch_dataset
from crs_assets.science.datasets.index import build_index, index_digest, source_state
from crs_assets.science.datasets.near_duplicates import near_duplicates
from crs_assets.science.datasets.readers import READERS, read_table
from crs_assets.science.datasets.spec import DatasetSpec, load_dataset_spec
from crs_assets.science.datasets.tables import Count, DatasetIndex, RawTable

__all__ = [
    "READERS",
    "Count",
    "DatasetCheck",
    "DatasetError",
    "DatasetIndex",
    "DatasetSpec",
    "RawTable",
    "build_index",
    "check_dataset",
    "check_expected",
    "count_summary",
    "fetch_dataset",
    "index_digest",
    "load_dataset_spec",
    "near_duplicates",
    "read_table",
    "render_check",
    "source_state",
    "suppress_small",
]
