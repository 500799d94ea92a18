"""Null controls: what a probe reaches from metadata alone, or from labels that mean nothing."""

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science.seeding import order_digest

SUBGROUP = "sub:"


def metadata_features(index: pl.DataFrame) -> NDArray[np.float32] | None:
    """Subgroup columns as features: numbers as they are with an indicator of missing, texts one column per value.

    Args:
        index: Usable rows of an index.

    Returns:
        (n, d) float32 in row order, or None where the data set has no metadata. A missing number is 0 and its
        indicator 1, so the probe sees that it is missing rather than a made-up value.
    """
    columns: list[NDArray[np.float32]] = []
    for name in sorted(column for column in index.columns if column.startswith(SUBGROUP)):
        values = index[name]
        if values.dtype.is_numeric():
            columns.append(values.fill_null(0).to_numpy().astype(np.float32))
        else:
            levels = values.drop_nulls().unique().sort()
            columns.extend((values == level).fill_null(value=False).to_numpy().astype(np.float32) for level in levels)
        if values.null_count():
            columns.append(values.is_null().to_numpy().astype(np.float32))
    return np.stack(columns, axis=1) if columns else None


def shuffle_labels(labels: NDArray[Any], index: pl.DataFrame, salt: str, dataset: str, seed: int) -> NDArray[Any]:
    """Labels dealt anew over all images, in an order that follows from hashes of the image ids.

    Args:
        labels: (n,) or (n, L), in row order of ``index``.
        index: Usable rows of an index.
        salt: The protocol's.
        dataset: Data set id.
        seed: Split seed.

    Returns:
        The same labels on other images: every class keeps its count, no image its meaning.
    """
    ids = index["image_id"].to_list()
    keys = [order_digest(salt, "shuffled", dataset, seed, image_id) for image_id in ids]
    order = np.argsort(np.array(keys), kind="stable")
    ranks_by_id = np.argsort(np.array(ids), kind="stable")
    shuffled = np.empty_like(labels)
    shuffled[ranks_by_id] = labels[order]
    return shuffled
