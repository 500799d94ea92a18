"""Prepared images kept between encoders: one that reads them as another does need not decode and degrade them again.

A shelf holds what one preparation makes of one image set, a row of uint8 arrays per image, each with a checksum. It is
scratch: whatever is missing, damaged or deleted is made again, and no result depends on whether it was there.
"""

import logging
import os
import shutil
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.canonical import digest

Uint8 = NDArray[np.uint8]
Make = Callable[[int], Sequence[Uint8]]

PIXELS_SUFFIX = ".pixels"
MARKS_SUFFIX = ".crc32"
MARK_BYTES = 8
# Never more than this share of what is free: features and predictions need the disk more.
FREE_SHARE = 0.5

_log = logging.getLogger(__name__)


@dataclass
class Shelf:
    """Rows of prepared images in one sparse file, filled as they are asked for, by any number of threads and processes.

    Attributes:
        path: Of the pixels; the checksums lie beside it.
        shape: Of a row: (conditions, S, S, 3).
    """

    path: Path
    shape: tuple[int, int, int, int]
    _usable: bool = field(default=True, repr=False)

    def load(self, row: int, make: Make) -> Sequence[Uint8]:
        """The row's images: from the shelf if they are there whole, else made, and put there.

        Args:
            row: Position in the image set.
            make: Makes the images of a row; what it raises is passed on.
        """
        kept = self._read(row)
        if kept is not None:
            return kept
        images = make(row)
        if self._usable:
            self._write(row, np.stack(images))
        return images

    def _read(self, row: int) -> Sequence[Uint8] | None:
        size = int(np.prod(self.shape))
        try:
            with self._marks.open("rb") as marks, self.path.open("rb") as pixels:
                mark = os.pread(marks.fileno(), MARK_BYTES, row * MARK_BYTES)
                if len(mark) < MARK_BYTES or not any(mark):
                    return None
                content = os.pread(pixels.fileno(), size, row * size)
        except OSError:
            return None
        if len(content) != size or _mark(content) != mark:
            return None
        return list(np.frombuffer(content, np.uint8).reshape(self.shape))

    def _write(self, row: int, images: Uint8) -> None:
        if images.shape != self.shape or images.dtype != np.uint8:
            raise ValueError(f"a row of {images.dtype} {images.shape}; this shelf holds uint8 {self.shape}.")
        content = images.tobytes()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _write_at(self.path, content, row * len(content))
            _write_at(self._marks, _mark(content), row * MARK_BYTES)
        except OSError as error:
            # A full disk makes the work slower, never wrong.
            self._usable = False
            _log.warning("prepared images are no longer kept: %s", error.strerror)

    @property
    def _marks(self) -> Path:
        return self.path.with_suffix(MARKS_SUFFIX)


@dataclass(frozen=True)
class PreparedImages:
    """The shelves of a home, bounded in size; the one used longest ago goes first.

    Attributes:
        folder: Where they lie; safe to delete at any time.
        limit_bytes: Upper bound of all together; 0 keeps nothing.
    """

    folder: Path
    limit_bytes: int

    def shelf(self, recipe: Mapping[str, Any], rows: int, shape: tuple[int, int, int, int]) -> Shelf | None:
        """A place for the images that a recipe makes, or None where there is no room for them.

        Args:
            recipe: Everything the pixels depend on.
            rows: Images of the set.
            shape: (conditions, S, S, 3) of a row.
        """
        path = self.folder / f"{digest(recipe)[:32]}{PIXELS_SUFFIX}"
        needed = rows * int(np.prod(shape))
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room(needed, path)
            room = needed - _on_disk(path) <= FREE_SHARE * shutil.disk_usage(self.folder).free
            if needed > self.limit_bytes or not room:
                return None
            path.touch()
        except OSError:
            return None
        return Shelf(path, shape)

    def _make_room(self, needed: int, keep: Path) -> None:
        others = sorted(
            (path for path in self.folder.glob(f"*{PIXELS_SUFFIX}") if path != keep),
            key=lambda path: path.stat().st_mtime_ns,
        )
        used = sum(map(_on_disk, others))
        for path in others:
            if used + needed <= self.limit_bytes:
                return
            used -= _on_disk(path)
            path.with_suffix(MARKS_SUFFIX).unlink(missing_ok=True)
            path.unlink(missing_ok=True)


def _mark(content: bytes) -> bytes:
    # The added one keeps the mark of a row that is there apart from a hole in the file.
    return (zlib.crc32(content) + 1).to_bytes(MARK_BYTES, "little")


def _write_at(path: Path, content: bytes, offset: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        if os.pwrite(descriptor, content, offset) != len(content):
            raise OSError(28, "no space left on the device")
    finally:
        os.close(descriptor)


def _on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512 if path.exists() else 0
