"""Data sets: specifications (``spec``), one reader per layout (``readers``), the index of images (``index``)."""

from crs_assets.science.datasets.counts import check_expected, count_summary, suppress_small
from crs_assets.science.datasets.errors import DatasetError
from crs_assets.science.datasets.index import build_index, index_digest, source_state
from crs_assets.science.datasets.readers import READERS, read_table
from crs_assets.science.datasets.spec import DatasetSpec, load_dataset_spec
from crs_assets.science.datasets.tables import Count, DatasetIndex, RawTable

__all__ = [
    "READERS",
    "Count",
    "DatasetError",
    "DatasetIndex",
    "DatasetSpec",
    "RawTable",
    "build_index",
    "check_expected",
    "count_summary",
    "index_digest",
    "load_dataset_spec",
    "read_table",
    "source_state",
    "suppress_small",
]
