"""What can change pixels: library versions, and a digest of what each part makes of fixed inputs.

The digests belong in the fingerprint of whatever is computed from degraded images: another libjpeg or OpenCV that gives
other pixels then gives another fingerprint, and one that does not leaves it alone. ``golden.toml`` records the digests
of the releases that were tried. The inputs are small: CPU generations that differ by one grey level in a few pixels of
a million (vector width changes the rounding of sums in the blur) usually share a digest.
"""

import base64
import hashlib
import platform
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from crs_assets.science.images.decode import pixel_digest, read_image
from crs_assets.science.images.degradations import DEFAULT_PROTOCOL, iterate_degradations
from crs_assets.science.images.resize import to_working_resolution
from crs_assets.science.perturbations import DegradationFamily
from crs_assets.science.protocol import load_protocol
from crs_assets.science.toml_models import FrozenModel, read_toml, validate

GOLDEN_FILE = Path(__file__).parent / "golden.toml"

_REDUCED_SHORT_SIDE = 40


class Golden(FrozenModel):
    """Digests per part, and per degradation beside the score, recorded with these versions on this architecture."""

    architecture: str
    versions: dict[str, str]
    digests: dict[str, str]
    extra_digests: dict[str, str]


class GoldenFile(FrozenModel):
    """``golden.toml``: encoded pictures to decode, and the digests of each recording, the reference first."""

    encoded: dict[str, str]
    golden: tuple[Golden, ...] = Field(min_length=1)


class PixelMismatch(NamedTuple):
    """A part whose pixels are not the recorded ones."""

    part: str
    message: str


def library_versions() -> dict[str, str]:
    """Versions of what can change pixels, by library; OpenCV and simplejpeg each carry their own libjpeg-turbo."""
    import cv2
    import PIL
    import simplejpeg
    from PIL import features

    return {
        "numpy": np.__version__,
        "opencv": cv2.__version__,
        "pillow": PIL.__version__,
        "pillow_libjpeg_turbo": features.version_feature("libjpeg_turbo") or "none",
        "simplejpeg": simplejpeg.__version__,
    }


@cache
def _fingerprint() -> dict[str, str]:
    return dict(sorted(_parts()))


@cache
def _extra_fingerprint() -> dict[str, str]:
    return _degraded_digests(load_protocol(DEFAULT_PROTOCOL).analyses.perturbations)


def pixel_fingerprint() -> dict[str, str]:
    """Digest of the pixels of each part on fixed small inputs, computed with the installed libraries.

    Returns:
        64 hexadecimal digits by part: ``decode_jpeg``, ``decode_png``, ``resize_area``, then each perturbation of
        crs-v1 over a grey and a colour image at all severities.
    """
    return dict(_fingerprint())


def extra_pixel_fingerprint() -> dict[str, str]:
    """The same of the degradations beside the score, with what they share with the others.

    Returns:
        64 hexadecimal digits by part: decoding and resizing, then each perturbation beside the score.
    """
    shared = {part: value for part, value in _fingerprint().items() if part.startswith(("decode_", "resize_"))}
    return shared | _extra_fingerprint()


def check_golden() -> list[PixelMismatch]:
    """Compare the pixels of this machine with the recorded ones.

    The recording of the same versions and architecture is taken where there is one, else one of the same architecture,
    else the reference.

    Returns:
        The parts that differ, with what to do; empty if all agree.
    """
    golden = _closest_golden()
    seen, expected = pixel_fingerprint() | _extra_fingerprint(), golden.digests | golden.extra_digests
    recorded = f"{golden.architecture} with {_sentence(golden.versions)}"
    here = f"{platform.machine()} with {_sentence(library_versions())}"
    return [
        PixelMismatch(
            part,
            f"{part}: pixels differ from those recorded on {recorded}; this is {here}. Results carry their own "
            "fingerprint; install the recorded versions to reproduce published features to the bit.",
        )
        for part in sorted(seen | expected)
        if seen.get(part) != expected.get(part)
    ]


def reference_picture() -> NDArray[np.uint8]:
    """A colour picture of 64 x 96 pixels by integer arithmetic: gradients, an edge, texture."""
    y, x = np.mgrid[0:64, 0:96]
    red = (4 * y + x) % 256
    green = np.where((y - 30) ** 2 + (x - 50) ** 2 < 400, 220, 40 + x)
    blue = (7 * x * y + 13 * x + 29 * y) % 101 + 60
    return np.stack([red, green, blue], axis=2).astype(np.uint8)


def _parts() -> Iterator[tuple[str, str]]:
    for name, text in _golden_file().encoded.items():
        yield f"decode_{name}", pixel_digest(read_image(base64.b64decode(text)))
    colour = reference_picture()
    yield "resize_area", pixel_digest(to_working_resolution(colour, _REDUCED_SHORT_SIDE))
    yield from _degraded_digests(load_protocol(DEFAULT_PROTOCOL).perturbations).items()


def _degraded_digests(families: Sequence[DegradationFamily]) -> dict[str, str]:
    """Digest by family over a grey and a colour image at all severities."""
    colour = reference_picture()
    digests: dict[str, list[str]] = {}
    for image_id, image in (("grey", np.ascontiguousarray(colour[:, :, 2])), ("colour", colour)):
        degraded = iterate_degradations(image, dataset="golden", image_id=image_id, families=families)
        for condition, pixels in degraded:
            digests.setdefault(condition.perturbation, []).append(pixel_digest(pixels))
    return {name: hashlib.sha256("|".join(parts).encode("ascii")).hexdigest() for name, parts in digests.items()}


def _golden_file() -> GoldenFile:
    return validate(GoldenFile, read_toml(GOLDEN_FILE), source=GOLDEN_FILE.name)


def _closest_golden() -> Golden:
    recordings = _golden_file().golden
    versions, architecture = library_versions(), platform.machine()
    same_architecture = [golden for golden in recordings if golden.architecture == architecture]
    exact = [golden for golden in same_architecture if golden.versions == versions]
    return (exact or same_architecture or list(recordings))[0]


def _sentence(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
