"""MedMNIST v2 and MedMNIST+: all images of a set in one npz archive, 28 to 224 pixels a side.

Yang et al., Scientific Data 2023. Neither patients nor names are in the archives, so no image can be grouped with
another of the same person: what is measured on them is measured without patient grouping.
"""

import hashlib
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science.datasets.columns import SUBGROUP
from crs_assets.science.datasets.errors import Problems, refusal
from crs_assets.science.datasets.options import MedmnistOptions
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, SPLIT, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import Count, RawTable
from crs_assets.science.datasets.text_tables import ROW
from crs_assets.science.labels import LABEL

SPLITS = ("train", "val", "test")
NO_GROUP_KEY = "no_group_key"

_FETCH = "Fetch the release's file again, or unset md5 in an entry of your own with its own id."
_BLOCK = 1 << 20


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read one archive: arrays ``<split>_images`` and ``<split>_labels``, labels (n, 1), or (n, L) where multilabel.

    Images are numbered within their split. The official splits are pooled; an entry whose ``test_split`` is official
    has them in the column ``split``. Every image is its own group, and counted as such.

    Raises:
        DatasetError: If the archive is not the release that the entry names, or is not of this layout.
    """
    options = MedmnistOptions.model_validate(spec.reader_options)
    path = root / options.file
    if not path.is_file():
        raise refusal(options.file, "the archive is missing", "Put it into the data set's folder.")
    labels, images = _arrays(path)
    if options.md5:
        _check_release(path, options, images)
    problems = Problems(spec.id)
    parts = [_rows(path.name, split, labels[split], images[split], spec, problems) for split in SPLITS]
    problems.raise_any()
    rows = pl.concat(parts)
    notices = [Count(NO_GROUP_KEY, rows.height)]
    return finish_table(rows, spec, root, [path], problems, notices=notices)


def _arrays(path: Path) -> tuple[dict[str, NDArray[np.integer[Any]]], dict[str, int]]:
    """Labels of each split, and how many images it has; no image is decompressed."""
    try:
        with zipfile.ZipFile(path) as members, np.load(path, allow_pickle=False) as archive:
            wanted = [f"{split}_{kind}" for split in SPLITS for kind in ("images", "labels")]
            if missing := [name for name in wanted if name not in archive.files]:
                raise refusal(path.name, f"arrays missing: {missing}; it has {sorted(archive.files)}", _FETCH)
            labels = {split: archive[f"{split}_labels"] for split in SPLITS}
            return labels, {split: _length(members, f"{split}_images.npy") for split in SPLITS}
    except (OSError, EOFError, zipfile.BadZipFile) as error:
        raise refusal(path.name, f"not a readable npz archive ({type(error).__name__})", "Fetch it again.") from None


def _length(members: zipfile.ZipFile, name: str) -> int:
    with members.open(name) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, _ = read_header(file)
    return int(shape[0])


def _check_release(path: Path, options: MedmnistOptions, images: dict[str, int]) -> None:
    status = path.stat()
    seen = _md5(str(path), status.st_mtime_ns, status.st_size)
    if seen == options.md5:
        return
    holds = f"{path.name} holds {_counts(images)} images"
    released = f", the release {_counts(options.images)}" if options.images else ""
    raise refusal(
        path.name,
        f"MD5 {seen}, expected {options.md5}: not the file of the release; {holds} ({' / '.join(SPLITS)}){released}",
        _FETCH,
    )


def _counts(images: Mapping[Any, int]) -> str:
    return " / ".join(f"{images.get(split, 0):,}" for split in SPLITS)


# Whether an archive is the release is asked whenever its state is, and hashing gigabytes takes seconds.
@lru_cache(maxsize=16)
def _md5(path: str, _modified_ns: int, _size: int) -> str:
    md5 = hashlib.md5(usedforsecurity=False)
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            md5.update(block)
    return md5.hexdigest()


def _rows(
    file: str,
    split: str,
    labels: NDArray[np.integer[Any]],
    images: int,
    spec: DatasetSpec,
    problems: Problems,
) -> pl.DataFrame:
    name, columns = f"{file}: {split}_labels", len(spec.classes) if spec.task == "multilabel" else 1
    cells = labels.reshape(len(labels), -1)
    if cells.shape != (images, columns) or not np.issubdtype(cells.dtype, np.integer):
        problems.add(
            name,
            f"{labels.dtype} of shape {labels.shape}, expected integers ({images}, {columns})",
            "Correct the entry's task and classes.",
        )
        return pl.DataFrame()
    top = 1 if spec.task == "multilabel" else len(spec.classes) - 1
    outside = ((cells < 0) | (cells > top)).any(axis=1)
    problems.add(name, f"expected values from 0 to {top}", "Correct the entry's classes.", np.flatnonzero(outside) + 1)
    if spec.task == "multilabel":
        label_columns = {f"{LABEL}:{c}": cells[:, at].astype(np.int8) for at, c in enumerate(spec.classes)}
    else:
        label_columns = {LABEL: cells[:, 0].astype(np.int16)}
    unknown = pl.Series([None] * images, dtype=pl.String)
    return pl.DataFrame(
        {
            ROW: np.arange(1, images + 1),
            TABLE: [name] * images,
            KEY: [f"{split}/{index}" for index in range(images)],
            GROUP: unknown,
            EXCLUDED: unknown,
            "path": [f"npz:{file}#{split}_images/{index}" for index in range(images)],
            **label_columns,
            **{f"{SUBGROUP}:{name}": unknown for name in spec.subgroups},
            **({SPLIT: [split] * images} if spec.test_split == "official" else {}),
        }
    )
