"""Images: decoding (``decode``, ``sources``), quality flags, working resolution, degradations, pixel provenance."""

from crs_assets.science.images.decode import pixel_digest, read_image
from crs_assets.science.images.degradations import degrade, iterate_degradations
from crs_assets.science.images.dicom import has_burned_in_annotation, is_dicom
from crs_assets.science.images.errors import ImageError
from crs_assets.science.images.provenance import (
    PixelMismatch,
    check_golden,
    extra_pixel_fingerprint,
    library_versions,
    pixel_fingerprint,
)
from crs_assets.science.images.quality import inspect_image
from crs_assets.science.images.resize import to_working_resolution
from crs_assets.science.images.sources import load_image
from crs_assets.science.images.threads import single_threaded

__all__ = [
    "ImageError",
    "PixelMismatch",
    "check_golden",
    "degrade",
    "extra_pixel_fingerprint",
    "has_burned_in_annotation",
    "inspect_image",
    "is_dicom",
    "iterate_degradations",
    "library_versions",
    "load_image",
    "pixel_digest",
    "pixel_fingerprint",
    "read_image",
    "single_threaded",
    "to_working_resolution",
]
