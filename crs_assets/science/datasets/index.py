"""The index: a data set's table with what its pixels say, each image opened once."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import polars as pl

from crs_assets.science.canonical import canonical_json, digest
from crs_assets.science.datasets.columns import SUBGROUP
from crs_assets.science.datasets.counts import count_raw
from crs_assets.science.datasets.duplicates import settle_duplicates
from crs_assets.science.datasets.errors import DatasetError, Problems
from crs_assets.science.datasets.presence import check_root, file_of, missing_files
from crs_assets.science.datasets.readers import read_table
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.datasets.tables import DatasetIndex, RawTable
from crs_assets.science.identifiers import IMAGE_EXTENSIONS
from crs_assets.science.images import (
    ImageError,
    has_burned_in_annotation,
    inspect_image,
    is_dicom,
    load_image,
    pixel_digest,
)
from crs_assets.science.images.sources import NPZ
from crs_assets.science.labels import LABEL

ProgressCallback = Callable[[int, int, float], None]
"""Called with images done, images in all, and images per second so far."""

MISSING = "missing_file"
# Images in flight per worker: enough to keep it busy, few enough that memory does not grow with the data set.
_IN_FLIGHT = 16

_DICOM = "dcm"
_PIXEL_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "height": pl.Int32,
    "width": pl.Int32,
    "pixel_digest": pl.String,
    "flags": pl.List(pl.String),
    "quarantine": pl.String,
}


class _Pixels(NamedTuple):
    height: int | None
    width: int | None
    pixel_digest: str | None
    flags: tuple[str, ...]
    quarantine: str | None


def build_index(
    raw: RawTable, root: Path, spec: DatasetSpec, *, workers: int, progress: ProgressCallback | None = None
) -> DatasetIndex:
    """Open every image once and settle exact duplicates.

    An image that cannot be used is quarantined with its reason; the others go on. The result depends neither on the
    order of the rows nor on the number of workers.

    Args:
        raw: What ``read_table`` returned.
        root: The data set's folder.
        spec: The data set.
        workers: Threads that decode; at least 1.
        progress: Told how far the work is.

    Raises:
        DatasetError: If image ids repeat (in whatever case), if more than half of the files are missing, or if no
            image can be used.
    """
    rows, _ = _checked_rows(raw, root, spec)
    frame = _with_pixels(rows, _inspect_all(rows["path"], root, spec, workers, progress), spec)
    return DatasetIndex(settle_duplicates(frame, spec), count_raw(raw, spec))


def presume_index(raw: RawTable, root: Path, spec: DatasetSpec) -> DatasetIndex:
    """The index as far as it can be told without opening an image: every file that is there counts as sound.

    Damaged images and copies are still in it, so it has at least the usable images of ``build_index``.

    Args:
        raw: What ``read_table`` returned.
        root: The data set's folder.
        spec: The data set.

    Raises:
        DatasetError: As ``build_index``.
    """
    rows, missing = _checked_rows(raw, root, spec)
    pixels = (_Pixels(None, None, None, (), MISSING if is_missing else None) for is_missing in missing)
    return DatasetIndex(_with_pixels(rows, pixels, spec), count_raw(raw, spec))


def index_digest(frame: pl.DataFrame) -> str:
    """SHA-256 of what an index says: ids, groups, labels, subgroups, splits, pixels, quarantine.

    Where files lie, sizes and flags are left out: the first does not matter, the others follow from the pixels. Equal
    on every platform and for every order of rows and columns.
    """
    rows = frame.sort("image_id")
    sha = hashlib.sha256()
    for column in sorted(filter(_is_content, rows.columns)):
        sha.update(canonical_json([column, rows[column].to_list()]).encode("utf-8") + b"\n")
    return sha.hexdigest()


def source_state(root: Path, spec: DatasetSpec, *, raw: RawTable | None = None) -> str:
    """SHA-256 of path, size and modification time of every table and image: equal as long as nothing was touched.

    No image is opened.

    Args:
        root: The data set's folder.
        spec: The data set.
        raw: Its tables, if they have been read already; else they are read.

    Raises:
        DatasetError: If the tables cannot be read.
    """
    raw = raw or read_table(root, spec)
    files = sorted({*raw.tables, *map(file_of, raw.frame["path"].to_list())})
    return digest([_file_state(root, file) for file in files])


def _is_content(column: str) -> bool:
    named = ("image_id", "group_id", LABEL, "pixel_digest", "quarantine", "split", "is_test")
    return column in named or column.startswith((f"{LABEL}:", f"{SUBGROUP}:"))


def _file_state(root: Path, file: str) -> list[str | int]:
    try:
        status = (root / file).stat()
    except OSError:
        return [file]
    return [file, status.st_size, status.st_mtime_ns]


def _checked_rows(raw: RawTable, root: Path, spec: DatasetSpec) -> tuple[pl.DataFrame, pl.Series]:
    """The rows by image id, and whether each one's file is missing; a wrong root is refused before any decoding."""
    _check_ids(raw.frame, spec)
    rows = raw.frame.sort("image_id")
    missing, problems = missing_files(rows["path"], root), Problems(spec.id)
    check_root(missing, problems)
    problems.raise_any()
    return rows, missing


def _with_pixels(rows: pl.DataFrame, pixels: Iterable[_Pixels], spec: DatasetSpec) -> pl.DataFrame:
    frame = rows.hstack(pl.DataFrame(list(pixels), schema=_PIXEL_SCHEMA, orient="row"))
    _check_any_usable(frame, spec)
    return frame


def _check_ids(frame: pl.DataFrame, spec: DatasetSpec) -> None:
    problems = []
    if repeated := frame.height - frame["image_id"].n_unique():
        problems.append(f"{repeated} image ids repeat. Keep one row per image.")
    if alike := frame["image_id"].n_unique() - frame["image_id"].str.to_lowercase().n_unique():
        problems.append(f"{alike} image ids differ from another in case only. Rename them.")
    if not frame.height:
        problems.append("the table has no rows. Check the options of the reader.")
    if problems:
        raise DatasetError(spec.id, problems)


def _check_any_usable(frame: pl.DataFrame, spec: DatasetSpec) -> None:
    if frame["quarantine"].null_count():
        return
    reasons = frame["quarantine"].value_counts().sort("quarantine").iter_rows()
    seen = ", ".join(f"{reason} {count}" for reason, count in reasons)
    raise DatasetError(spec.id, [f"none of {frame.height} images can be used ({seen}). Fetch the images again."])


def _inspect_all(
    paths: pl.Series, root: Path, spec: DatasetSpec, workers: int, progress: ProgressCallback | None
) -> Iterator[_Pixels]:
    references = paths.to_list()
    block = _IN_FLIGHT * workers
    start = perf_counter()
    with ThreadPoolExecutor(max_workers=workers) as pool:
        for first in range(0, len(references), block):
            yield from pool.map(lambda path: _inspect(path, root, spec), references[first : first + block])
            done = min(first + block, len(references))
            if progress is not None:
                progress(done, len(references), done / max(perf_counter() - start, 1e-9))


def _inspect(reference: str, root: Path, spec: DatasetSpec) -> _Pixels:
    try:
        pixels = load_image(root, reference, min_side=spec.min_side)
    except ImageError as error:
        return _Pixels(None, None, None, (), error.reason)
    height, width = pixels.shape[:2]
    flags = (*inspect_image(pixels), *_stated_flags(root, reference))
    return _Pixels(height, width, pixel_digest(pixels), flags, None)


def _stated_flags(root: Path, reference: str) -> tuple[str, ...]:
    """What a file states and its pixels do not show; only DICOM files state anything."""
    extension = reference.rpartition(".")[2].lower()
    if (extension in IMAGE_EXTENSIONS and extension != _DICOM) or reference.startswith(NPZ):
        return ()
    data = (root / reference).read_bytes()
    return ("burned_in_annotation",) if is_dicom(data) and has_burned_in_annotation(data) else ()
