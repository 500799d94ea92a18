"""Small trees in the layouts of the data sets: real files, a few pixels each."""

import csv
import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crs_assets.science.datasets import load_dataset_spec
from crs_assets.science.datasets.spec import DatasetSpec

CATALOG = Path(__file__).parents[3] / "crs_assets" / "catalog" / "datasets"


@pytest.fixture(scope="session")
def catalogue():
    """A shipped specification by id, with fields replaced."""

    def load(name, **changes):
        spec = load_dataset_spec(CATALOG / f"{name}.toml")
        return DatasetSpec.model_validate(spec.model_dump() | {"expected": {}} | changes)

    return load


@pytest.fixture(scope="session")
def write_table():
    """Write rows of dicts as CSV, gzip-compressed where the name says so."""

    def write(path: Path, rows, header=None):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, header or list(rows[0]), restval="")
        writer.writeheader()
        writer.writerows(rows)
        data = text.getvalue().encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)

    return write


@pytest.fixture(scope="session")
def write_image():
    """Write a grey image whose pixels depend on ``seed`` alone; PNG and TIFF keep them exactly."""

    def write(path: Path, seed=0, side=40):
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (side, side), dtype=np.uint8)
        Image.fromarray(pixels).save(path, quality=90)

    return write
