"""Means of a scored quantity over data sets: the one way in which cells become one number per encoder."""

from collections.abc import Sequence

import polars as pl

from crs_assets.science.protocol import Anchor, AxisType, Protocol


def mean_over(
    cells: pl.DataFrame, datasets: Sequence[str], columns: Sequence[str], *, existing: bool = False
) -> pl.DataFrame:
    """Mean over data sets of each encoder's cells; nothing is imputed.

    Args:
        cells: One row per encoder and data set: ``encoder``, ``dataset`` and the columns; null where there is no value.
        datasets: What to average over.
        columns: Which columns.
        existing: Keep encoders that lack some of the data sets, averaged over those that they have; otherwise such an
            encoder has no row.

    Returns:
        ``encoder``, ``datasets`` (how many the mean is over) and the columns, sorted by encoder.
    """
    chosen = cells.filter(pl.col("dataset").is_in(list(datasets))).drop_nulls(list(columns)).sort("encoder", "dataset")
    means = chosen.group_by("encoder", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("datasets"), *(pl.col(name).mean() for name in columns)
    )
    return means if existing else means.filter(pl.col("datasets") == len(set(datasets)))


def is_higher_better(anchor: Anchor) -> bool:
    """Whether a larger raw value of an axis is the better one, as its anchors say."""
    return anchor.one > anchor.zero


def oriented(axis: AxisType, protocol: Protocol, column: str | None = None) -> pl.Expr:
    """A raw axis with its sign turned where lower is better, so that a ranking puts the highest first.

    Args:
        axis: Which axis.
        protocol: Whose anchors tell the direction.
        column: Column that holds it; the axis's own name by default.
    """
    values = pl.col(column or axis)
    return values if is_higher_better(protocol.axes.anchors[axis]) else -values
