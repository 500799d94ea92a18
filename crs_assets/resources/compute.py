"""The device that encodes and fits: what it is, how many images at once, how many threads."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from crs_assets.science.encoders import RunMode

CHUNK_BATCHES = 8
IMAGE_CACHE_GB = 20
DEFAULT_FITS = 4
GB = 10**9
_DEFAULT_BATCH = {"cpu": 16, "cuda": 256}
_TRIAL_BATCHES = (16, 32, 64, 128, 256, 512, 1024)
_CUDA_IN_FLIGHT = 2

PrecisionChoice = Literal["float32", "auto"]


@dataclass(frozen=True)
class Compute:
    """A resolved device.

    Attributes:
        device: ``cpu`` or ``cuda:<i>``.
        batch_size: Images per forward pass; part of the numeric mode.
        chunk_batches: Batches per written chunk: what a crash can cost.
        workers: Threads that decode and degrade images.
        threads: Threads that encode side by side on a CPU, each with single-threaded operations; elsewhere those that
            bring batches to the device, so that one is copied while another is computed.
        fits: Probe partitions that are fitted and scored side by side on a CPU, each with single-threaded operations.
        image_cache_bytes: Disk for images kept between encoders that take them alike; no result depends on it.
        finds_batch: Whether the batch size is found for each encoder by trial; until then it is ``batch_size``.
        precision: ``float32``, or ``auto``: bfloat16 for encoders whose embeddings it leaves as they are.
    """

    device: str
    batch_size: int
    chunk_batches: int
    workers: int
    threads: int
    fits: int = 1
    image_cache_bytes: int = IMAGE_CACHE_GB * GB
    finds_batch: bool = False
    precision: PrecisionChoice = "float32"

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return self.device.partition(":")[0]

    @property
    def trial_batches(self) -> tuple[int, ...]:
        """Batch sizes that a trial goes through."""
        return _TRIAL_BATCHES if self.finds_batch else (self.batch_size,)

    @property
    def needs_trial(self) -> bool:
        """Whether how an encoder runs is found by trial."""
        return self.finds_batch or self.precision == "auto"

    def numeric_mode(self, mode: RunMode) -> dict[str, Any]:
        """What can change the bits of a feature, beside weights, pixels and library versions."""
        return {
            "device": self.kind,
            "precision": mode.precision,
            "batch_size": mode.batch_size,
            "chunk_batches": self.chunk_batches,
        }

    def describe(self) -> dict[str, Any]:
        """Facts for ``crs doctor`` and for provenance."""
        return {
            **self.numeric_mode(RunMode(self.batch_size)),
            "precision": self.precision,
            "batch_size": "by trial" if self.finds_batch else self.batch_size,
            "device_name": self.device,
            "workers": self.workers,
            "threads": self.threads,
            "machine": platform.machine(),
        }


class ComputeDevice(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Where encoders and probes run."""

    device: str = Field(default="auto", description="auto (a GPU where there is one), cpu, cuda, or cuda:1 and so on.")
    batch_size: int = Field(
        default=0, ge=0, description="Images per forward pass; 0: 16 on a CPU, on a GPU found by trial per encoder."
    )
    precision: PrecisionChoice = Field(
        default="float32", description="auto takes bfloat16 where embeddings keep a cosine of 0.999 and it pays."
    )
    workers: int = Field(default=0, ge=0, description="Threads that decode and degrade images; 0: one per core.")
    threads: int = Field(default=0, ge=0, description="Threads that encode; 0: one per core on a CPU, two on a GPU.")
    fits: int = Field(default=0, ge=0, description="Probe processes on a CPU; 0: one per core, up to four.")
    image_cache_gb: float = Field(
        default=IMAGE_CACHE_GB, ge=0, description="Disk for prepared images that several encoders share; 0: none."
    )

    def resolve(self) -> Compute:
        """Look at the machine and settle what was left open.

        Raises:
            ValueError: If the device was named and is not here.
        """
        device = self._device()
        kind = device.partition(":")[0]
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return Compute(
            device=device,
            batch_size=self.batch_size or _DEFAULT_BATCH[kind],
            chunk_batches=CHUNK_BATCHES,
            workers=self.workers or cores,
            threads=self.threads or (cores if kind == "cpu" else _CUDA_IN_FLIGHT),
            fits=self.fits or min(cores, DEFAULT_FITS),
            image_cache_bytes=int(self.image_cache_gb * GB),
            # On a CPU a larger batch gains nothing: each is encoded by one thread.
            finds_batch=kind == "cuda" and not self.batch_size,
            precision=self.precision,
        )

    def _device(self) -> str:
        if self.device == "cpu":
            return "cpu"
        import torch

        if torch.cuda.is_available():
            return "cuda:0" if self.device in ("auto", "cuda") else self.device
        if self.device == "auto":
            return "cpu"
        raise ValueError(
            f"device {self.device!r} was asked for, but torch {version('torch')} sees no CUDA device here."
        )


def library_versions(*names: str) -> dict[str, str]:
    """Installed versions of the named distributions: those that can change a stage's values."""
    return {name: _version(name) for name in names}


def installed_versions(*names: str) -> dict[str, str]:
    """Versions of those of the named distributions that are installed; the others are left out."""
    found = {}
    for name in names:
        with suppress(PackageNotFoundError):
            found[name] = _version(name)
    return found


@cache
def _version(name: str) -> str:
    # Each look-up parses the distribution's metadata, and a plan asks for thousands.
    return version(name)


@contextmanager
def single_threaded(*, torch: bool) -> Iterator[None]:
    """Single-threaded linear algebra in the calling thread: the bits of a sum depend on how it is divided.

    Args:
        torch: Whether tensors are used too; importing them takes seconds, which a stage without them has no use for.
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        if not torch:
            yield
            return
        from torch import get_num_threads, set_num_threads

        before = get_num_threads()
        set_num_threads(1)
        try:
            yield
        finally:
            set_num_threads(before)
