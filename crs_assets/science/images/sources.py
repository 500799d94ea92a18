"""From the reference of an index row to pixels: a relative path under a root, or one entry of an npz archive."""

import re
from functools import lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.images.decode import MAX_PIXELS, MIN_SIDE, read_image
from crs_assets.science.images.errors import ImageError

NPZ = "npz:"
"""What the reference of one image of an archive begins with."""
_NPZ_REFERENCE = re.compile(NPZ + r"(?P<file>.+\.npz)#(?P<key>[^/]+)/(?P<index>\d+)")


def load_image(
    root: Path,
    reference: str,
    *,
    min_side: int = MIN_SIDE,
    max_pixels: int = MAX_PIXELS,
    stored_bits: int | None = None,
) -> NDArray[np.uint8]:
    """Load the image that a row of an index refers to.

    Args:
        root: The data set's folder; nothing outside it is ever read.
        reference: ``folder/name.png`` relative to the root with ``/`` separators, or ``npz:<file>#<array>/<index>``
            for one image of a uint8 array (images, height, width[, 3]).
        min_side: Smallest accepted height and width, pixels.
        max_pixels: Largest accepted height x width.
        stored_bits: See ``read_image``.

    Returns:
        (height, width) or (height, width, 3), C-contiguous, writable.

    Raises:
        ImageError: With the reason as a code; the message never contains the path.
    """
    if not reference.startswith(NPZ):
        path = resolve_inside(root, reference)
        return read_image(path, min_side=min_side, max_pixels=max_pixels, stored_bits=stored_bits)
    match = _NPZ_REFERENCE.fullmatch(reference)
    if match is None:
        raise ImageError("bad_reference", "an npz reference must read npz:<file>.npz#<array>/<index>.")
    path = resolve_inside(root, match["file"])
    return _npz_entry(path, match["key"], int(match["index"]), min_side=min_side, max_pixels=max_pixels)


def resolve_inside(root: Path, reference: str) -> Path:
    """The file under the root that a relative reference names.

    Raises:
        ImageError: ``unsafe_path`` for an absolute path, a drive, a backslash, ``..`` or a link that leads out of the
            root; ``bad_reference`` for an empty reference.
    """
    if not reference or "\0" in reference:
        raise ImageError("bad_reference", "the reference is empty or holds a NUL character; correct the index row.")
    posix, windows = PurePosixPath(reference), PureWindowsPath(reference)
    if posix.is_absolute() or windows.drive or windows.root or "\\" in reference or ".." in posix.parts:
        raise ImageError(
            "unsafe_path", "expected a path relative to the data root, with / separators and without `..`."
        )
    try:
        resolved_root, path = root.resolve(), (root / posix).resolve()
    except (RuntimeError, OSError):
        # A loop of links; its message would name the path.
        raise ImageError("unsafe_path", "its links lead in a circle; copy the file into the root.") from None
    if not path.is_relative_to(resolved_root):
        raise ImageError("unsafe_path", "the path leaves the data root through a link; copy the file into the root.")
    return path


def _npz_entry(path: Path, key: str, index: int, *, min_side: int, max_pixels: int) -> NDArray[np.uint8]:
    try:
        status = path.stat()
    except FileNotFoundError:
        raise ImageError("missing_file", "no npz file at this path; check the data root and the index.") from None
    images = _npz_array(str(path), status.st_mtime_ns, status.st_size, key)
    if index >= len(images):
        raise ImageError("bad_reference", f"index {index} of an array of {len(images)} images; correct the index row.")
    height, width = images.shape[1:3]
    if min(height, width) < min_side:
        raise ImageError("too_small", f"{width} x {height} pixels, below the minimum side of {min_side}.")
    if height * width > max_pixels:
        raise ImageError("too_large", f"{width} x {height} pixels, above the limit of {max_pixels}; reduce the image.")
    return np.array(images[index], order="C")


# An archive is decompressed as a whole: without a memory of the last one, reading n images would cost n times that.
@lru_cache(maxsize=2)
def _npz_array(path: str, _modified_ns: int, _size: int, key: str) -> NDArray[np.uint8]:
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            if key not in archive:
                raise ImageError("bad_reference", f"no array {key!r}; the archive has {sorted(archive.files)}.")
            images: NDArray[np.uint8] = archive[key]
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        if isinstance(error, ImageError):
            raise
        raise ImageError("corrupt_data", "the npz archive cannot be read; fetch it again.") from None
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or (images.ndim == 4 and images.shape[3] != 3):
        raise ImageError(
            "unsupported_mode",
            f"array of {images.dtype} and shape {images.shape}; expected uint8 (images, height, width[, 3]).",
        )
    return images
