"""Signs that an image, though readable, may not be what a data set means it to be. They are counted, never fatal."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

FlagType = Literal["zero_variance", "extreme_aspect", "small", "black_border", "bright_corners", "burned_in_annotation"]

EXTREME_ASPECT = 4.0
SMALL_SIDE = 64
BLACK_LEVEL = 16
MIN_CONTENT_AREA = 0.5
CORNER_FRACTION = 0.1


def inspect_image(pixels: NDArray[np.uint8]) -> tuple[FlagType, ...]:
    """Quality flags of a decoded image.

    Args:
        pixels: (height, width) or (height, width, 3).

    Returns:
        In this order, those that hold:
        ``zero_variance`` every value is the same (a flat capture);
        ``extreme_aspect`` the long side is more than 4 times the short one;
        ``small`` the short side is below 64 pixels, every encoder enlarges the image several times;
        ``black_border`` what is brighter than black spans less than half of the area;
        ``bright_corners`` a grey image is brighter in its corners, taken together, than in its centre half, as an
        inverted film is (of upright chest radiographs about 1 in 200 is, too).
        The flag ``burned_in_annotation`` is not in the pixels: a DICOM file states it (``has_burned_in_annotation``).
    """
    height, width = pixels.shape[:2]
    short, long = sorted((height, width))
    checks: dict[FlagType, bool] = {
        "zero_variance": bool(pixels.min() == pixels.max()),
        "extreme_aspect": long > EXTREME_ASPECT * short,
        "small": short < SMALL_SIDE,
    }
    if not checks["zero_variance"]:
        checks["black_border"] = _content_area(pixels) < MIN_CONTENT_AREA
        checks["bright_corners"] = _is_grey(pixels) and _corners_outshine_centre(pixels)
    return tuple(flag for flag, holds in checks.items() if holds)


def _is_grey(pixels: NDArray[np.uint8]) -> bool:
    return pixels.ndim == 2 or bool((pixels == pixels[..., :1]).all())


def _content_area(pixels: NDArray[np.uint8]) -> float:
    """Area of the bounding box of what is brighter than black, as a fraction of the image."""
    bright = (pixels if pixels.ndim == 2 else pixels.max(axis=2)) > BLACK_LEVEL
    rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
    if rows.size == 0:
        return 0.0
    return float((rows[-1] - rows[0] + 1) * (columns[-1] - columns[0] + 1) / bright.size)


def _corners_outshine_centre(pixels: NDArray[np.uint8]) -> bool:
    height, width = pixels.shape[:2]
    h, w = max(1, round(height * CORNER_FRACTION)), max(1, round(width * CORNER_FRACTION))
    corners = (pixels[:h, :w], pixels[:h, -w:], pixels[-h:, :w], pixels[-h:, -w:])
    centre = pixels[height // 4 : height - height // 4, width // 4 : width - width // 4]
    return float(np.mean([corner.mean() for corner in corners])) > float(centre.mean())
