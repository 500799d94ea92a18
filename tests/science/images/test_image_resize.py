import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science.images import to_working_resolution
from crs_assets.science.images.resize import resize_area, resize_bilinear, scaled_size

RNG = np.random.default_rng(11)


def area_average(values: np.ndarray, size: int) -> np.ndarray:
    """Mean over [i n / size, (i + 1) n / size) along the first axis, fractions of a pixel weighted."""
    edges = np.arange(size + 1) * len(values) / size
    integral = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    whole = np.minimum(edges.astype(int), len(values) - 1)
    fraction = (edges - whole).reshape(-1, *[1] * (values.ndim - 1))
    at_edges = integral[whole] + fraction * values[whole]
    return np.diff(at_edges, axis=0) * size / len(values)


def bilinear(values: np.ndarray, size: int) -> np.ndarray:
    """Linear interpolation at pixel centres along the first axis, edges repeated."""
    position = np.clip((np.arange(size) + 0.5) * len(values) / size - 0.5, 0, len(values) - 1)
    low = np.minimum(position.astype(int), max(len(values) - 2, 0))
    weight = (position - low)[:, None]
    return values[low] * (1 - weight) + values[np.minimum(low + 1, len(values) - 1)] * weight


# 700 x 1000 to 512: 512 / 700 x 1000 = 731.43; 3 x 7 to 2: 7 x 2 / 3 = 4.67; 4 x 5 to 2: 2.5, half to even 2.
@pytest.mark.parametrize(
    ("size", "short_side", "expected"),
    [
        ((700, 1000), 512, (512, 731)),
        ((1000, 700), 512, (731, 512)),
        ((3, 7), 2, (2, 5)),
        ((4, 5), 2, (2, 2)),
        ((900, 900), 512, (512, 512)),
        ((144, 200), 224, (224, 311)),
    ],
)
def test_scaled_size(size: tuple[int, int], short_side: int, expected: tuple[int, int]) -> None:
    assert scaled_size(*size, short_side) == expected


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 90), st.integers(2, 90), st.sampled_from([None, 3]), st.integers(1, 60))
def test_working_resolution_reduces_and_never_enlarges(h: int, w: int, channels: int | None, short_side: int) -> None:
    image = RNG.integers(0, 256, (h, w) if channels is None else (h, w, channels), dtype=np.uint8)
    reduced = to_working_resolution(image, short_side)
    assert reduced.ndim == image.ndim
    assert reduced.dtype == np.uint8
    if min(h, w) <= short_side:
        np.testing.assert_array_equal(reduced, image)
        return
    assert min(reduced.shape[:2]) == short_side
    assert reduced.shape[0] <= h
    assert reduced.shape[1] <= w


@pytest.mark.parametrize("size", [(64, 80, 32, 40), (61, 83, 37, 50), (100, 40, 99, 39), (50, 60, 7, 9)])
@pytest.mark.parametrize("channels", [None, 3])
def test_area_average_agrees_with_the_integral(size: tuple[int, int, int, int], channels: int | None) -> None:
    h, w, new_h, new_w = size
    image = RNG.integers(0, 256, (h, w) if channels is None else (h, w, channels), dtype=np.uint8)
    rows = area_average(image.astype(np.float64), new_h)
    expected = area_average(rows.swapaxes(0, 1), new_w).swapaxes(0, 1)
    assert np.abs(resize_area(image, new_h, new_w) - expected).max() <= 0.51


@pytest.mark.parametrize("size", [(224, 224, 144, 144), (224, 311, 512, 711), (5, 9, 5, 9), (4, 4, 2, 3)])
def test_bilinear_agrees_with_the_formula(size: tuple[int, int, int, int]) -> None:
    h, w, new_h, new_w = size
    plane = RNG.standard_normal((h, w), dtype=np.float32)
    expected = bilinear(bilinear(plane.astype(np.float64), new_h).T, new_w).T
    np.testing.assert_allclose(resize_bilinear(plane, new_h, new_w), expected, atol=3e-6)
