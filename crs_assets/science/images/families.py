"""The five degradation families of the score.

A family takes the image, its random stream and the image part of the protocol, does what all severities share (noise,
mean luma, crop corner) and returns a function from strength to degraded image. Arithmetic is float32; results are
rounded half to even and clipped to uint8.
"""

import math
from collections.abc import Callable
from typing import cast

import numpy as np
import simplejpeg
from numpy.typing import NDArray

from crs_assets.science.images.resize import resize_bilinear, scaled_size
from crs_assets.science.perturbations import PerturbationType
from crs_assets.science.protocol import ImageProtocol

Pixels = NDArray[np.uint8]
ApplyStrength = Callable[[float], Pixels]
Family = Callable[[Pixels, np.random.Generator, ImageProtocol], ApplyStrength]

FULL_SCALE = np.float32(255)
JPEG_MAX_SIDE = 65_500
"""``JPEG_MAX_DIMENSION`` of libjpeg."""
LUMA_WEIGHTS = (0.299, 0.587, 0.114)
"""Red, green, blue (ITU-R BT.601-7, section 2.5.1)."""


def gaussian_blur(image: Pixels, _stream: np.random.Generator, _protocol: ImageProtocol) -> ApplyStrength:
    """Separable Gaussian; strength is sigma as a fraction of the short side, radius ceil(4 sigma), reflect-101."""
    short_side = min(image.shape[:2])

    def apply(strength: float) -> Pixels:
        import cv2

        kernel = gaussian_kernel(strength * short_side)
        blurred = cv2.sepFilter2D(image, cv2.CV_32F, kernel, kernel, borderType=cv2.BORDER_REFLECT_101)
        return round_non_negative(cast(NDArray[np.float32], blurred))

    return apply


def gaussian_kernel(sigma: float) -> NDArray[np.float32]:
    """Samples of a Gaussian at the integers -ceil(4 sigma)..ceil(4 sigma), normalised to sum 1 in float64.

    Args:
        sigma: Standard deviation, pixels, positive.
    """
    radius = math.ceil(4 * sigma)
    weights = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    return cast(NDArray[np.float32], (weights / weights.sum()).astype(np.float32))


def jpeg(image: Pixels, _stream: np.random.Generator, _protocol: ImageProtocol) -> ApplyStrength:
    """Baseline JPEG with 4:2:0 chroma, encoded and decoded again; strength is the libjpeg quality.

    Grey images are encoded as grey. The encoder is OpenCV's, with libjpeg's accurate integer DCT as in Pillow:
    simplejpeg encodes with the fast DCT whatever it is told, which moves pixels by up to 84 grey levels.
    """
    import cv2

    grey = image.ndim == 2
    source = image if grey else cv2.cvtColor(image, cv2.COLOR_RGB2BGR)

    def apply(strength: float) -> Pixels:
        encoded = _encode_jpeg(source, int(strength))
        decoded: Pixels = simplejpeg.decode_jpeg(encoded, "GRAY" if grey else "RGB")
        return decoded[:, :, 0] if grey else decoded

    return apply


def _encode_jpeg(source: Pixels, quality: int) -> bytes:
    """Encode a grey or BGR image.

    Raises:
        ValueError: If JPEG cannot hold the image.
    """
    import cv2

    options = [
        *(cv2.IMWRITE_JPEG_QUALITY, quality),
        *(cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420),
        *(cv2.IMWRITE_JPEG_PROGRESSIVE, 0),
    ]
    if max(source.shape[:2]) > JPEG_MAX_SIDE:
        raise ValueError(f"JPEG holds at most {JPEG_MAX_SIDE} pixels a side, got shape {source.shape}; crop the image.")
    _, encoded = cv2.imencode(".jpg", source, options)
    return encoded.tobytes()


def contrast(image: Pixels, _stream: np.random.Generator, _protocol: ImageProtocol) -> ApplyStrength:
    """Mean + strength x (value - mean), about the image's mean BT.601 luma; each value maps alone, through a table."""
    mean = np.float32(mean_luma(image))
    offsets = np.arange(256, dtype=np.float32) - mean

    def apply(strength: float) -> Pixels:
        import cv2

        table = np.rint(mean + np.float32(strength) * offsets).clip(0, 255).astype(np.uint8)
        return cast(Pixels, cv2.LUT(image, table))

    return apply


def mean_luma(image: Pixels) -> float:
    """Mean BT.601 luma in grey levels; of a grey image, its mean. Sums are exact integers."""
    import cv2

    channels = 1 if image.ndim == 2 else image.shape[2]
    means: list[float] = [total * channels / image.size for total in cv2.sumElems(image)[:channels]]
    if channels == 1:
        return means[0]
    return sum(weight * mean for weight, mean in zip(LUMA_WEIGHTS, means, strict=True))


def rician(image: Pixels, stream: np.random.Generator, protocol: ImageProtocol) -> ApplyStrength:
    """Magnitude noise sqrt((x + n1)^2 + n2^2) (Gudbjartsson and Patz, MRM 34:910, 1995), per stored channel.

    Strength is the standard deviation of n1 and n2 as a fraction of full scale. All unit noise is one draw of shape
    (channels, 2, rows, columns) in C order on the grid of the protocol's short side: n1 then n2 of the first channel,
    then of the next. A grey image so receives the noise of a colour image's first channel. The three severities share
    the draw.
    """
    import cv2

    channels = [image] if image.ndim == 2 else cv2.split(image)
    values = [channel.astype(np.float32) for channel in channels]
    noise = _unit_noise(image, stream, protocol)

    def apply(strength: float) -> Pixels:
        sigma = np.float32(strength) * FULL_SCALE
        noisy = [_magnitude(value, n1, n2, sigma) for value, (n1, n2) in zip(values, noise, strict=True)]
        return noisy[0] if image.ndim == 2 else cast(Pixels, cv2.merge(noisy))

    return apply


def _unit_noise(
    image: Pixels, stream: np.random.Generator, protocol: ImageProtocol
) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    height, width = image.shape[:2]
    channels = 1 if image.ndim == 2 else image.shape[2]
    grid = scaled_size(height, width, protocol.noise_grid_short_side)
    draw = stream.standard_normal((channels, 2, *grid), dtype=np.float32)
    return [(unit_plane(n1, height, width), unit_plane(n2, height, width)) for n1, n2 in draw]


def unit_plane(grid: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Resize a plane of noise to the image and divide it by its own standard deviation (float64 sums, ddof 0)."""
    import cv2

    plane = resize_bilinear(grid, height, width)
    deviation = np.float32(cv2.meanStdDev(plane)[1][0, 0])
    return plane / deviation


def _magnitude(
    value: NDArray[np.float32], n1: NDArray[np.float32], n2: NDArray[np.float32], sigma: np.float32
) -> Pixels:
    real = n1 * sigma
    real += value
    np.multiply(real, real, out=real)
    imaginary = n2 * sigma
    np.multiply(imaginary, imaginary, out=imaginary)
    real += imaginary
    return round_non_negative(np.sqrt(real, out=real))


def fov_crop(image: Pixels, stream: np.random.Generator, _protocol: ImageProtocol) -> ApplyStrength:
    """Keep a window of round(strength x side); its corner is floor(u (H - h)), floor(v (W - w)).

    u, then v, are the stream's first two uniform float64 in [0, 1), the same for all severities. Products are float64,
    rounding is half to even, a side keeps at least one pixel.
    """
    height, width = image.shape[:2]
    u, v = stream.random(2)

    def apply(strength: float) -> Pixels:
        h, w = max(1, round(strength * height)), max(1, round(strength * width))
        top, left = math.floor(u * (height - h)), math.floor(v * (width - w))
        return image[top : top + h, left : left + w].copy()

    return apply


def round_non_negative(values: NDArray[np.float32]) -> Pixels:
    """Round half to even and clip to 255, in one pass; the values are not negative."""
    import cv2

    return cast(Pixels, cv2.convertScaleAbs(values))


FAMILIES: dict[PerturbationType, Family] = {
    "gaussian_blur": gaussian_blur,
    "jpeg": jpeg,
    "contrast": contrast,
    "rician": rician,
    "fov_crop": fov_crop,
}
