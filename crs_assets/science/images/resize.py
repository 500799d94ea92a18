"""Resampling: area averaging down to the working resolution, bilinear for the noise grid.

What an encoder does to its input belongs to the encoder; nothing here knows about it.
"""

import numpy as np
from numpy.typing import NDArray


def scaled_size(height: int, width: int, short_side: int) -> tuple[int, int]:
    """(height, width) of the same aspect with the given short side.

    The short side is met exactly; the long one is ``long * short_side / short`` rounded half to even, at least the
    short side.
    """
    short, long = min(height, width), max(height, width)
    scaled = max(short_side, round(long * short_side / short))
    return (short_side, scaled) if height <= width else (scaled, short_side)


def to_working_resolution(pixels: NDArray[np.uint8], short_side: int) -> NDArray[np.uint8]:
    """Reduce an image to a short side by area averaging; an image that is small enough is returned as it is.

    Args:
        pixels: (height, width) or (height, width, 3).
        short_side: Largest short side of the result, pixels.

    Returns:
        An image whose short side is at most ``short_side``, never enlarged; size by ``scaled_size``.
    """
    height, width = pixels.shape[:2]
    if min(height, width) <= short_side:
        return pixels
    return resize_area(pixels, *scaled_size(height, width, short_side))


def resize_area(pixels: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Shrink by averaging over the area that each new pixel covers (OpenCV ``INTER_AREA``)."""
    import cv2

    resized: NDArray[np.uint8] = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    return resized


def resize_bilinear(plane: NDArray[np.float32], height: int, width: int) -> NDArray[np.float32]:
    """Bilinear interpolation at pixel centres, edges repeated, without a low-pass filter (OpenCV ``INTER_LINEAR``).

    Args:
        plane: (rows, columns) float32.
        height: Rows of the result.
        width: Columns of the result.
    """
    import cv2

    resized: NDArray[np.float32] = cv2.resize(plane, (width, height), interpolation=cv2.INTER_LINEAR)
    return resized
