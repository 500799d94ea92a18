"""Degradation families beside the score: what optics, sensors and exposure do to photographs.

Shaped like the families of the score, see ``families``. Noise and exposure act in linear light: stored values are read
through the curve of IEC 61966-2-1 (sRGB), worked on as intensities, and written through it again.
"""

import math
from functools import cache, lru_cache
from typing import cast

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.images.families import ApplyStrength, Family, Pixels, round_non_negative, unit_plane
from crs_assets.science.images.resize import scaled_size
from crs_assets.science.perturbations import ExtraPerturbationType
from crs_assets.science.protocol import ImageProtocol

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

LEVELS = 256
READ_NOISE = 2.0
"""Photoelectrons, standard deviation: of the order of current CMOS sensors."""
DARKER = 0.5
"""Probability that an image is exposed too little, else too much."""
DISK_SAMPLES = 16
"""Points per pixel and axis at which the edge of the disk is sampled."""
LINEAR_STEPS = 65_535
"""Steps of linear light, as of a 16 bit converter; one is at most 0.05 grey levels."""
DISKS_KEPT = 64


def sensor_noise(image: Pixels, stream: np.random.Generator, protocol: ImageProtocol) -> ApplyStrength:
    """Shot and read noise: an intensity y in 0..1 becomes y + sqrt(y / N + (r / N)^2) n.

    Source: Foi et al., IEEE TIP 17:1737, 2008. Strength N is the number of photoelectrons at full scale, the read noise
    r is ``READ_NOISE``; shot noise in its normal approximation. Unit noise n is one draw of shape (channels, rows,
    columns) in C order on the grid of the protocol's short side, resized as that of ``rician``. A grey image so
    receives the noise of a colour image's first channel. The severities share the draw.
    """
    import cv2

    height, width = image.shape[:2]
    planes = [image] if image.ndim == 2 else cv2.split(image)
    grid = scaled_size(height, width, protocol.noise_grid_short_side)
    draw = stream.standard_normal((len(planes), *grid), dtype=np.float32)
    noise = [unit_plane(plane, height, width) for plane in draw]
    intensity = linear_light()

    def apply(strength: float) -> Pixels:
        deviation = np.sqrt(intensity / strength + (READ_NOISE / strength) ** 2)
        noisy = [_with_noise(plane, n, intensity, deviation) for plane, n in zip(planes, noise, strict=True)]
        return noisy[0] if image.ndim == 2 else cast(Pixels, cv2.merge(noisy))

    return apply


def _with_noise(plane: Pixels, noise: Float32, intensity: Float64, deviation: Float64) -> Pixels:
    import cv2

    values = cast(Float32, cv2.LUT(plane, deviation.astype(np.float32)))
    values *= noise
    values += cast(Float32, cv2.LUT(plane, intensity.astype(np.float32)))
    np.clip(values, 0, 1, out=values)
    values *= np.float32(LINEAR_STEPS)
    return _written()[np.rint(values, out=values).astype(np.uint16)]


def defocus(image: Pixels, _stream: np.random.Generator, _protocol: ImageProtocol) -> ApplyStrength:
    """Uniform disk, the image of a point by an aberration-free lens out of focus in geometric optics; reflect-101.

    Strength is sigma, the disk's standard deviation along an axis, as a fraction of the short side: radius 2 sigma, so
    that a severity spreads as far as the same one of ``gaussian_blur``. (Goodman, Introduction to Fourier Optics, 6.4.)
    """
    short_side = min(image.shape[:2])

    def apply(strength: float) -> Pixels:
        import cv2

        blurred = cv2.filter2D(image, cv2.CV_32F, disk(strength * short_side), borderType=cv2.BORDER_REFLECT_101)
        return round_non_negative(cast(Float32, blurred))

    return apply


@lru_cache(DISKS_KEPT)
def disk(sigma: float) -> Float32:
    """Share of a disk of radius 2 sigma that lies on each pixel, the disk's centre on the middle one's.

    Args:
        sigma: Standard deviation along an axis, pixels, positive.

    Returns:
        (2 k + 1, 2 k + 1) of sum 1.
    """
    radius = 2 * sigma
    reach = math.ceil(radius - 0.5)
    side = 2 * reach + 1
    # Points lie in the middle of sub-pixels, never on the centre.
    points = (np.arange(side * DISK_SAMPLES) + 0.5) / DISK_SAMPLES - side / 2
    inside = points[:, None] ** 2 + points**2 <= radius**2
    share = inside.reshape(side, DISK_SAMPLES, side, DISK_SAMPLES).sum(axis=(1, 3), dtype=np.float64)
    share[reach, reach] = max(share[reach, reach], 1)
    kernel = cast(Float32, (share / share.sum()).astype(np.float32))
    kernel.flags.writeable = False
    return kernel


def exposure(image: Pixels, stream: np.random.Generator, _protocol: ImageProtocol) -> ApplyStrength:
    """Gain 2^strength or 2^-strength of linear light, clipped at full scale; each value maps alone, through a table.

    Strength is in stops. Whether the image is too dark or too bright is the stream's first uniform float64, the same
    for all severities.
    """
    sign = -1 if stream.random() < DARKER else 1

    def apply(strength: float) -> Pixels:
        import cv2

        exposed = np.minimum(linear_light() * 2 ** (sign * strength), 1)
        return cast(Pixels, cv2.LUT(image, np.rint(stored_value(exposed)).astype(np.uint8)))

    return apply


@cache
def linear_light() -> Float64:
    """(256,) intensity in 0..1 of every stored value."""
    values = np.arange(LEVELS) / (LEVELS - 1)
    curve: Float64 = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    curve.flags.writeable = False
    return curve


def stored_value(intensity: Float64) -> Float64:
    """Grey level in 0..255, not rounded, of an intensity in 0..1."""
    curve: Float64 = np.where(intensity <= 0.0031308, 12.92 * intensity, 1.055 * intensity ** (1 / 2.4) - 0.055)
    return curve * (LEVELS - 1)


@cache
def _written() -> Pixels:
    """Stored value of every step of linear light."""
    table: Pixels = np.rint(stored_value(np.arange(LINEAR_STEPS + 1) / LINEAR_STEPS)).astype(np.uint8)
    table.flags.writeable = False
    return table


EXTRA_FAMILIES: dict[ExtraPerturbationType, Family] = {
    "sensor_noise": sensor_noise,
    "defocus": defocus,
    "exposure": exposure,
}
