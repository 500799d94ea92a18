"""Images x encoder -> chunks of features, in a fixed order, in constant memory, resumable at chunk borders."""

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.encoders.errors import EncoderMemoryError
from crs_assets.science.protocol import CLEAN

Image = NDArray[np.uint8]
Features = NDArray[np.float32]
Loader = Callable[[int], Sequence[Image]]
Progress = Callable[[int, int, float], None]


class Encoder(Protocol):
    """Anything that turns (B, S, S, 3) uint8 into (B, d) float32."""

    def encode(self, batch: Any) -> NDArray[np.float32]:
        """Features of a batch."""
        ...


class ExtractionError(RuntimeError):
    """A row whose image or features cannot be used; the message names the row of the index, never a path.

    Attributes:
        row: Position in the index.
    """

    def __init__(self, row: int, problem: str) -> None:
        self.row = row
        super().__init__(f"row {row}: {problem}")


@dataclass(frozen=True)
class FeatureChunk:
    """Consecutive features; image-major, so an image's conditions lie together.

    Attributes:
        index: Number of the chunk, from 0.
        ids: (n,) image id of each feature vector.
        conditions: (n,) condition of each feature vector.
        features: (n, d) float32.
    """

    index: int
    ids: tuple[str, ...]
    conditions: tuple[str, ...]
    features: NDArray[np.float32]


def chunk_count(images: int, *, batch_size: int, chunk_batches: int) -> int:
    """Chunks that ``extract`` yields for so many feature vectors (index rows times conditions)."""
    return math.ceil(images / (batch_size * chunk_batches))


def extract(
    ids: Sequence[str],
    load: Loader,
    encoder: Encoder,
    *,
    batch_size: int,
    chunk_batches: int,
    conditions: Sequence[str] = (CLEAN,),
    start_chunk: int = 0,
    workers: int = 1,
    encoders: int = 1,
    encoder_setup: Callable[[], None] | None = None,
    progress: Progress | None = None,
) -> Iterator[FeatureChunk]:
    """Encode every image of an index under every condition.

    Batches are cut from the sequence (row 0, condition 0), (row 0, condition 1), ... at multiples of ``batch_size``,
    and chunks at multiples of ``batch_size * chunk_batches``. So a chunk's bits depend neither on the workers nor on
    where the work was resumed; they may depend on ``batch_size``, which belongs to the numeric mode.

    Args:
        ids: Image id of each row, in the order of the index.
        load: Row number -> its prepared images, (S, S, 3) uint8, one per condition and in their order; called from
            several threads, once per row (once more for a row that a resumed chunk begins inside).
        encoder: Turns a batch into features.
        batch_size: Images per batch.
        chunk_batches: Batches per chunk.
        conditions: Names of the conditions that ``load`` returns.
        start_chunk: Chunks before this one are already stored: none of their images is loaded.
        workers: Threads that load images ahead of the encoder; 0 loads in the calling thread.
        encoders: Threads that encode batches side by side. On a CPU one per core, each with single-threaded tensor
            operations, is as fast as one with many, stays fast where other programs share the cores, and makes the
            bits independent of their number.
        encoder_setup: Called once in each encoding thread, for example to make tensor operations single-threaded.
        progress: Called after each batch with the vectors done (stored ones included), the total, and images per
            second since the start of this call.

    Yields:
        Chunks in order.

    Raises:
        ExtractionError: If a row cannot be loaded, or its features are not finite.
        EncoderMemoryError: If a batch does not fit; start again with half the batch size.
        ValueError: If an argument is out of range.
    """
    if min(batch_size, chunk_batches, len(conditions), encoders) < 1 or workers < 0:
        raise ValueError("batch_size, chunk_batches, conditions and encoders are at least 1, workers at least 0.")
    layout = _Layout(ids, tuple(conditions), batch_size, batch_size * chunk_batches)
    chunks = chunk_count(layout.total, batch_size=batch_size, chunk_batches=chunk_batches)
    if not 0 <= start_chunk <= chunks:
        raise ValueError(f"start_chunk {start_chunk} lies outside 0..{chunks}.")
    to_do = range(start_chunk, chunks)
    batches = _batches(layout, to_do, _images(layout, to_do, load, workers, 2 * encoders * batch_size))
    return _chunks(layout, to_do, _in_order(batches, encoder, layout.per_row, encoders, encoder_setup), progress)


@dataclass(frozen=True)
class _Layout:
    """Where each feature vector stands: position = row * conditions + condition."""

    ids: Sequence[str]
    conditions: tuple[str, ...]
    batch_size: int
    chunk_size: int

    @property
    def per_row(self) -> int:
        return len(self.conditions)

    @property
    def total(self) -> int:
        return len(self.ids) * self.per_row

    def batches(self, chunk: int) -> Iterator[tuple[int, int]]:
        """First and last-plus-one position of each batch of a chunk."""
        end = min((chunk + 1) * self.chunk_size, self.total)
        for start in range(chunk * self.chunk_size, end, self.batch_size):
            yield start, min(start + self.batch_size, end)

    def labelled(self, chunk: int, features: NDArray[np.float32]) -> FeatureChunk:
        positions = range(chunk * self.chunk_size, chunk * self.chunk_size + len(features))
        return FeatureChunk(
            index=chunk,
            ids=tuple(self.ids[position // self.per_row] for position in positions),
            conditions=tuple(self.conditions[position % self.per_row] for position in positions),
            features=features,
        )


def _chunks(
    layout: _Layout, chunks: range, features: Generator[Features, None, None], progress: Progress | None
) -> Iterator[FeatureChunk]:
    first = chunks.start * layout.chunk_size
    began = time.perf_counter()
    with closing(features):
        for chunk in chunks:
            parts = []
            for _, stop in layout.batches(chunk):
                parts.append(next(features))
                if progress is not None:
                    progress(stop, layout.total, (stop - first) / max(time.perf_counter() - began, 1e-9))
            yield layout.labelled(chunk, np.concatenate(parts))


def _images(layout: _Layout, chunks: range, load: Loader, workers: int, in_flight: int) -> Generator[Image, None, None]:
    """Prepared images of the chunks in order; about ``in_flight`` of them are in memory."""
    per_row, first = layout.per_row, chunks.start * layout.chunk_size
    ahead = max(2 * workers, math.ceil(in_flight / per_row))
    with closing(_loaded(range(first // per_row, len(layout.ids)), load, per_row, workers, ahead)) as rows:
        yield from itertools.islice((image for row in rows for image in row), first % per_row, None)


def _batches(
    layout: _Layout, chunks: range, images: Generator[Image, None, None]
) -> Generator[tuple[int, list[Image]], None, None]:
    """Position of its first image, and the images, of each batch."""
    with closing(images):
        for chunk in chunks:
            for start, stop in layout.batches(chunk):
                yield start, list(itertools.islice(images, stop - start))


def _in_order(
    batches: Generator[tuple[int, list[Image]], None, None],
    encoder: Encoder,
    per_row: int,
    threads: int,
    setup: Callable[[], None] | None,
) -> Generator[Features, None, None]:
    """Features of each batch in order, encoded by several threads; one batch waits beyond those at work."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="encoder", initializer=setup or _nothing)
    waiting: deque[Future[Features]] = deque()
    failure: ExtractionError | None = None
    try:
        with closing(batches):
            try:
                for start, images in batches:
                    waiting.append(pool.submit(_encoded, encoder, images, start, per_row))
                    if len(waiting) > threads:
                        yield waiting.popleft().result()
            except ExtractionError as error:
                failure = error
        # What was loaded before a failing image is still encoded, so that its chunks can be written.
        while waiting:
            yield waiting.popleft().result()
        if failure is not None:
            raise failure
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _nothing() -> None:
    """The setup of a thread that needs none."""


def _loaded(
    rows: Sequence[int], load: Loader, per_row: int, workers: int, ahead: int
) -> Generator[Sequence[NDArray[np.uint8]], None, None]:
    """The rows' images in order; at most ``ahead`` rows are in memory beyond the one that is being used."""
    if workers == 0:
        for row in rows:
            yield load_row(load, row, per_row)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="images")
    waiting: deque[Future[Sequence[NDArray[np.uint8]]]] = deque()
    try:
        for row in rows:
            waiting.append(pool.submit(load_row, load, row, per_row))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def load_row(load: Loader, row: int, per_row: int) -> Sequence[Image]:
    """The prepared images of a row, one per condition.

    Raises:
        ExtractionError: If they cannot be loaded; never with the path.
    """
    failure = ""
    try:
        images = load(row)
    except Exception as error:
        # A path can name a patient, and file errors quote it: only the kind is passed on, not even as a chained cause.
        failure = type(error).__name__
    if failure:
        raise ExtractionError(row, f"its image cannot be loaded ({failure}).")
    if len(images) != per_row:
        raise ExtractionError(row, f"{len(images)} image(s) for {per_row} condition(s).")
    return images


def _encoded(encoder: Encoder, images: list[NDArray[np.uint8]], start: int, per_row: int) -> NDArray[np.float32]:
    shapes = [image.shape for image in images]
    odd = next((place for place, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        problem = f"an image of shape {shapes[odd]} among those of shape {shapes[0]}; prepare() makes them alike."
        raise ExtractionError((start + odd) // per_row, problem)
    try:
        features = encoder.encode(np.stack(images))
    except MemoryError as error:
        raise EncoderMemoryError(len(images), "host memory") from error
    broken = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if broken.size:
        raise ExtractionError((start + int(broken[0])) // per_row, "its features are not finite.")
    return features
