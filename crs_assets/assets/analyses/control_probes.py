"""The control probes of each encoder, data set and seed."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.assets.analyses.common import on_features
from crs_assets.assets.describe import markdown_table
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench
from crs_assets.science.protocol import CLEAN
from crs_assets.stages.analyses.control_probes import ControlProbes, read_control_runs
from crs_assets.stages.stage import Outcome


def control_probes(partitions: Partitions) -> dg.AssetsDefinition:
    """A perceptron and nearest neighbours on the features that the linear probe is fitted on."""
    features = (
        dg.AssetDep(dg.AssetKey([partitions.suite.id, name]), partition_mapping=partitions.features_to_probes)
        for name in ("features", "degraded_features")
    )
    return on_features(partitions, ControlProbes(), describe_control_probes, *features)


def describe_control_probes(bench: Bench, outcome: Outcome) -> Mapping[str, Any]:
    """Discrimination and calibration of each probe at all labels on the clean test set."""
    runs = read_control_runs(bench, *outcome.parts)
    summary = outcome.manifest.summary
    clean = runs.filter((pl.col("fraction") == 1.0) & (pl.col("condition") == CLEAN))
    return {
        "dagster/row_count": runs.height,
        "not_converged": summary["not_converged"],
        **{f"auroc {probe}": value for probe, value in summary["auroc"].items() if value is not None},
        "clean_at_all_labels": markdown_table(clean.select("probe", "n_eval", "auroc", "ece", "log_loss")),
    }
