"""OpenCV's threads, restrained only where a caller asks for it."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run OpenCV on the calling thread inside the block, as workers that share the cores should; restores the setting.

    Pixels do not depend on it.
    """
    import cv2

    before = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        yield
    finally:
        cv2.setNumThreads(before)
