import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science.images import degrade, iterate_degradations, pixel_digest, single_threaded
from crs_assets.science.protocol import load_protocol

PROTOCOL = load_protocol("crs-v1")
CONDITIONS = [(c.perturbation, c.severity) for c in PROTOCOL.degradations()]
PERTURBATIONS = [family.id for family in PROTOCOL.perturbations]

# Runs in a fresh interpreter: images by id, conditions in the given order, digests to standard output.
CHILD = """
import json, sys
import cv2, numpy as np
from crs_assets.science.images import degrade, pixel_digest
cv2.setNumThreads(int(sys.argv[2]))
digests = {}
for image_id, shape, perturbation, severity in json.loads(sys.argv[1]):
    image = np.random.default_rng(len(image_id)).integers(0, 256, shape, dtype=np.uint8)
    pixels = degrade(image, dataset="d", image_id=image_id, perturbation=perturbation, severity=severity)
    digests[f"{image_id}|{perturbation}|{severity}"] = pixel_digest(pixels)
print(json.dumps(digests))
"""


def noise_image(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_independent_of_process_order_and_threads() -> None:
    tasks = [(i, s, p, k) for i, s in (("a", [61, 80]), ("bb", [90, 70, 3])) for p, k in CONDITIONS]
    shuffled = [tasks[i] for i in np.random.default_rng(1).permutation(len(tasks))]
    runs = [
        subprocess.run([sys.executable, "-c", CHILD, json.dumps(order), threads], capture_output=True, text=True)
        for order, threads in ((tasks, "1"), (shuffled, "2"))
    ]
    assert [run.stderr for run in runs] == ["", ""]
    forward, backward = (json.loads(run.stdout) for run in runs)
    assert forward == backward
    here = {
        f"{image_id}|{condition.perturbation}|{condition.severity}": pixel_digest(pixels)
        for image_id, shape in (("a", (61, 80)), ("bb", (90, 70, 3)))
        for condition, pixels in iterate_degradations(
            noise_image(shape, seed=len(image_id)), dataset="d", image_id=image_id
        )
    }
    assert forward == here


@pytest.mark.parametrize("protocol", ["crs-v1", "demo-v1"])
@pytest.mark.parametrize("shape", [(50, 40), (50, 40, 1), (40, 50, 3)])
def test_iteration_is_bit_identical_to_single_calls(protocol: str, shape: tuple[int, ...]) -> None:
    image, loaded = noise_image(shape), load_protocol(protocol)
    versions = list(iterate_degradations(image, dataset="d", image_id="i", protocol=loaded))
    assert [condition for condition, _ in versions] == list(loaded.degradations())
    for condition, pixels in versions:
        single = degrade(
            image,
            dataset="d",
            image_id="i",
            perturbation=condition.perturbation,
            severity=condition.severity,
            protocol=protocol,
        )
        np.testing.assert_array_equal(pixels, single)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 48),
    st.integers(2, 48),
    st.sampled_from([None, 1, 3]),
    st.sampled_from(CONDITIONS),
    st.integers(0, 9),
)
def test_shapes(h: int, w: int, channels: int | None, condition: tuple[str, int], seed: int) -> None:
    image = noise_image((h, w) if channels is None else (h, w, channels), seed)
    before = image.copy()
    perturbation, severity = condition
    degraded = degrade(image, dataset="d", image_id="i", perturbation=perturbation, severity=severity)
    assert degraded.dtype == np.uint8
    assert degraded.ndim == image.ndim
    np.testing.assert_array_equal(image, before)
    assert not np.shares_memory(degraded, image)
    if perturbation != "fov_crop":
        assert degraded.shape == image.shape
        return
    keep = {1: 0.9, 2: 0.8, 3: 0.7}[severity]
    assert degraded.shape == (round(keep * h), round(keep * w), *image.shape[2:])


@pytest.mark.parametrize("shape", [(2, 300), (300, 2), (40, 640)])
def test_extreme_aspect(shape: tuple[int, int]) -> None:
    assert len(list(iterate_degradations(noise_image(shape), dataset="d", image_id="i"))) == len(CONDITIONS)


@pytest.mark.parametrize("perturbation", PERTURBATIONS)
def test_layout_in_memory_is_irrelevant(perturbation: str) -> None:
    image = noise_image((60, 50, 3))
    strided = np.asfortranarray(image)
    read_only = image.copy()
    read_only.flags.writeable = False
    results = [
        degrade(x, dataset="d", image_id="i", perturbation=perturbation, severity=2)
        for x in (image, strided, read_only)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


@pytest.mark.parametrize("perturbation", ["rician", "fov_crop"])
def test_randomness_depends_on_image_data_set_and_salt(perturbation: str) -> None:
    image = noise_image((120, 130))
    digests = {
        pixel_digest(degrade(image, dataset=d, image_id=i, perturbation=perturbation, severity=3, protocol=p))
        for d, i, p in (("d", "i", "crs-v1"), ("e", "i", "crs-v1"), ("d", "j", "crs-v1"), ("d", "i", "demo-v1"))
    }
    assert len(digests) == 4


@pytest.mark.parametrize("perturbation", ["gaussian_blur", "jpeg", "contrast"])
def test_the_other_families_depend_on_pixels_alone(perturbation: str) -> None:
    image = noise_image((40, 50))
    one, other = (degrade(image, dataset="d", image_id=i, perturbation=perturbation, severity=2) for i in ("i", "j"))
    np.testing.assert_array_equal(one, other)


def test_strength_is_relative_to_the_short_side() -> None:
    # A step edge blurred at twice the size is the same edge, twice as wide.
    small, large = np.zeros((100, 100), np.uint8), np.zeros((200, 200), np.uint8)
    small[:, 50:], large[:, 100:] = 255, 255
    blurred = [
        degrade(x, dataset="d", image_id="i", perturbation="gaussian_blur", severity=3)[50].astype(float)
        for x in (small, large)
    ]
    assert np.abs(blurred[1].reshape(100, 2).mean(axis=1) - blurred[0]).max() < 4


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((9, 9), np.float32), "uint8"),
        ([[0, 1], [1, 0]], "uint8"),
        (np.zeros(9, np.uint8), "shape"),
        (np.zeros((9, 9, 4), np.uint8), "shape"),
        (np.zeros((2, 9, 9, 3), np.uint8), "shape"),
        (np.zeros((1, 9), np.uint8), "at least 2"),
        (np.zeros((9, 0, 3), np.uint8), "at least 2"),
    ],
)
def test_refused_images(image: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        degrade(image, dataset="d", image_id="i", perturbation="jpeg", severity=1)
    with pytest.raises(ValueError, match=message):
        next(iterate_degradations(image, dataset="d", image_id="i"))


def test_refused_conditions() -> None:
    image = noise_image((9, 9))
    with pytest.raises(ValueError, match="unknown perturbation 'fog'"):
        degrade(image, dataset="d", image_id="i", perturbation="fog", severity=1)
    with pytest.raises(ValueError, match="no severity 2"):
        degrade(image, dataset="d", image_id="i", perturbation="jpeg", severity=2, protocol="demo-v1")


def test_single_threaded_restores_the_setting() -> None:
    import cv2

    before = cv2.getNumThreads()
    with single_threaded():
        assert cv2.getNumThreads() == 1
    assert cv2.getNumThreads() == before


def test_single_threaded_restores_the_setting_after_an_error() -> None:
    import cv2

    before = cv2.getNumThreads()
    try:
        with single_threaded():
            raise KeyError
    except KeyError:
        assert cv2.getNumThreads() == before
