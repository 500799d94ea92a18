"""Bytes of the files of a phantom: images and tables, the same on every repetition."""

import csv
import gzip
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from crs_assets.science.phantoms.canvas import ByteImage

JPEG_QUALITY = 90


class File(NamedTuple):
    """One file: path relative to the root, with forward slashes, and content."""

    path: str
    content: bytes


Files = Iterator[File]


def jpeg_bytes(image: ByteImage) -> bytes:
    """Baseline JPEG, 4:2:0, without metadata."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=JPEG_QUALITY, subsampling="4:2:0")
    return buffer.getvalue()


def png_bytes(image: ByteImage) -> bytes:
    """PNG at the fastest compression that still compresses."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """A comma-separated table in UTF-8; None is an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def gzip_bytes(content: bytes) -> bytes:
    """Gzip without the time of writing."""
    return gzip.compress(content, mtime=0)


def apportion(total: int, weights: Sequence[float]) -> npt.NDArray[np.int64]:
    """Whole numbers with the given sum, as proportional to the weights as largest remainders make them."""
    exact = total * np.asarray(weights, dtype=float) / sum(weights)
    counts = np.floor(exact).astype(np.int64)
    largest = np.argsort(counts - exact, kind="stable")[: total - int(counts.sum())]
    counts[largest] += 1
    return counts
