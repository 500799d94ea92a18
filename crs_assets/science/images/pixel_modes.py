"""From Pillow's pixel modes to 8-bit grey or RGB, one explicit rule per mode, none left to an implicit conversion.

Rules that lose information, and why:
    16-bit grey  divided by 2**b - 1, b the smallest of 8, 10, 12, 14, 16 bits that holds the image's maximum: medical
                 exports keep the detector's 10, 12 or 14 bits in 16-bit files, and dividing those by 65,535 blackens
                 them. A very dark image can be taken for one of fewer bits; where the bits are known, declare them.
    float32      accepted in [0, 1] only: any other range says nothing about black and white.
    alpha        dropped where constant (exports of plain images), else flattened on black, the surround of radiographs
                 and fundus photographs.
"""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crs_assets.science.images.errors import ImageError

STORED_BITS = (8, 10, 12, 14, 16)

_PNG_BIT_DEPTH, _PNG_COLOUR_TYPE = 24, 25
_TIFF_BITS_PER_SAMPLE, _TIFF_PHOTOMETRIC = 258, 262
_WHITE_IS_ZERO = 0


def to_uint8(image: Image.Image, data: bytes, stored_bits: int | None = None) -> NDArray[np.uint8]:
    """8-bit pixels of a loaded Pillow image.

    Args:
        image: Loaded, first frame.
        data: The file it came from; its header says what Pillow's mode hides.
        stored_bits: Bits that a 16-bit grey image really uses; inferred from its maximum where None.

    Returns:
        (height, width) for grey modes, else (height, width, 3).

    Raises:
        ImageError: ``unsupported_mode`` or ``unsupported_range``.
    """
    _refuse_hidden_depth(image, data)
    mode = image.mode
    if mode.startswith("I;16"):
        return _from_integers(np.asarray(image), stored_bits)
    if mode == "F":
        return _from_floats(np.asarray(image))
    if mode in ("P", "PA"):
        has_alpha = mode == "PA" or "transparency" in image.info
        image = image.convert("RGBA" if has_alpha else "RGB")
    elif mode in ("CMYK", "YCbCr", "RGBX"):
        image = image.convert("RGB")
    elif mode == "1":
        image = image.convert("L")
    if image.mode in ("L", "RGB"):
        return np.array(image, dtype=np.uint8)
    if image.mode in ("LA", "RGBA"):
        return _without_alpha(np.asarray(image))
    raise ImageError("unsupported_mode", f"pixel mode {mode!r}; convert the file to 8-bit grey or RGB.")


def _refuse_hidden_depth(image: Image.Image, data: bytes) -> None:
    """Refuse what Pillow would reduce to its high bytes, or show inverted, without a word."""
    tags = getattr(image, "tag_v2", {})
    if image.format == "PNG":
        deep_colour = data[_PNG_BIT_DEPTH] == 16 and data[_PNG_COLOUR_TYPE] != 0
    else:
        bits = tags.get(_TIFF_BITS_PER_SAMPLE, (8,))
        deep_colour = len(bits) > 1 and max(bits) > 8
    if deep_colour:
        raise ImageError("unsupported_mode", "colour or alpha with 16 bits per channel; convert the file to 8 bits.")
    if image.mode.startswith("I;16") and tags.get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO:
        raise ImageError("unsupported_mode", "16-bit grey in which 0 is white; invert it and save it with 0 as black.")


def _from_integers(values: NDArray[np.uint16], stored_bits: int | None) -> NDArray[np.uint8]:
    top = int(values.max())
    bits = stored_bits or next(bits for bits in STORED_BITS if top < 1 << bits)
    if top >= 1 << bits:
        raise ImageError("unsupported_range", f"a value of {top} does not fit the declared {bits} bits; correct them.")
    levels: NDArray[np.uint8] = np.rint(np.arange(1 << bits) * 255 / ((1 << bits) - 1)).astype(np.uint8)
    return np.take(levels, values)


def _from_floats(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    low, high = float(values.min()), float(values.max())
    if not (low >= 0 and high <= 1):
        seen = f"{low:g} to {high:g}" if np.isfinite([low, high]).all() else "values that are not finite"
        raise ImageError("unsupported_range", f"float pixels of {seen}; expected 0 (black) to 1 (white); rescale them.")
    scaled: NDArray[np.uint8] = np.rint(values * np.float32(255)).astype(np.uint8)
    return scaled


def _without_alpha(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    colour, alpha = pixels[..., :-1], pixels[..., -1:]
    if alpha.min() != alpha.max():
        colour = np.rint(colour * (alpha / np.float32(255))).astype(np.uint8)
    return np.array(colour[..., 0] if colour.shape[-1] == 1 else colour)
