import numpy as np
import pytest

from crs_assets.science.images import inspect_image


def disc(height: int, width: int, radius: float, inside: int, outside: int) -> np.ndarray:
    y, x = np.mgrid[0:height, 0:width]
    within = (y - height / 2) ** 2 + (x - width / 2) ** 2 < radius**2
    return np.where(within, inside, outside).astype(np.uint8)


@pytest.mark.parametrize("channels", [None, 3])
@pytest.mark.parametrize(
    ("pixels", "flags"),
    [
        (disc(100, 100, 45, 200, 30), ()),
        (np.full((100, 100), 7, np.uint8), ("zero_variance",)),
        (disc(63, 80, 30, 200, 30), ("small",)),
        (disc(64, 256, 60, 200, 30), ()),
        (disc(64, 257, 60, 200, 30), ("extreme_aspect",)),
        (disc(100, 100, 30, 200, 2), ("black_border",)),
        (disc(100, 100, 40, 200, 2), ()),
        (disc(100, 100, 45, 30, 200), ("bright_corners",)),
        (disc(100, 100, 45, 9, 0), ("black_border",)),
    ],
)
def test_flags(pixels: np.ndarray, flags: tuple[str, ...], channels: int | None) -> None:
    assert inspect_image(pixels if channels is None else np.dstack([pixels] * channels)) == flags


def test_bright_corners_of_a_colour_photograph_are_no_inversion() -> None:
    lesion = disc(100, 100, 45, 60, 200)
    assert inspect_image(np.dstack([lesion, lesion // 2, lesion // 3])) == ()
