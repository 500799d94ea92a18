"""Images that look alike under other bytes: re-encoded, resized or cropped copies, which no content hash finds.

A perceptual hash proposes pairs, and the correlation of their pixels confirms them: of the pairs that the hash alone
flags among chest radiographs, most are different people. Fundus photographs all look alike to both, so nothing is
reported for them. What is found is a warning, never a decision: nobody's image is dropped because it resembles another.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.fft import dctn

from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.images import load_image
from crs_assets.science.images.resize import resize_area

SPECIALTIES = ("chest", "skin")
MAX_DISTANCE = 4
"""Largest Hamming distance of two 64-bit hashes that are compared by pixels."""
MIN_CORRELATION = 0.99
"""Smallest Pearson correlation of two 64 x 64 grey pictures that confirms a pair."""
SIDE = 64

_HASH_SIDE = 32
_HASH_BITS = 64
_LOW_FREQUENCIES = 8
# Two hashes within MAX_DISTANCE bits agree on at least one of MAX_DISTANCE + 1 bands.
_BANDS = MAX_DISTANCE + 1
_BLOCK = 2048
_SCHEMA = {
    "image_a": pl.String,
    "image_b": pl.String,
    "same_group": pl.Boolean,
    "distance": pl.Int64,
    "correlation": pl.Float64,
    "confirmed": pl.Boolean,
}


def near_duplicates(index: pl.DataFrame, root: Path, spec: DatasetSpec, *, workers: int = 1) -> pl.DataFrame:
    """Pairs of usable images that look alike and differ in their pixels.

    Args:
        index: A data set's index.
        root: The data set's folder.
        spec: The data set.
        workers: Threads that decode.

    Returns:
        One row per pair that the hash proposes, ``image_a`` before ``image_b``, sorted: ``same_group``, ``distance``
        (bits), ``correlation`` in [-1, 1], ``confirmed``. Images below 64 pixels a side are not compared.

    Raises:
        ValueError: For a specialty in which the method does not work.
    """
    if spec.specialty not in SPECIALTIES:
        raise ValueError(
            f"{spec.id}: near-duplicates are told for {list(SPECIALTIES)} only; {spec.specialty} images resemble each "
            "other too much. Rely on exact duplicates there."
        )
    large = pl.min_horizontal("height", "width") >= SIDE
    rows = index.filter(pl.col("quarantine").is_null() & large).sort("image_id")
    if rows.height < 2:
        return pl.DataFrame(schema=_SCHEMA)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        pictures = np.stack(list(pool.map(lambda path: _picture(root, path), rows["path"])))
    hashes = perceptual_hashes(pictures)
    pairs = np.array(sorted(_candidates(hashes)), dtype=np.int64).reshape(-1, 2)
    digests, groups, ids = (rows[name].to_numpy() for name in ("pixel_digest", "group_id", "image_id"))
    first, second = pairs[digests[pairs[:, 0]] != digests[pairs[:, 1]]].T
    correlation = _correlation(pictures, first, second)
    return pl.DataFrame(
        {
            "image_a": ids[first],
            "image_b": ids[second],
            "same_group": groups[first] == groups[second],
            "distance": np.bitwise_count(hashes[first] ^ hashes[second]).astype(np.int64),
            "correlation": correlation,
            "confirmed": correlation >= MIN_CORRELATION,
        },
        schema=_SCHEMA,
    )


def perceptual_hashes(pictures: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """64-bit hashes of grey pictures: which low frequencies of the cosine transform are above their median [1]_.

    Args:
        pictures: (n, 64, 64).

    Returns:
        (n,); the bit of each of the 8 x 8 lowest frequencies, row by row, the first being the highest bit.

    References:
        .. [1] Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions", 2010.
    """
    factor = SIDE // _HASH_SIDE
    means = pictures.reshape(-1, _HASH_SIDE, factor, _HASH_SIDE, factor).mean(axis=(2, 4))
    low = dctn(means, axes=(1, 2))[:, :_LOW_FREQUENCIES, :_LOW_FREQUENCIES].reshape(len(pictures), -1)
    bits = low > np.median(low[:, 1:], axis=1, keepdims=True)
    return np.packbits(bits, axis=1).view(">u8").astype(np.uint64).ravel()


def _picture(root: Path, reference: str) -> NDArray[np.uint8]:
    pixels = load_image(root, reference)
    grey = pixels if pixels.ndim == 2 else np.rint(pixels @ np.array([0.299, 0.587, 0.114])).astype(np.uint8)
    return resize_area(grey, SIDE, SIDE)


def _candidates(hashes: NDArray[np.uint64]) -> set[tuple[int, int]]:
    """Pairs (a < b) of positions whose hashes differ in at most MAX_DISTANCE bits."""
    found: set[tuple[int, int]] = set()
    edges = np.linspace(0, _HASH_BITS, _BANDS + 1).astype(int)
    for start, end in pairwise(edges):
        band = (hashes >> np.uint64(start)) & np.uint64((1 << int(end - start)) - 1)
        order = np.argsort(band, kind="stable")
        borders = np.flatnonzero(np.diff(band[order])) + 1
        for bucket in np.split(order, borders):
            found.update(_close(hashes, bucket))
    return found


def _close(hashes: NDArray[np.uint64], bucket: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    for start in range(0, len(bucket), _BLOCK):
        block = bucket[start : start + _BLOCK]
        distance = np.bitwise_count(hashes[block, None] ^ hashes[None, bucket])
        rows, columns = np.nonzero(distance <= MAX_DISTANCE)
        first, second = block[rows], bucket[columns]
        keep = first < second
        yield from zip(first[keep].tolist(), second[keep].tolist(), strict=True)


def _correlation(
    pictures: NDArray[np.uint8], first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Pearson correlation of the pixels of each pair; 0 where a picture is flat."""
    values = np.zeros(len(first))
    for start in range(0, len(first), _BLOCK):
        part = slice(start, start + _BLOCK)
        a, b = (pictures[at[part]].reshape(len(first[part]), -1).astype(np.float64) for at in (first, second))
        a, b = a - a.mean(axis=1, keepdims=True), b - b.mean(axis=1, keepdims=True)
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        values[part] = np.divide((a * b).sum(axis=1), norms, out=np.zeros(len(a)), where=norms > 0)
    return values
