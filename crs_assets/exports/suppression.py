"""Small counts: 1 to 9 patients are not told, nor what would give them away."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from crs_assets.science.datasets.counts import SUPPRESSED_BELOW
from crs_assets.science.labels import LabelSpace, membership

CLASS_COUNTS = ("positives", "negatives", "positive_groups", "negative_groups")


def count_classes(index: pl.DataFrame, space: LabelSpace) -> pl.DataFrame:
    """How many images, and groups, carry each class and lack it.

    Args:
        index: Usable rows of an index.
        space: Its labels.

    Returns:
        ``class``; ``positives``, ``negatives`` (images), ``positive_groups``, ``negative_groups`` (patients or lesions;
        the image where nothing else is known), Int64; ``adds_up``: whether positives sum to the images over classes.
    """
    _, groups = np.unique(index["group_id"].to_numpy().astype(str), return_inverse=True)
    signs = membership(index, space)
    rows = [
        {
            "class": name,
            **{images: int(sign[:, at].sum()) for images, sign in zip(CLASS_COUNTS[:2], signs, strict=True)},
            **{people: len(set(groups[sign[:, at]])) for people, sign in zip(CLASS_COUNTS[2:], signs, strict=True)},
            "adds_up": space.task != "multilabel",
        }
        for at, name in enumerate(space.classes)
    ]
    schema = {"class": pl.String, **dict.fromkeys(CLASS_COUNTS, pl.Int64), "adds_up": pl.Boolean}
    return pl.DataFrame(rows, schema=schema)


def mark_hidden(classes: pl.DataFrame, within: Sequence[str] = ()) -> pl.DataFrame:
    """Which classes' counts are not told.

    A class is hidden where fewer than 10 groups, and not none, carry it or lack it. Where counts add up to a total that
    is told, one hidden class would follow from the others, and so would several of one image each; the next smallest is
    hidden with them: secondary suppression [1]_.

    Args:
        classes: As ``count_classes`` makes it.
        within: Columns that keep several data sets in one table apart.

    Returns:
        The table with ``hidden``.

    References:
        .. [1] Hundepool et al., "Statistical Disclosure Control", Wiley 2012, chapter 4.
    """
    over: list[str | pl.Expr] = [*within] or [pl.lit(0)]
    few = pl.any_horizontal(_is_small(column) for column in CLASS_COUNTS)
    others = pl.when(~pl.col("hidden") & (pl.col("positives") > 0)).then("positives")
    hidden, images = pl.col("hidden").sum().over(over), pl.col("positives").filter("hidden").sum().over(over)
    follows = (hidden == 1) | ((hidden > 0) & (images == hidden))
    is_next = (others.rank("ordinal").over(over) == 1).fill_null(value=False)
    return classes.with_columns(hidden=few).with_columns(
        hidden=pl.col("hidden") | (pl.col("adds_up") & follows & is_next)
    )


def told(column: str) -> pl.Expr:
    """A count, null where it is 1 to 9."""
    return pl.when(~_is_small(column)).then(column).alias(column)


def _is_small(column: str) -> pl.Expr:
    return pl.col(column).is_between(1, SUPPRESSED_BELOW - 1)
