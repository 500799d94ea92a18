"""Canonical ids of images and groups: the same for every copy of a data set, because hashes of them seed everything.

An image id is ``<data set>/<image key>`` and a group id ``<data set>::<group>``, both in Unicode NFC. Keys carry no
root, no extension and no name of a release, so the small, the full and a re-packed copy of one data set agree. Case is
kept: ``ISIC_1`` and ``isic_1`` are different ids, and a table holding both is refused elsewhere.
"""

import re
import unicodedata

import polars as pl

IMAGE_EXTENSIONS: tuple[str, ...] = ("jpg", "jpeg", "png", "tif", "tiff", "bmp", "webp", "dcm")

_EXTENSION = rf"(?i)\.(?:{'|'.join(IMAGE_EXTENSIONS)})$"
# What no key may hold: control characters, surrounding white space, backslashes, empty or dotted path parts.
_UNUSABLE = r"[\x00-\x1f\x7f\\]|^\s|\s$|^$|^/|/$|//|(?:^|/)\.{1,2}(?:/|$)"


def image_id(dataset: str, key: str) -> str:
    """The canonical id of one image.

    Args:
        dataset: Id of the data set.
        key: What identifies the image within it, for example ``patient00001/study1/view1_frontal``. An image
            extension at its end is dropped.

    Raises:
        ValueError: If the key is empty, has white space at either end, control characters, backslashes, or path parts
            that are empty, ``.`` or ``..``.
    """
    canonical = unicodedata.normalize("NFC", re.sub(_EXTENSION, "", key))
    if re.search(_UNUSABLE, canonical):
        raise ValueError(
            "an image key must be non-empty, without white space at its ends, control characters, backslashes, and "
            "empty or dotted path parts."
        )
    return f"{dataset}/{canonical}"


def group_id(dataset: str, group: str) -> str:
    """The canonical id of a group, namespaced so that patient 1 of two data sets are two groups."""
    return f"{dataset}::{unicodedata.normalize('NFC', group)}"


def image_key_column(key: pl.Expr) -> pl.Expr:
    """Canonical image keys of a text column: NFC, without image extension."""
    return key.str.replace(_EXTENSION, "").str.normalize("NFC")


def unusable_key_column(key: pl.Expr) -> pl.Expr:
    """Where a canonical key is null or could not be part of an id."""
    return key.is_null() | key.str.contains(_UNUSABLE).fill_null(value=False)


def image_id_column(dataset: str, key: pl.Expr) -> pl.Expr:
    """Canonical image ids of a text column; as ``image_id`` for each usable key."""
    return pl.lit(f"{dataset}/") + image_key_column(key)


def group_id_column(dataset: str, group: pl.Expr) -> pl.Expr:
    """Canonical group ids of a text column; as ``group_id`` for each value."""
    return pl.lit(f"{dataset}::") + group.str.normalize("NFC")
