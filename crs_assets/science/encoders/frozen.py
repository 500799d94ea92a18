"""A frozen encoder: uint8 images in, float32 features out. Loading one never needs the network unless it is one."""

from pathlib import Path
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.encoders.spec import EncoderSpec

Precision = Literal["float32", "bfloat16"]


class FrozenEncoder(Protocol):
    """What extraction needs of an encoder.

    Attributes:
        spec: What the encoder is.
    """

    spec: EncoderSpec

    def encode(self, batch: Any) -> NDArray[np.float32]:
        """Features of prepared images.

        Args:
            batch: (B, S, S, 3) uint8 array (or CPU tensor), as ``preprocessing.prepare`` makes them, stacked.

        Returns:
            (B, d) float32.

        Raises:
            ValueError: If the batch has another dtype or shape.
            EncoderMemoryError: If the device has too little memory for the batch.
        """
        ...

    def in_precision(self, precision: Precision) -> Self:
        """The same network, whose operations run in another precision; features are float32 either way."""
        ...


def load_encoder(spec: EncoderSpec, mirror: Path | None = None, device: str = "cpu") -> FrozenEncoder:
    """Build an encoder with its published (or seeded random) weights, ready to encode in float32.

    Args:
        spec: The encoder.
        mirror: Folder of mirrored weights; packages need none.
        device: ``cpu``, ``cuda`` or ``cuda:<i>``.

    Raises:
        WeightsError: If weights are missing, changed, or do not fill the network exactly.
    """
    if spec.architecture.loader == "pixels":
        return PixelEncoder(spec)
    from crs_assets.science.encoders.timm_encoder import load_timm_encoder

    return load_timm_encoder(spec, mirror, device)


class PixelEncoder:
    """The prepared pixels themselves, scaled to 0..1: what a linear probe reaches without any network."""

    def __init__(self, spec: EncoderSpec) -> None:
        self.spec = spec

    def encode(self, batch: Any) -> NDArray[np.float32]:
        """Flatten (B, S, S, 3) uint8 to (B, S * S * 3) float32 in 0..1."""
        pixels = check_batch(np.asarray(batch), self.spec)
        return pixels.reshape(len(pixels), -1).astype(np.float32) / np.float32(255)

    def in_precision(self, precision: Precision) -> Self:  # noqa: ARG002
        """Itself: a division has no cheaper precision."""
        return self


def check_batch(batch: NDArray[np.uint8], spec: EncoderSpec) -> NDArray[np.uint8]:
    """Return the batch if it is what ``encode`` takes.

    Raises:
        ValueError: Naming what was seen and expected.
    """
    side = spec.preprocessing.input_size
    if batch.dtype != np.uint8 or batch.ndim != 4 or batch.shape[1:] != (side, side, 3):
        raise ValueError(
            f"{spec.id}: expected a batch of uint8 (B, {side}, {side}, 3), got {batch.dtype} {batch.shape}; "
            "bring each image through prepare() with this encoder's preprocessing."
        )
    return batch


def single_threaded_tensors() -> None:
    """Make tensor operations of the calling thread single-threaded: for threads that encode side by side."""
    import torch

    torch.set_num_threads(1)
