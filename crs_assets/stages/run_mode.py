"""How an encoder runs on this device: settled by trial on images that it will meet, remembered, and checked."""

import time
from contextlib import nullcontext
from dataclasses import replace
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crs_assets.resources.bench import Bench
from crs_assets.resources.compute import single_threaded
from crs_assets.science.encoders import PrecisionError, smallest_cosine, tune
from crs_assets.science.encoders.tuning import LEAST_COSINE
from crs_assets.science.extraction import Encoder, load_row
from crs_assets.stages.image_source import Load

TRIAL_IMAGES = 32


def settle(bench: Bench, encoder: str, load: Load, rows: int) -> None:
    """Try an encoder out on images that it will meet, and remember how it runs best.

    Args:
        bench: The bench.
        encoder: Id.
        load: Row number -> its clean image, prepared.
        rows: Usable rows.

    Raises:
        ExtractionError: If an image cannot be loaded.
        EncoderMemoryError: If not even the smallest batch fits.
    """
    compute = bench.compute
    images = _some(load, rows)
    # On a CPU each batch of a run is encoded by one thread, and what pays for many need not pay for one.
    with single_threaded(torch=True) if compute.kind == "cpu" else nullcontext():
        mode = tune(
            bench.load_encoder(encoder),
            images,
            batch_sizes=compute.trial_batches,
            may_mix=compute.precision == "auto",
        )
    bench.remember_run_mode(encoder, mode)


def closeness(bench: Bench, encoder: str, load: Load, rows: int) -> float:
    """How close bfloat16 leaves embeddings of some of these images to float32: the smallest cosine.

    Raises:
        ExtractionError: If an image cannot be loaded.
        PrecisionError: If it moves one too far.
    """
    cosine = smallest_cosine(bench.load_encoder(encoder), _some(load, rows), bench.run_mode(encoder).batch_size)
    if cosine < LEAST_COSINE:
        raise PrecisionError(encoder, cosine)
    return cosine


def halve_batch(bench: Bench, encoder: str) -> bool:
    """Remember half the batch for an encoder; False where one image is all that is left."""
    mode = bench.run_mode(encoder)
    if mode.batch_size == 1:
        return False
    bench.remember_run_mode(encoder, replace(mode, batch_size=mode.batch_size // 2))
    return True


def forbid_bfloat16(bench: Bench, encoder: str) -> None:
    """Remember that an encoder runs in float32."""
    bench.remember_run_mode(encoder, replace(bench.run_mode(encoder), precision="float32"))


class Watched:
    """An encoder that tells how much of the time it was at work.

    Attributes:
        encoder: What encodes.
        threads: Threads that call it.
    """

    def __init__(self, encoder: Encoder, threads: int) -> None:
        self.encoder = encoder
        self.threads = threads
        self._seconds = 0.0
        self._lock = Lock()
        self._began = time.perf_counter()

    def encode(self, batch: Any) -> NDArray[np.float32]:
        """Features of a batch."""
        began = time.perf_counter()
        try:
            return self.encoder.encode(batch)
        finally:
            with self._lock:
                self._seconds += time.perf_counter() - began

    @property
    def busy_share(self) -> float:
        """Share of the threads' time since the start that went into encoding; what is missing from 1 is waiting."""
        return min(1.0, self._seconds / (self.threads * max(time.perf_counter() - self._began, 1e-9)))


def _some(load: Load, rows: int) -> NDArray[np.uint8]:
    chosen = np.linspace(0, rows - 1, min(rows, TRIAL_IMAGES)).astype(int)
    return np.stack([image for row in chosen for image in load_row(load, int(row), 1)])
