"""Exact duplicates: images with the same decoded pixels, whatever file, name or patient they come under."""

from collections.abc import Iterable, Sequence

import polars as pl

from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.labels import LABEL, label_columns

CONFLICTING = "conflicting_duplicate"


def merge_groups(group_ids: Sequence[str], linked: Iterable[Sequence[str]]) -> dict[str, str]:
    """Union of groups: every group reachable from another through links gets the smallest name among them.

    Args:
        group_ids: All groups.
        linked: Sets of groups that belong together.

    Returns:
        The name of each group's union; independent of the order of both arguments.
    """
    parent = {group: group for group in group_ids}

    def find(group: str) -> str:
        while parent[group] != group:
            parent[group] = parent[parent[group]]
            group = parent[group]
        return group

    for groups in linked:
        roots = {find(group) for group in groups}
        smallest = min(roots)
        for root in roots:
            parent[root] = smallest
    return {group: find(group) for group in parent}


def settle_duplicates(frame: pl.DataFrame, spec: DatasetSpec) -> pl.DataFrame:
    """Put the groups of identical images together, and quarantine identical images whose labels contradict.

    Labels contradict where one copy is positive and another negative for a class; an uncertain cell contradicts
    nothing, a blank one counts as negative unless the whole row is blank. Groups are joined in both cases: the same
    picture under two patients means that the two may be one.

    Args:
        frame: ``image_id``, ``group_id``, label columns, ``pixel_digest``, ``quarantine``.
        spec: The data set.

    Returns:
        The frame with ``group_id`` and ``quarantine`` settled, rows in the same order.
    """
    usable = frame.filter(pl.col("quarantine").is_null())
    copies = usable.filter(pl.col("pixel_digest").is_duplicated())
    if not copies.height:
        return frame
    linked = copies.group_by("pixel_digest").agg(pl.col("group_id").unique())["group_id"].to_list()
    union = merge_groups(copies["group_id"].to_list(), linked)
    conflicting = copies.group_by("pixel_digest").agg(_contradict(spec).alias("conflict")).filter("conflict")
    in_conflict = pl.col("quarantine").is_null() & pl.col("pixel_digest").is_in(conflicting["pixel_digest"].to_list())
    return frame.with_columns(
        pl.col("group_id").replace(union),
        pl.when(in_conflict).then(pl.lit(CONFLICTING)).otherwise("quarantine").alias("quarantine"),
    )


def _contradict(spec: DatasetSpec) -> pl.Expr:
    """Whether the labels of a set of copies contradict each other."""
    if spec.task != "multilabel":
        return pl.col(LABEL).n_unique() > 1
    columns = label_columns(spec)
    observed = ~pl.all_horizontal(pl.col(column).is_null() for column in columns)
    return pl.any_horizontal(
        (pl.col(column) == 1).any() & (observed & (pl.col(column).fill_null(0) == 0)).any() for column in columns
    )
