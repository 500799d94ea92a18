"""The depth sweep of each encoder: features of several depths in one pass, probes of each."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.assets.analyses.common import on_features, on_images
from crs_assets.assets.describe import markdown_table
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench
from crs_assets.stages.analyses.depth import DepthFeatures, DepthSweep, read_depth_sweep
from crs_assets.stages.stage import Outcome


def depth_features(partitions: Partitions) -> dg.AssetsDefinition:
    """Embeddings after shares of the encoder's blocks, its own among them."""
    return on_images(partitions, DepthFeatures(), describe_depth_features)


def depth_sweep(partitions: Partitions) -> dg.AssetsDefinition:
    """Linear probes of every depth, the best chosen on validation, the encoder's own features beside it."""
    features = dg.AssetDep(
        dg.AssetKey([partitions.suite.id, DepthFeatures.name]), partition_mapping=partitions.datasets_to_probes
    )
    return on_features(partitions, DepthSweep(), describe_depth_sweep, features)


def describe_depth_features(_: Bench, outcome: Outcome) -> Mapping[str, Any]:
    """Images, and where the encoder is read."""
    summary = outcome.manifest.summary
    return {
        "dagster/row_count": summary["images"] * len(summary["depths"]),
        "finite": summary["finite"],
        "depths": markdown_table(pl.DataFrame(summary["depths"])),
    }


def describe_depth_sweep(bench: Bench, outcome: Outcome) -> Mapping[str, Any]:
    """Test metrics of each depth, and which one validation chose."""
    table = read_depth_sweep(bench, *outcome.parts)
    columns = ("share", "block", "dim", "lambda", "validation_log_loss", "auroc", "ece", "converged", "chosen")
    summary = outcome.manifest.summary
    named = {name: summary[name] for name in ("share_chosen", "auroc_gain") if summary[name] is not None}
    return {
        "dagster/row_count": table.height,
        "not_converged": summary["not_converged"],
        **named,
        "depths": markdown_table(table.select(columns)),
    }
