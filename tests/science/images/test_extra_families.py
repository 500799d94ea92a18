"""The families beside the score against the formulas in float64, SciPy, and hand calculations."""

import hashlib
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, ndimage

from crs_assets.science.images import degrade, extra_pixel_fingerprint, iterate_degradations, pixel_digest
from crs_assets.science.images.extra_families import EXTRA_FAMILIES, disk
from crs_assets.science.images.families import FAMILIES
from crs_assets.science.protocol import load_protocol

PROTOCOL = load_protocol("crs-v1")
EXTRA = PROTOCOL.analyses.perturbations
CONDITIONS = [(condition.perturbation, condition.severity) for condition in PROTOCOL.extra_degradations()]
NAMES = [family.id for family in EXTRA]
# One degree of float32 and the step of linear light, which is 12.92 x 255 / 65535 grey levels wide at black.
SLACK = 0.06


def natural(shape: tuple[int, ...], seed: int = 5) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(shape)
    smooth = ndimage.gaussian_filter(noise, [3, 3] + [0] * (len(shape) - 2))
    return np.clip(128 + 60 * smooth / smooth.std(), 0, 255).astype(np.uint8)


IMAGES = {"grey": natural((90, 120)), "colour": natural((120, 90, 3)), "upscaled noise": natural((256, 300))}


def run(image: np.ndarray, perturbation: str, severity: int, image_id: str = "i") -> np.ndarray:
    return degrade(image, dataset="d", image_id=image_id, perturbation=perturbation, severity=severity)


def stream(perturbation: str, image_id: str = "i") -> np.random.Generator:
    key = hashlib.sha256(f"crs-v1|d|{image_id}|{perturbation}".encode()).digest()[:16]
    return np.random.Generator(np.random.SFC64(int.from_bytes(key, "big")))


def assert_rounds_to(degraded: np.ndarray, exact: np.ndarray, slack: float = 1e-3) -> None:
    assert degraded.dtype == np.uint8
    assert np.abs(degraded - np.clip(exact, 0, 255)).max() <= 0.5 + slack


def linear(value: np.ndarray) -> np.ndarray:
    """IEC 61966-2-1, of a grey level."""
    share = np.asarray(value, dtype=np.float64) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def stored(intensity: np.ndarray) -> np.ndarray:
    clipped = np.clip(intensity, 0, 1)
    return 255 * np.where(clipped <= 0.0031308, 12.92 * clipped, 1.055 * clipped ** (1 / 2.4) - 0.055)


def interpolation_matrix(source: int, size: int) -> np.ndarray:
    """Bilinear interpolation at pixel centres, edges repeated, as a (size, source) matrix."""
    position = np.clip((np.arange(size) + 0.5) * source / size - 0.5, 0, source - 1)
    return np.maximum(0, 1 - np.abs(position[:, None] - np.arange(source)))


def test_every_family_of_the_protocol_is_implemented_and_none_is_of_the_score() -> None:
    assert list(EXTRA_FAMILIES) == NAMES
    assert not set(EXTRA_FAMILIES) & set(FAMILIES)
    assert not {family.id for family in PROTOCOL.perturbations} & set(NAMES)


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(("severity", "electrons"), [(1, 400), (2, 100), (3, 25)])
def test_sensor_noise_agrees_with_the_formula(name: str, severity: int, electrons: int) -> None:
    image = IMAGES[name]
    h, w = image.shape[:2]
    grid = (224, round(224 * w / h)) if h <= w else (round(224 * h / w), 224)
    channels = 1 if image.ndim == 2 else 3
    draw = stream("sensor_noise").standard_normal((channels, *grid), dtype=np.float32).astype(np.float64)
    rows, columns = interpolation_matrix(grid[0], h), interpolation_matrix(grid[1], w)
    noise = np.einsum("ij,cjk,lk->cil", rows, draw, columns, optimize=True)
    noise /= noise.std(axis=(1, 2), keepdims=True)
    signal = linear(image.reshape(h, w, channels).transpose(2, 0, 1))
    noisy = signal + np.sqrt(signal / electrons + (2 / electrons) ** 2) * noise
    assert_rounds_to(run(image, "sensor_noise", severity), stored(noisy).transpose(1, 2, 0).reshape(image.shape), SLACK)


@pytest.mark.parametrize(("severity", "electrons"), [(1, 400), (2, 100), (3, 25)])
def test_photoelectrons_are_counted_as_a_poisson_variable(severity: int, electrons: int) -> None:
    """At the size of the noise grid: mean and standard deviation of simulated counts, where nothing is clipped."""
    degraded = run(np.full((224, 224), 160, np.uint8), "sensor_noise", severity)
    rng = np.random.default_rng(0)
    mean = electrons * float(linear(np.array(160)))
    counts = (rng.poisson(mean, 200_000) + rng.normal(0, 2, 200_000)) / electrons
    seen = linear(degraded)
    assert seen.std() == pytest.approx(counts.std(), rel=0.03)
    assert seen.mean() == pytest.approx(counts.mean(), rel=0.01)


def test_noise_depends_on_the_signal() -> None:
    dark, bright = (linear(run(np.full((224, 224), v, np.uint8), "sensor_noise", 1)).std() for v in (60, 200))
    # Deviations sqrt(y / 400 + (2 / 400)^2) with y = 0.0452 and 0.5776: 0.01175 and 0.03833.
    assert dark == pytest.approx(0.01175, rel=0.03)
    assert bright == pytest.approx(0.03833, rel=0.03)


def test_noise_of_channels_differs_and_a_grey_image_gets_the_first() -> None:
    colour = np.full((60, 70, 3), 100, np.uint8)
    degraded = run(colour, "sensor_noise", 2)
    assert not np.array_equal(degraded[..., 0], degraded[..., 1])
    np.testing.assert_array_equal(run(colour[..., 0], "sensor_noise", 2), degraded[..., 0])


def exact_disk(radius: float) -> np.ndarray:
    """Area that a disk shares with each pixel, by integrating the height of its chord within the pixel."""
    reach = math.ceil(radius - 0.5)

    def area(row: int, column: int) -> float:
        def height(x: float) -> float:
            half = math.sqrt(max(radius**2 - x**2, 0))
            return max(0.0, min(row + 0.5, half) - max(row - 0.5, -half))

        return float(integrate.quad(height, column - 0.5, column + 0.5, limit=200)[0])

    size = range(-reach, reach + 1)
    weights = np.array([[area(row, column) for column in size] for row in size])
    return weights / weights.sum()


@pytest.mark.parametrize("sigma", [0.1, 0.72, 1.5, 3.0])
def test_the_disk_covers_its_share_of_each_pixel(sigma: float) -> None:
    kernel = disk(sigma)
    assert kernel.sum(dtype=np.float64) == pytest.approx(1, abs=1e-6)
    np.testing.assert_array_equal(kernel, kernel.T)
    np.testing.assert_array_equal(kernel, kernel[::-1, ::-1])
    expected = exact_disk(2 * sigma)
    assert kernel.shape == expected.shape
    # Its edge is sampled at 16 x 16 points per pixel.
    assert np.abs(kernel - expected).max() <= 0.02 * expected.max()


@pytest.mark.parametrize("sigma", [4.0, 10.0, 16.384])
def test_the_disks_standard_deviation_along_an_axis_is_sigma(sigma: float) -> None:
    kernel = disk(sigma).astype(np.float64)
    offsets = np.arange(len(kernel)) - len(kernel) // 2
    # A pixel is itself a square of variance 1/12.
    assert math.sqrt((kernel.sum(axis=0) * offsets**2).sum() - 1 / 12) == pytest.approx(sigma, rel=0.01)


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(("severity", "fraction"), [(1, 0.008), (2, 0.016), (3, 0.032)])
def test_defocus_agrees_with_scipy(name: str, severity: int, fraction: float) -> None:
    image = IMAGES[name]
    kernel = disk(fraction * min(image.shape[:2])).astype(np.float64)
    planes = image.reshape(*image.shape[:2], -1).astype(np.float64)
    # scipy's "mirror" repeats without the edge pixel: reflect-101.
    exact = np.stack([ndimage.correlate(plane, kernel, mode="mirror") for plane in planes.transpose(2, 0, 1)], axis=-1)
    assert_rounds_to(run(image, "defocus", severity), exact.reshape(image.shape), 2e-3)


def test_a_spot_out_of_focus_is_spread_over_the_disk() -> None:
    # sigma = 0.032 x 201 = 6.43, so a disk of radius 12.86 and area 519.8, which holds all but the square's corners
    # (half diagonal 14.8): in the middle at most 441 / 519.8 of full scale. Along an axis light ends at 10.5 + 12.9.
    image = np.zeros((201, 201), np.uint8)
    image[90:111, 90:111] = 255
    blurred = run(image, "defocus", 3).astype(float)
    assert 0.93 * 255 * 441 / 519.8 < blurred[100, 100] <= 255 * 441 / 519.8
    assert blurred.sum() == pytest.approx(255 * 441, rel=0.01)
    assert blurred[100, 124] == 0
    assert blurred[100, 122] > 0


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize(("severity", "stops"), [(1, 0.5), (2, 1.0), (3, 2.0)])
@pytest.mark.parametrize("image_id", ["i", "j", "k", "l"])
def test_exposure_agrees_with_the_formula(name: str, severity: int, stops: float, image_id: str) -> None:
    sign = -1 if stream("exposure", image_id).random() < 0.5 else 1
    exact = stored(linear(IMAGES[name]) * 2 ** (sign * stops))
    assert_rounds_to(run(IMAGES[name], "exposure", severity, image_id), exact)


def test_exposure_by_hand() -> None:
    # 188 is 0.5029 of linear light (sRGB's half): a stop more is full scale, a stop less 0.2514, stored as 137.
    brighter = next(i for i in "abcdefgh" if stream("exposure", i).random() >= 0.5)
    darker = next(i for i in "abcdefgh" if stream("exposure", i).random() < 0.5)
    image = np.full((4, 4), 188, np.uint8)
    assert set(np.unique(run(image, "exposure", 2, brighter))) == {255}
    assert set(np.unique(run(image, "exposure", 2, darker))) == {137}


def test_about_half_of_the_images_are_too_dark_at_every_severity() -> None:
    image = np.full((8, 8), 120, np.uint8)
    signs = np.array(
        [[np.sign(int(run(image, "exposure", k, str(i))[0, 0]) - 120) for k in (1, 2, 3)] for i in range(80)]
    )
    assert (signs == signs[:, :1]).all()
    # Of 80 fair coins 24 to 56 lie within 3.6 standard deviations.
    assert 24 <= (signs[:, 0] < 0).sum() <= 56


@pytest.mark.parametrize("perturbation", NAMES)
@pytest.mark.parametrize("name", IMAGES)
def test_error_grows_with_severity(perturbation: str, name: str) -> None:
    image = IMAGES[name].astype(int)
    errors = [np.abs(run(IMAGES[name], perturbation, severity) - image).mean() for severity in (1, 2, 3)]
    assert 0 < errors[0] < errors[1] < errors[2]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 48),
    st.integers(2, 48),
    st.sampled_from([None, 1, 3]),
    st.sampled_from(CONDITIONS),
    st.integers(0, 9),
)
def test_shapes(h: int, w: int, channels: int | None, condition: tuple[str, int], seed: int) -> None:
    shape = (h, w) if channels is None else (h, w, channels)
    image = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    before = image.copy()
    degraded = run(image, *condition)
    assert degraded.dtype == np.uint8
    assert degraded.shape == image.shape
    assert not np.shares_memory(degraded, image)
    np.testing.assert_array_equal(image, before)


@pytest.mark.parametrize("perturbation", ["defocus", "exposure"])
def test_a_grey_picture_in_colour_channels_stays_grey(perturbation: str) -> None:
    grey = IMAGES["grey"]
    degraded = run(np.repeat(grey[:, :, None], 3, axis=2), perturbation, 3)
    np.testing.assert_array_equal(degraded, np.repeat(run(grey, perturbation, 3)[:, :, None], 3, axis=2))


@pytest.mark.parametrize("level", [0, 8, 200, 255])
def test_a_flat_image_has_nothing_to_lose_out_of_focus(level: int) -> None:
    np.testing.assert_array_equal(run(np.full((64, 64), level, np.uint8), "defocus", 3), level)


def test_iteration_is_bit_identical_to_single_calls_and_leaves_the_score_alone() -> None:
    image = IMAGES["colour"]
    versions = list(iterate_degradations(image, dataset="d", image_id="i", families=EXTRA))
    assert [(condition.perturbation, condition.severity) for condition, _ in versions] == CONDITIONS
    for condition, pixels in versions:
        np.testing.assert_array_equal(pixels, run(image, condition.perturbation, condition.severity))
    scored = [condition.perturbation for condition, _ in iterate_degradations(image, dataset="d", image_id="i")]
    assert not set(scored) & set(NAMES)


CHILD = """
import json, sys
import cv2, numpy as np
from crs_assets.science.images import degrade, pixel_digest
cv2.setNumThreads(int(sys.argv[2]))
image = np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8)
print(json.dumps([
    pixel_digest(degrade(image, dataset="d", image_id="i", perturbation=p, severity=s))
    for p, s in json.loads(sys.argv[1])
]))
"""


def test_independent_of_process_order_and_threads() -> None:
    image = np.random.default_rng(0).integers(0, 256, (90, 70, 3), dtype=np.uint8)
    here = [pixel_digest(run(image, *condition)) for condition in CONDITIONS]
    for order, threads in ((CONDITIONS, "1"), (CONDITIONS[::-1], "2")):
        child = [sys.executable, "-c", CHILD, json.dumps(order), threads]
        found = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
        assert found == (here if order is CONDITIONS else here[::-1])


@pytest.mark.parametrize("perturbation", ["sensor_noise", "exposure"])
def test_randomness_depends_on_image_data_set_and_salt(perturbation: str) -> None:
    image = natural((120, 130))
    keys = [(d, i, p) for d in ("d", "e", "f") for i in "ijk" for p in ("crs-v1", "demo-v1")]
    digests = {
        pixel_digest(degrade(image, dataset=d, image_id=i, perturbation=perturbation, severity=3, protocol=p))
        for d, i, p in keys
    }
    # Exposure only draws a direction.
    assert len(digests) == (len(keys) if perturbation == "sensor_noise" else 2)


def test_out_of_focus_depends_on_pixels_alone() -> None:
    one, other = (run(IMAGES["grey"], "defocus", 2, image_id) for image_id in "ij")
    np.testing.assert_array_equal(one, other)


def test_fingerprint_holds_the_extra_families_and_what_they_share_with_the_others() -> None:
    assert set(extra_pixel_fingerprint()) == {*NAMES, "decode_jpeg", "decode_png", "resize_area"}
