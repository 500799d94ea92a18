"""Degradations beside the score, of each encoder: embeddings, and metrics of the published probes on them."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.assets import checks
from crs_assets.assets.describe import describe_features, markdown_table
from crs_assets.assets.encoders import DEVICE_POOL, encoder_and_index
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Recorded
from crs_assets.partitions import TASK, Partitions
from crs_assets.resources.bench import Bench
from crs_assets.science.images.modalities import suitability_of
from crs_assets.science.suite import parse_task
from crs_assets.stages.analyses.extra_degradations import (
    ExtraDegradationMetrics,
    ExtraDegradedFeatures,
    read_extra_runs,
)
from crs_assets.stages.stage import Outcome

GROUP = "analyses"


def extra_degraded_features(partitions: Partitions) -> dg.AssetsDefinition:
    """Embeddings of the test images under sensor noise, defocus and wrong exposure."""
    recorded = Recorded(
        ExtraDegradedFeatures(),
        dg.AssetKey([partitions.suite.id, ExtraDegradedFeatures.name]),
        describe_features,
        (checks.FINITE, checks.FEATURE_ROWS),
    )
    declared = Declared(recorded, GROUP, frozenset({"pytorch", "arrow"}), encoder_and_index(partitions))
    shared = Shared(ExtraDegradedFeatures.name, partitions.encoder_by_image_set, DEVICE_POOL)
    return stage_assets(partitions.suite, shared, [declared])


def extra_degradation_metrics(partitions: Partitions) -> dg.AssetsDefinition:
    """What the published probes lose under them; nothing is refitted."""
    prefix = partitions.suite.id
    features = dg.AssetDep(
        dg.AssetKey([prefix, ExtraDegradedFeatures.name]), partition_mapping=partitions.datasets_to_probes
    )
    deps = (
        features,
        dg.AssetDep(dg.AssetKey([prefix, "probe_predictions"])),
        dg.AssetDep(dg.AssetKey([prefix, "run_metrics"])),
        dg.AssetDep(dg.AssetKey([prefix, "splits"]), partition_mapping=dg.MultiToSingleDimensionPartitionMapping(TASK)),
    )
    recorded = Recorded(
        ExtraDegradationMetrics(), dg.AssetKey([prefix, ExtraDegradationMetrics.name]), describe_extra_metrics
    )
    declared = Declared(recorded, GROUP, frozenset({"polars", "parquet"}), deps)
    shared = Shared(ExtraDegradationMetrics.name, partitions.encoder_by_task, follows_same_partitions=True)
    return stage_assets(partitions.suite, shared, [declared])


def describe_extra_metrics(bench: Bench, outcome: Outcome) -> Mapping[str, Any]:
    """AUROC and ECE under each condition, and whether the degradation suits the data set's images."""
    summary = outcome.manifest.summary
    runs = read_extra_runs(bench, *outcome.parts)
    dataset, _ = parse_task(outcome.parts[1])
    specialty = bench.suite.datasets[dataset].specialty
    families = {condition.name: condition.perturbation for condition in bench.suite.protocol.extra_degradations()}
    suits = [_suits(families[name], specialty) for name in runs["condition"]]
    columns = ("condition", "n_eval", "auroc", "auroc_drop", "ece", "ece_rise", "converged")
    return {
        "dagster/row_count": runs.height,
        "not_converged": summary["not_converged"],
        "at_all_labels": markdown_table(runs.select(columns).with_columns(suits_the_images=pl.Series(suits))),
    }


def _suits(degradation: str, specialty: str) -> str:
    found = suitability_of(degradation, specialty)
    return found.suits if found else "not judged"
