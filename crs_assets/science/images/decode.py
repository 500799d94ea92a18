"""From the bytes of an image file to 8-bit pixels, or to a named reason why not.

One decoder per format, chosen by content and never by file name: JPEG of one or three channels by libjpeg-turbo through
simplejpeg (strict: a warning is an error), DICOM by the optional package pydicom, everything else by Pillow. The first
and the last are part of ``library_versions``.
"""

import hashlib
import io
import struct
import zlib
from pathlib import Path

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, ImageFile

from crs_assets.science.images.dicom import is_dicom, read_dicom
from crs_assets.science.images.errors import ImageError
from crs_assets.science.images.pixel_modes import to_uint8

FORMATS = ("JPEG", "PNG", "TIFF", "GIF", "BMP", "WEBP")
# Pillow's name for a JPEG followed by previews of itself; its first picture is the image.
JPEG_FORMATS = ("JPEG", "MPO")
MIN_SIDE = 16
# Pillow's own guard against decompression bombs, so that the two never disagree.
MAX_PIXELS = 89_478_485

_DECODING_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    TypeError,
    IndexError,
    KeyError,
    struct.error,
    zlib.error,
)
_BOMBS = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_ORIENTATION_TAG = 0x0112
_PNG_MAGIC = b"\x89PNG\r\n\x1a\n"
_KNOWN_MAGIC = (_PNG_MAGIC, b"\xff\xd8\xff", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*")
_PNG_END = b"IEND\xaeB`\x82"
_HTML_STARTS = (b"<!doctype html", b"<html")


def read_image(
    source: bytes | Path, *, min_side: int = MIN_SIDE, max_pixels: int = MAX_PIXELS, stored_bits: int | None = None
) -> NDArray[np.uint8]:
    """Decode one image.

    EXIF orientation is applied. Grey files give grey arrays and colour files RGB arrays, also where the three channels
    are equal. Palettes and CMYK become RGB; alpha is dropped where constant, else flattened on black; 16-bit grey and
    float32 in [0, 1] are scaled to 8 bits (rules: ``pixel_modes``). A file that lacks even its end marker is truncated.

    Args:
        source: The file's bytes, or where to read them.
        min_side: Smallest accepted height and width, pixels.
        max_pixels: Largest accepted height x width, checked before decoding; at most ``MAX_PIXELS`` has an effect.
        stored_bits: Bits that a 16-bit grey file really uses; inferred from its maximum where None.

    Returns:
        (height, width) or (height, width, 3), C-contiguous, writable.

    Raises:
        ImageError: With the reason as a code; the message never contains the path.
        RuntimeError: If Pillow was told to fill up truncated images, which would make the answer depend on the process.
    """
    data = source if isinstance(source, bytes) else read_bytes(source)
    _refuse_what_is_no_image(data)
    if is_dicom(data):
        return np.require(read_dicom(data, min_side=min_side, max_pixels=max_pixels), requirements=["C", "W"])
    image = _open(data)
    _check_header(image, min_side=min_side, max_pixels=max_pixels)
    if image.format in JPEG_FORMATS and image.mode in ("L", "RGB"):
        pixels = _decode_jpeg(data, grey=image.mode == "L")
    else:
        pixels = _decode_with_pillow(image, data, stored_bits)
    return np.require(_orient(pixels, _orientation(image)), requirements=["C", "W"])


def read_bytes(path: Path) -> bytes:
    """The bytes of a file.

    Raises:
        ImageError: ``missing_file`` or ``unreadable_file``.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ImageError("missing_file", "no file at this path; check the data root and the index.") from None
    except OSError as error:
        cause = error.strerror or type(error).__name__
        raise ImageError("unreadable_file", f"the file cannot be read ({cause}); check its permissions.") from None


def pixel_digest(pixels: NDArray[np.uint8]) -> str:
    """SHA-256 of shape, type and decoded pixels, as 64 hexadecimal digits; independent of how the file was encoded."""
    header = f"{'x'.join(map(str, pixels.shape))}|{pixels.dtype.name}|"
    return hashlib.sha256(header.encode("ascii") + np.ascontiguousarray(pixels).tobytes()).hexdigest()


def _refuse_what_is_no_image(data: bytes) -> None:
    if not data:
        raise ImageError("empty_file", "the file has 0 bytes; fetch it again.")
    if data.startswith(b"version https://git-lfs"):
        raise ImageError(
            "git_lfs_pointer", "a Git LFS pointer in place of the image; run `git lfs pull` in its source."
        )
    if data[:64].lstrip().lower().startswith(_HTML_STARTS):
        raise ImageError("not_an_image", "an HTML page saved as an image (an expired link?); fetch the file again.")
    if data.startswith(_PNG_MAGIC) and _PNG_END not in data[-(1 << 16) :]:
        raise ImageError("truncated", "a PNG file without its end marker; fetch it again.")


def _open(data: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data), formats=FORMATS)
    except _BOMBS:
        raise ImageError("too_large", f"more than {MAX_PIXELS} pixels; reduce the image.") from None
    except (*_DECODING_ERRORS, Warning):
        if data.startswith(_KNOWN_MAGIC):
            raise ImageError("corrupt_data", "the file's header cannot be read; fetch it again.") from None
        raise ImageError("not_an_image", f"none of {', '.join(FORMATS)} by its content; convert the file.") from None


def _check_header(image: Image.Image, *, min_side: int, max_pixels: int) -> None:
    width, height = image.size
    if min(width, height) < min_side:
        raise ImageError("too_small", f"{width} x {height} pixels, below the minimum side of {min_side}.")
    if width * height > max_pixels:
        raise ImageError("too_large", f"{width} x {height} pixels, above the limit of {max_pixels}; reduce the image.")
    if image.format not in JPEG_FORMATS and _frames(image) > 1:
        raise ImageError("multi_frame", f"{_frames(image)} frames or pages; export the one to be read as its own file.")


def _frames(image: Image.Image) -> int:
    try:
        return int(getattr(image, "n_frames", 1))
    except (*_DECODING_ERRORS, Warning) as error:
        raise _damaged(str(error)) from None


def _decode_jpeg(data: bytes, *, grey: bool) -> NDArray[np.uint8]:
    try:
        pixels: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, colorspace="GRAY" if grey else "RGB", strict=True)
    except ValueError as error:
        raise _damaged(str(error)) from None
    return pixels[:, :, 0] if grey else pixels


def _decode_with_pillow(image: Image.Image, data: bytes, stored_bits: int | None) -> NDArray[np.uint8]:
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise RuntimeError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so damaged images would be filled up; unset it."
        )
    try:
        image.load()
    except _BOMBS:
        raise ImageError("too_large", f"more than {MAX_PIXELS} pixels; reduce the image.") from None
    except (*_DECODING_ERRORS, Warning) as error:
        raise _damaged(str(error)) from None
    return to_uint8(image, data, stored_bits)


def _damaged(cause: str) -> ImageError:
    cut = "truncated" in cause.lower() or "premature end" in cause.lower()
    if cut:
        return ImageError("truncated", f"the file is cut short ({cause}); fetch it again.")
    return ImageError("corrupt_data", f"the pixels cannot be decoded ({cause}); fetch the file again.")


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_ORIENTATION_TAG, 1))
    except (*_DECODING_ERRORS, Warning):
        return 1


def _orient(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """Apply the EXIF orientation (CIPA DC-008, tag 274); 1 and undefined values leave the pixels as they are."""
    if orientation in (5, 6, 7, 8):
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels
