"""Degraded versions of an image: the protocol's conditions, reproducible from the image's identifier alone.

Those of the score and those beside it are made alike. They act on the array as given, and strengths are relative to its
short side: reduce an image with ``to_working_resolution`` first. Nothing here depends on encoder, seed, order, batch,
worker or device.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.images.extra_families import EXTRA_FAMILIES
from crs_assets.science.images.families import FAMILIES, ApplyStrength, Family
from crs_assets.science.perturbations import DegradationFamily
from crs_assets.science.protocol import Condition, Protocol, load_protocol
from crs_assets.science.seeding import generator

DEFAULT_PROTOCOL = "crs-v1"
MIN_SIDE = 2


def degrade(
    image_uint8: NDArray[np.uint8],
    *,
    dataset: str,
    image_id: str,
    perturbation: str,
    severity: int,
    protocol: Protocol | str = DEFAULT_PROTOCOL,
) -> NDArray[np.uint8]:
    """Apply one perturbation at one severity.

    Args:
        image_uint8: (height, width), (height, width, 1) or (height, width, 3), both sides at least 2 pixels, at working
            resolution.
        dataset: Id of the data set, part of the random key.
        image_id: Stable id of the image, part of the random key.
        perturbation: A family of the protocol, such as ``rician``.
        severity: One of the family's severities.
        protocol: A protocol or the id of a shipped one.

    Returns:
        A new uint8 array of the same number of dimensions; of the same shape, except under ``fov_crop``.

    Raises:
        ValueError: If the image, the perturbation or the severity is not one that the protocol can degrade.
    """
    resolved = _resolve(protocol)
    family = resolved.perturbation(perturbation)
    strength = family.strength(severity)
    image = _checked(image_uint8)
    degraded = _prepare(image, dataset, image_id, family, resolved)(strength)
    return _like(degraded, image_uint8)


def iterate_degradations(
    image_uint8: NDArray[np.uint8],
    *,
    dataset: str,
    image_id: str,
    protocol: Protocol | str = DEFAULT_PROTOCOL,
    families: Sequence[DegradationFamily] | None = None,
) -> Iterator[tuple[Condition, NDArray[np.uint8]]]:
    """Yield every degraded version of one image, bit-identical to ``degrade``, sharing work between severities.

    Args:
        image_uint8: As for ``degrade``.
        dataset: Id of the data set, part of the random key.
        image_id: Stable id of the image, part of the random key.
        protocol: A protocol or the id of a shipped one.
        families: Families of the protocol; those of the score by default.

    Yields:
        (condition, degraded image) in the order of the families and their severities.

    Raises:
        ValueError: If the image is not one that the protocol can degrade.
    """
    resolved = _resolve(protocol)
    image = _checked(image_uint8)
    for family in resolved.perturbations if families is None else families:
        apply = _prepare(image, dataset, image_id, family, resolved)
        for severity, strength in zip(family.severities, family.strengths, strict=True):
            yield Condition(perturbation=family.id, severity=severity), _like(apply(strength), image_uint8)


def _prepare(
    image: NDArray[np.uint8], dataset: str, image_id: str, family: DegradationFamily, protocol: Protocol
) -> ApplyStrength:
    stream = generator(protocol.salt, dataset, image_id, family.id)
    return _family(family.id)(image, stream, protocol.images)


def _family(name: str) -> Family:
    implemented: Iterable[tuple[str, Family]] = (*FAMILIES.items(), *EXTRA_FAMILIES.items())
    return dict(implemented)[name]


@cache
def _shipped_protocol(name: str) -> Protocol:
    return load_protocol(name)


def _resolve(protocol: Protocol | str) -> Protocol:
    return protocol if isinstance(protocol, Protocol) else _shipped_protocol(protocol)


def _checked(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The image as contiguous (height, width) or (height, width, 3)."""
    seen = f"{getattr(image, 'dtype', type(image).__name__)} of shape {getattr(image, 'shape', '?')}"
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8:
        raise ValueError(f"expected a uint8 array, got {seen}; decode the image with read_image.")
    if image.ndim not in (2, 3) or (image.ndim == 3 and image.shape[2] not in (1, 3)):
        raise ValueError(f"expected shape (height, width) or (height, width, 3), got {seen}.")
    if min(image.shape[:2]) < MIN_SIDE:
        raise ValueError(f"expected sides of at least {MIN_SIDE} pixels, got {seen}; leave the image out of the index.")
    single_channel = image.ndim == 3 and image.shape[2] == 1
    return np.ascontiguousarray(image[:, :, 0] if single_channel else image)


def _like(degraded: NDArray[np.uint8], image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return degraded[:, :, np.newaxis] if degraded.ndim < image.ndim else degraded
