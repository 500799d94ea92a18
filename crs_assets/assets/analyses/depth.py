"""The depth sweep of each encoder: features of several depths in one pass, probes of each."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.assets import checks
from crs_assets.assets.describe import markdown_table
from crs_assets.assets.encoders import DEVICE_POOL, encoder_and_index
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Recorded
from crs_assets.partitions import TASK, Partitions
from crs_assets.resources.bench import Bench
from crs_assets.stages.analyses.depth import DepthFeatures, DepthSweep, read_depth_sweep
from crs_assets.stages.stage import Outcome

GROUP = "analyses"


def depth_features(partitions: Partitions) -> dg.AssetsDefinition:
    """Embeddings after shares of the encoder's blocks, its own among them."""
    recorded = Recorded(
        DepthFeatures(),
        dg.AssetKey([partitions.suite.id, DepthFeatures.name]),
        describe_depth_features,
        (checks.FINITE, checks.FEATURE_ROWS),
    )
    declared = Declared(recorded, GROUP, frozenset({"pytorch", "arrow"}), encoder_and_index(partitions))
    shared = Shared(DepthFeatures.name, partitions.encoder_by_image_set, DEVICE_POOL)
    return stage_assets(partitions.suite, shared, [declared])


def depth_sweep(partitions: Partitions) -> dg.AssetsDefinition:
    """Linear probes of every depth, the best chosen on validation, the encoder's own features beside it."""
    prefix = partitions.suite.id
    deps = (
        dg.AssetDep(dg.AssetKey([prefix, DepthFeatures.name]), partition_mapping=partitions.datasets_to_probes),
        dg.AssetDep(dg.AssetKey([prefix, "splits"]), partition_mapping=dg.MultiToSingleDimensionPartitionMapping(TASK)),
    )
    recorded = Recorded(DepthSweep(), dg.AssetKey([prefix, DepthSweep.name]), describe_depth_sweep)
    declared = Declared(recorded, GROUP, frozenset({"pytorch", "parquet"}), deps)
    return stage_assets(partitions.suite, Shared(DepthSweep.name, partitions.encoder_by_task), [declared])


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
