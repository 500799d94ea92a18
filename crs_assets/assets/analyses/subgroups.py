"""The four axes within subgroups of each data set."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.assets.analyses.common import on_probes
from crs_assets.assets.describe import markdown_table
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench
from crs_assets.science.protocol import AXES
from crs_assets.stages.analyses.subgroups import Subgroups, read_subgroup_gaps, read_subgroups
from crs_assets.stages.stage import Outcome


def subgroups(partitions: Partitions) -> dg.AssetsDefinition:
    """Axes per subgroup, the worst group and the gap, from the predictions that are scored."""
    return on_probes(partitions, Subgroups(), describe_subgroups, "probe_predictions", "run_metrics")


def describe_subgroups(bench: Bench, outcome: Outcome) -> Mapping[str, Any]:
    """The axes of every group that is shown, and the gap of each column; counts of few patients are suppressed."""
    summary = outcome.manifest.summary
    table = read_subgroups(bench, *outcome.parts)
    shown = {
        "dagster/row_count": table.height,
        "groups_shown": summary["groups_shown"],
        "groups_suppressed": summary["groups_suppressed"],
        **{
            f"gap of {axis} by {column}": gap
            for column, gaps in summary["gaps"].items()
            for axis, gap in gaps.items()
            if gap is not None
        },
    }
    if note := summary["note"] or summary["problem"]:
        shown["note"] = note
    if not table.height:
        return shown
    axes = [pl.col("value").filter(pl.col("axis") == axis).first().alias(axis) for axis in AXES]
    groups = table.group_by("column", "group", "n_images", "n_groups", maintain_order=True).agg(axes)
    gaps = read_subgroup_gaps(bench, *outcome.parts).drop("encoder", "dataset", "seed", "protocol")
    return {**shown, "groups": markdown_table(groups), "gaps": markdown_table(gaps)}
