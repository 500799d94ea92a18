"""The registry of layouts: a reader for every name that a specification may give."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from crs_assets.science.datasets import (
    aptos2019,
    chexpert,
    folders,
    ham10000,
    idrid,
    isic2019,
    isic2020,
    manifest,
    medmnist,
    mimic_cxr_jpg,
    nih_chest_xray14,
    pad_ufes_20,
)
from crs_assets.science.datasets.errors import DatasetError
from crs_assets.science.datasets.options import ReaderType
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import RawTable

READERS: Final[Mapping[ReaderType, Callable[[Path, DatasetSpec], RawTable]]] = {
    "aptos2019": aptos2019.read,
    "chexpert": chexpert.read,
    "folders": folders.read,
    "ham10000": ham10000.read,
    "idrid": idrid.read,
    "isic2019": isic2019.read,
    "isic2020": isic2020.read,
    "manifest": manifest.read,
    "medmnist": medmnist.read,
    "mimic_cxr_jpg": mimic_cxr_jpg.read,
    "nih_chest_xray14": nih_chest_xray14.read,
    "pad_ufes_20": pad_ufes_20.read,
}
"""Layout name -> reader."""


def read_table(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a data set's tables; no image is opened.

    Args:
        root: The data set's folder.
        spec: The data set.

    Raises:
        DatasetError: With every problem found, by table, column and row number.
    """
    if not root.is_dir():
        raise DatasetError(spec.id, ["the data set's folder does not exist. Name the folder that holds its tables."])
    return READERS[spec.reader](root, spec)
