"""The one error of this package: an image that cannot be used, with a short code that tables can count."""

from typing import Literal

ReasonType = Literal[
    "bad_reference",
    "corrupt_data",
    "dicom_incomplete",
    "dicom_plugin_missing",
    "dicom_unsupported",
    "empty_file",
    "git_lfs_pointer",
    "missing_file",
    "multi_frame",
    "not_an_image",
    "too_large",
    "too_small",
    "truncated",
    "unreadable_file",
    "unsafe_path",
    "unsupported_mode",
    "unsupported_range",
]


class ImageError(ValueError):
    """An image that cannot be used.

    The message says what was seen and what to do, never the path: paths can carry patient identifiers, and the caller
    knows which row it asked for.

    Attributes:
        reason: A stable code, for quarantine tables.
    """

    def __init__(self, reason: ReasonType, message: str) -> None:
        super().__init__(message)
        self.reason: ReasonType = reason

    def __reduce__(self) -> tuple[type["ImageError"], tuple[ReasonType, str]]:
        """Survive the way back from a worker process."""
        return type(self), (self.reason, str(self))
