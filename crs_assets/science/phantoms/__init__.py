"""Procedural phantoms: made images in the true layouts of the sets they stand for, written in seconds.

They carry a made signal in structure and texture, so that every stage runs on them and encoders differ. They are no
medical images, and a number measured on them says nothing about medicine.
"""

from crs_assets.science.phantoms.gallery import contact_sheet
from crs_assets.science.phantoms.writing import (
    MARKER,
    PHANTOMS,
    PhantomError,
    PhantomType,
    phantom_version,
    write_phantom,
)

__all__ = [
    "MARKER",
    "PHANTOMS",
    "PhantomError",
    "PhantomType",
    "contact_sheet",
    "phantom_version",
    "write_phantom",
]
