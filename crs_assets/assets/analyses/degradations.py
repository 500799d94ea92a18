"""Degradations beside the score, of each encoder: embeddings, and metrics of the published probes on them."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.assets.analyses.common import on_images, on_probes
from crs_assets.assets.describe import describe_features, markdown_table
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench
from crs_assets.science.images.modalities import suitability_of
from crs_assets.science.suite import parse_task
from crs_assets.stages.analyses.extra_degradations import (
    ExtraDegradationMetrics,
    ExtraDegradedFeatures,
    read_extra_runs,
)
from crs_assets.stages.stage import Outcome


def extra_degraded_features(partitions: Partitions) -> dg.AssetsDefinition:
    """Embeddings of the test images under sensor noise, defocus and wrong exposure."""
    return on_images(partitions, ExtraDegradedFeatures(), describe_features)


def extra_degradation_metrics(partitions: Partitions) -> dg.AssetsDefinition:
    """What the published probes lose under them; nothing is refitted."""
    features = dg.AssetDep(
        dg.AssetKey([partitions.suite.id, ExtraDegradedFeatures.name]), partition_mapping=partitions.datasets_to_probes
    )
    stage = ExtraDegradationMetrics()
    return on_probes(partitions, stage, describe_extra_metrics, "probe_predictions", "run_metrics", beside=(features,))


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
        **{name: value for name, value in summary.items() if value is not None},
        "at_all_labels": markdown_table(runs.select(columns).with_columns(suits_the_images=pl.Series(suits))),
    }


def _suits(degradation: str, specialty: str) -> str:
    found = suitability_of(degradation, specialty)
    return found.suits if found else "not judged"
