"""Each family against a straight-line reference: other libraries, or the protocol's formula in float64."""

import hashlib
import io
import math

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from crs_assets.science.images import degrade
from crs_assets.science.images.families import FAMILIES, gaussian_kernel
from crs_assets.science.protocol import load_protocol

DATASET, IMAGE_ID = "isic2019", "ISIC_0000013_downsampled"
PROTOCOL = load_protocol("crs-v1")


def natural(shape: tuple[int, ...], seed: int = 5) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(shape)
    smooth = ndimage.gaussian_filter(noise, [3, 3] + [0] * (len(shape) - 2))
    return np.clip(128 + 60 * smooth / smooth.std(), 0, 255).astype(np.uint8)


IMAGES = {"grey": natural((90, 120)), "colour": natural((120, 90, 3)), "upscaled noise": natural((256, 300))}


def run(image: np.ndarray, perturbation: str, severity: int) -> np.ndarray:
    return degrade(image, dataset=DATASET, image_id=IMAGE_ID, perturbation=perturbation, severity=severity)


def stream(perturbation: str) -> np.random.Generator:
    text = f"crs-v1|{DATASET}|{IMAGE_ID}|{perturbation}".encode()
    return np.random.Generator(np.random.SFC64(int.from_bytes(hashlib.sha256(text).digest()[:16], "big")))


def assert_rounds_to(degraded: np.ndarray, exact: np.ndarray, slack: float = 1e-3) -> None:
    """The uint8 result is the exact value rounded and clipped; float32 may tip values within ``slack`` of a half."""
    assert degraded.dtype == np.uint8
    assert np.abs(degraded - np.clip(exact, 0, 255)).max() <= 0.5 + slack


def test_every_family_of_the_protocol_is_implemented() -> None:
    assert list(FAMILIES) == [family.id for family in PROTOCOL.perturbations]


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(("severity", "fraction"), [(1, 0.008), (2, 0.016), (3, 0.032)])
def test_blur_agrees_with_scipy(name: str, severity: int, fraction: float) -> None:
    image = IMAGES[name]
    sigma = fraction * min(image.shape[:2])
    offsets = np.arange(-math.ceil(4 * sigma), math.ceil(4 * sigma) + 1)
    weights = np.array([math.exp(-(i**2) / (2 * sigma**2)) for i in offsets])
    weights /= weights.sum()
    # scipy's "mirror" repeats without the edge pixel: reflect-101.
    exact = ndimage.correlate1d(image.astype(np.float64), weights, axis=0, mode="mirror")
    exact = ndimage.correlate1d(exact, weights, axis=1, mode="mirror")
    assert_rounds_to(run(image, "gaussian_blur", severity), exact)


def test_kernel_sums_to_one_and_ends_at_four_sigma() -> None:
    for sigma in (0.24, 1.152, 4.096, 16.384):
        kernel = gaussian_kernel(sigma)
        assert kernel.dtype == np.float32
        assert len(kernel) == 2 * math.ceil(4 * sigma) + 1
        assert abs(kernel.sum(dtype=np.float64) - 1) < 1e-6


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(("severity", "quality"), [(1, 40), (2, 15), (3, 5)])
def test_jpeg_agrees_with_pillow(name: str, severity: int, quality: int) -> None:
    buffer = io.BytesIO()
    Image.fromarray(IMAGES[name]).save(buffer, "JPEG", quality=quality, subsampling="4:2:0", progressive=False)
    expected = np.asarray(Image.open(buffer)).astype(int)
    assert np.abs(run(IMAGES[name], "jpeg", severity).astype(int) - expected).max() <= 1


def test_jpeg_of_an_image_that_jpeg_cannot_hold() -> None:
    with pytest.raises(ValueError, match="JPEG holds at most"):
        run(np.zeros((2, 70_000), np.uint8), "jpeg", 1)


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(("severity", "factor"), [(1, 0.75), (2, 0.50), (3, 0.25)])
def test_contrast_agrees_with_the_formula(name: str, severity: int, factor: float) -> None:
    image = IMAGES[name].astype(np.float64)
    luma = image if image.ndim == 2 else 0.299 * image[..., 0] + 0.587 * image[..., 1] + 0.114 * image[..., 2]
    assert_rounds_to(run(IMAGES[name], "contrast", severity), luma.mean() + factor * (image - luma.mean()))


def test_contrast_by_hand() -> None:
    # Luma of (100, 0, 0) is 29.9 and of (0, 200, 0) 117.4: mean 73.65. At 0.25: 73.65 + 0.25 (100 - 73.65) = 80.24,
    # 73.65 + 0.25 (200 - 73.65) = 105.24, 73.65 - 0.25 x 73.65 = 55.24.
    image = np.zeros((2, 2, 3), np.uint8)
    image[0, :, 0], image[1, :, 1] = 100, 200
    np.testing.assert_array_equal(run(image, "contrast", 3)[:, 0], [[80, 55, 55], [55, 105, 55]])


def test_half_grey_levels_round_to_even() -> None:
    # Mean 4, factor 0.5: 4 + 0.5 (x - 4) is 2.5, 3.5, 4.5, 5.5 at x = 1, 3, 5, 7 -> 2, 4, 4, 6.
    image = np.array([[1, 3], [5, 7]], np.uint8)
    np.testing.assert_array_equal(run(image, "contrast", 2), [[2, 4], [4, 6]])


def interpolation_matrix(source: int, size: int) -> np.ndarray:
    """Bilinear interpolation at pixel centres, edges repeated, as a (size, source) matrix."""
    position = np.clip((np.arange(size) + 0.5) * source / size - 0.5, 0, source - 1)
    return np.maximum(0, 1 - np.abs(position[:, None] - np.arange(source)))


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(("severity", "fraction"), [(1, 0.03), (2, 0.06), (3, 0.12)])
def test_rician_agrees_with_the_formula(name: str, severity: int, fraction: float) -> None:
    image = IMAGES[name]
    h, w = image.shape[:2]
    grid = (224, round(224 * w / h)) if h <= w else (round(224 * h / w), 224)
    channels = 1 if image.ndim == 2 else 3
    draw = stream("rician").standard_normal((channels, 2, *grid), dtype=np.float32).astype(np.float64)
    rows, columns = interpolation_matrix(grid[0], h), interpolation_matrix(grid[1], w)
    noise = np.einsum("ij,cpjk,lk->cpil", rows, draw, columns, optimize=True)
    noise *= fraction * 255 / noise.std(axis=(2, 3), keepdims=True)
    planes = image.reshape(h, w, channels).transpose(2, 0, 1).astype(np.float64)
    exact = np.sqrt((planes + noise[:, 0]) ** 2 + noise[:, 1] ** 2).transpose(1, 2, 0).reshape(image.shape)
    assert_rounds_to(run(image, "rician", severity), exact)


def test_rician_of_black_is_rayleigh() -> None:
    # A Rayleigh variable has mean sigma sqrt(pi / 2) and standard deviation sigma sqrt(2 - pi / 2). The size is that of
    # the noise grid: interpolated noise has the same overall variance, but less of it between grid points than on them.
    degraded = run(np.zeros((224, 224), np.uint8), "rician", 3).astype(np.float64)
    sigma = 0.12 * 255
    assert degraded.mean() == pytest.approx(sigma * math.sqrt(math.pi / 2), rel=0.02)
    assert degraded.std() == pytest.approx(sigma * math.sqrt(2 - math.pi / 2), rel=0.03)


@pytest.mark.parametrize(("severity", "fraction"), [(1, 0.03), (2, 0.06), (3, 0.12)])
def test_rician_far_from_black_is_gaussian(severity: int, fraction: float) -> None:
    # For x >> sigma: standard deviation sigma, mean x + sigma^2 / (2 x).
    degraded = run(np.full((300, 300), 120, np.uint8), "rician", severity).astype(np.float64)
    sigma = fraction * 255
    assert degraded.std() == pytest.approx(sigma, rel=0.05)
    assert degraded.mean() == pytest.approx(120 + sigma**2 / 240, abs=0.05 * sigma)


def test_rician_noise_differs_between_channels_and_a_grey_image_gets_the_first() -> None:
    colour = np.full((60, 70, 3), 100, np.uint8)
    degraded = run(colour, "rician", 2)
    assert not np.array_equal(degraded[..., 0], degraded[..., 1])
    np.testing.assert_array_equal(run(colour[..., 0], "rician", 2), degraded[..., 0])


def test_rician_severities_share_the_noise() -> None:
    grey = np.full((200, 200), 128, np.uint8)
    mild, strong = (run(grey, "rician", severity).astype(float).ravel() for severity in (1, 3))
    assert np.corrcoef(mild, strong)[0, 1] > 0.97


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(("severity", "keep"), [(1, 0.90), (2, 0.80), (3, 0.70)])
def test_crop_window_by_the_rule(name: str, severity: int, keep: float) -> None:
    image = IMAGES[name]
    height, width = image.shape[:2]
    u, v = stream("fov_crop").random(2)
    h, w = round(keep * height), round(keep * width)
    top, left = math.floor(u * (height - h)), math.floor(v * (width - w))
    np.testing.assert_array_equal(run(image, "fov_crop", severity), image[top : top + h, left : left + w])


def test_crop_corners_spread_over_the_image() -> None:
    y, x = np.mgrid[0:100, 0:100]
    corners = []
    for index in range(60):
        cropped = degrade(
            np.dstack([y, x, x]).astype(np.uint8), dataset="d", image_id=str(index), perturbation="fov_crop", severity=3
        )
        corners.append(cropped[0, 0, :2])
    spread = np.array(corners)
    assert spread.min() < 4
    assert spread.max() > 25
    assert abs(np.corrcoef(spread.T)[0, 1]) < 0.4


@pytest.mark.parametrize("perturbation", [family.id for family in PROTOCOL.perturbations if family.id != "fov_crop"])
@pytest.mark.parametrize("name", IMAGES)
def test_error_grows_with_severity(perturbation: str, name: str) -> None:
    image = IMAGES[name].astype(int)
    errors = [np.abs(run(IMAGES[name], perturbation, severity) - image).mean() for severity in (1, 2, 3)]
    assert 0 < errors[0] < errors[1] < errors[2]


@pytest.mark.parametrize("perturbation", ["gaussian_blur", "jpeg", "contrast"])
@pytest.mark.parametrize("level", [0, 8, 200, 255])
def test_a_flat_grey_image_has_nothing_to_lose(perturbation: str, level: int) -> None:
    flat = np.full((64, 64), level, np.uint8)
    degraded = run(flat, perturbation, 3).astype(int)
    # JPEG at quality 5 keeps the block mean to half of the DC step: 16 x 10 / 8 / 2 = 10 grey levels.
    assert np.abs(degraded - level).max() <= (10 if perturbation == "jpeg" else 0)
