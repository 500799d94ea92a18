"""The four axes within subgroups of each data set."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.assets.describe import markdown_table
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Recorded
from crs_assets.partitions import TASK, Partitions
from crs_assets.resources.bench import Bench
from crs_assets.science.protocol import AXES
from crs_assets.stages.analyses.subgroups import Subgroups, read_subgroup_gaps, read_subgroups
from crs_assets.stages.stage import Outcome

GROUP = "analyses"


def subgroups(partitions: Partitions) -> dg.AssetsDefinition:
    """Axes per subgroup, the worst group and the gap, from the predictions that are scored."""
    prefix = partitions.suite.id
    deps = (
        dg.AssetDep(dg.AssetKey([prefix, "probe_predictions"])),
        dg.AssetDep(dg.AssetKey([prefix, "run_metrics"])),
        dg.AssetDep(dg.AssetKey([prefix, "splits"]), partition_mapping=dg.MultiToSingleDimensionPartitionMapping(TASK)),
    )
    recorded = Recorded(Subgroups(), dg.AssetKey([prefix, Subgroups.name]), describe_subgroups)
    declared = Declared(recorded, GROUP, frozenset({"polars", "parquet"}), deps)
    shared = Shared(Subgroups.name, partitions.encoder_by_task, follows_same_partitions=True)
    return stage_assets(partitions.suite, shared, [declared])


def describe_subgroups(bench: Bench, outcome: Outcome) -> Mapping[str, Any]:
    """The axes of every group that is shown, and the gap of each column; counts of few patients are suppressed."""
    summary = outcome.manifest.summary
    table = read_subgroups(bench, *outcome.parts)
    shown = {
        "dagster/row_count": table.height,
        "groups_shown": summary["groups_shown"],
        "groups_suppressed": summary["groups_suppressed"],
    }
    if note := summary["note"] or summary["problem"]:
        shown["note"] = note
    if not table.height:
        return shown
    axes = [pl.col("value").filter(pl.col("axis") == axis).first().alias(axis) for axis in AXES]
    groups = table.group_by("column", "group", "n_images", "n_groups", maintain_order=True).agg(axes)
    gaps = read_subgroup_gaps(bench, *outcome.parts).drop("encoder", "dataset", "seed", "protocol")
    return {**shown, "groups": markdown_table(groups), "gaps": markdown_table(gaps)}
