"""How an encoder runs best on a device: the batch that pays, and bfloat16 where it leaves embeddings as they are."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.encoders.errors import EncoderMemoryError
from crs_assets.science.encoders.frozen import FrozenEncoder, Precision

LEAST_COSINE = 0.999
"""Between an image's embeddings in float32 and in bfloat16, for the worst image; below it float32 stays."""
WORTHWHILE = 1.05
"""A larger batch, or another precision, has to be so much faster: less is within the noise of a trial."""
REPETITIONS = 3

Uint8 = NDArray[np.uint8]
Float32 = NDArray[np.float32]
Encode = Callable[[Uint8], Float32]
Clock = Callable[[], float]


@dataclass(frozen=True)
class RunMode:
    """What a person may choose about how an encoder runs, and what can change the bits of its features.

    Attributes:
        batch_size: Images per forward pass.
        precision: Of the network's operations; features are float32 either way.
    """

    batch_size: int
    precision: Precision = "float32"


class PrecisionError(ValueError):
    """Embeddings that bfloat16 moves too far; float32 is the cure."""

    def __init__(self, encoder: str, cosine: float) -> None:
        super().__init__(
            f"{encoder}: under bfloat16 an embedding has a cosine of {cosine:.5f} with the same in float32, expected "
            f"at least {LEAST_COSINE}; run it in float32."
        )


def tune(
    encoder: FrozenEncoder,
    images: Uint8,
    *,
    batch_sizes: Sequence[int],
    may_mix: bool,
    clock: Clock = time.perf_counter,
) -> RunMode:
    """Try an encoder out on its device.

    Args:
        encoder: Ready to encode.
        images: (n, S, S, 3) uint8, prepared: some that it will meet.
        batch_sizes: To try, rising; the first that does not fit into memory, or does not pay, ends the trial.
        may_mix: Whether bfloat16 may be chosen. It is where every image keeps a cosine of ``LEAST_COSINE`` with its
            embedding in float32, and the fastest batch is faster by ``WORTHWHILE``.
        clock: Seconds.

    Returns:
        The mode to run it in.

    Raises:
        EncoderMemoryError: If not even the smallest batch fits.
    """
    exact = encoder.in_precision("float32")
    size, rate = fastest_batch(exact.encode, images, batch_sizes, clock)
    if may_mix and smallest_cosine(encoder, images, size) >= LEAST_COSINE:
        mixed = encoder.in_precision("bfloat16")
        mixed_size, mixed_rate = fastest_batch(mixed.encode, images, batch_sizes, clock)
        if mixed_rate >= WORTHWHILE * rate:
            return RunMode(mixed_size, "bfloat16")
    return RunMode(size)


def fastest_batch(encode: Encode, images: Uint8, batch_sizes: Sequence[int], clock: Clock) -> tuple[int, float]:
    """The last batch size that still paid, and its images per second.

    Raises:
        EncoderMemoryError: If not even the first fits.
    """
    best, rate = 0, 0.0
    for size in batch_sizes:
        batch = np.resize(images, (size, *images.shape[1:]))
        try:
            found = size / min(_seconds(encode, batch, clock) for _ in range(REPETITIONS))
        except EncoderMemoryError:
            if not best:
                raise
            break
        if found < WORTHWHILE * rate:
            break
        best, rate = size, found
    return best, rate


def smallest_cosine(encoder: FrozenEncoder, images: Uint8, batch_size: int) -> float:
    """Cosine between an image's embeddings in float32 and in bfloat16, for the image where it is smallest.

    Args:
        encoder: Ready to encode.
        images: (n, S, S, 3) uint8, prepared.
        batch_size: Images per forward pass.

    Returns:
        In -1..1, higher is closer; 0 where an embedding has no direction in one of the two.
    """
    exact, mixed = (
        np.concatenate([view.encode(images[at : at + batch_size]) for at in range(0, len(images), batch_size)])
        for view in (encoder.in_precision("float32"), encoder.in_precision("bfloat16"))
    )
    products = (exact.astype(np.float64) * mixed).sum(axis=1)
    lengths = np.linalg.norm(exact, axis=1).astype(np.float64) * np.linalg.norm(mixed, axis=1)
    return float(np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0).min())


def _seconds(encode: Encode, batch: Uint8, clock: Clock) -> float:
    began = clock()
    encode(batch)
    return clock() - began
