"""A published test set in place of the drawn one, and what gives way so that nothing lies on two sides."""

import polars as pl

from crs_assets.science.splits.assignment import IS_TEST, TEST

SPLIT = "split"
GROUP_IN_TEST = "group_in_official_test"
"""Quarantine of an image outside the official test set whose group has an image in it."""


def take_official_test(index: pl.DataFrame) -> pl.DataFrame:
    """Make the images that their source calls ``test`` the test set of all seeds.

    Copies of one picture on both sides of a published split put their groups together. The test set stays as it was
    published, so that its figures can be compared; what is left of such a group has no role, and is counted.

    Args:
        index: An index with a column ``split``, in any row order.

    Returns:
        The index with ``is_test`` (null where quarantined) and ``quarantine`` settled, rows in the same order.

    Raises:
        ValueError: If the index names no split.
    """
    if SPLIT not in index.columns:
        raise ValueError(f"the index has no column {SPLIT!r}, so it has no official test set.")
    usable = pl.col("quarantine").is_null()
    in_test = usable & (pl.col(SPLIT) == TEST).fill_null(value=False)
    gives_way = usable & ~in_test & in_test.any().over("group_id")
    return index.with_columns(
        pl.when(gives_way).then(pl.lit(GROUP_IN_TEST)).otherwise("quarantine").alias("quarantine"),
        pl.when(usable & ~gives_way).then(in_test).alias(IS_TEST),
    )
