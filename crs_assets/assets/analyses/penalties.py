"""The axes of each encoder, data set and seed under other penalties."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.assets.analyses.common import on_probes
from crs_assets.assets.describe import markdown_table
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench
from crs_assets.science.protocol import AXES
from crs_assets.stages.analyses.penalty_axes import PenaltyAxes, read_penalty_axes
from crs_assets.stages.stage import Outcome


def penalty_axes(partitions: Partitions) -> dg.AssetsDefinition:
    """What the axes would be, had the penalty been chosen another way; read by the score's sensitivity."""
    features = tuple(
        dg.AssetDep(dg.AssetKey([partitions.suite.id, name]), partition_mapping=partitions.features_to_probes)
        for name in ("features", "degraded_features")
    )
    return on_probes(partitions, PenaltyAxes(), describe_penalty_axes, "probe_predictions", beside=features)


def describe_penalty_axes(bench: Bench, outcome: Outcome) -> Mapping[str, Any]:
    """The axes under each choice, in the protocol's own reading."""
    summary = outcome.manifest.summary
    axes = read_penalty_axes(bench, *outcome.parts).filter(pl.col("reading") == bench.suite.protocol.id)
    return {
        "dagster/row_count": axes.height,
        **{name: value for name, value in summary.items() if value is not None},
        "axes": markdown_table(axes.select("penalty", "converged", *AXES)),
    }
