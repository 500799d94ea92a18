"""Degradations beside the score: embeddings of the test images under them, and the published probes on these."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.probing import prediction_frame
from crs_assets.science.protocol import CLEAN, protocol_part
from crs_assets.science.splits import TEST
from crs_assets.science.suite import parse_task
from crs_assets.stages.analyses.stored_probe import ALL_LABELS, StoredProbe
from crs_assets.stages.data import DatasetIndex, Splits, read_index
from crs_assets.stages.encoders import (
    EncoderWeights,
    Encoding,
    Features,
    Float32,
    built_features,
    encode_rows,
    encoding_inputs,
    ready_encoder,
    usable_rows,
)
from crs_assets.stages.feature_files import open_features, write_features
from crs_assets.stages.image_source import extra_degradation_recipe, extra_degraded_images
from crs_assets.stages.probes import (
    RUNS_FILE,
    ProbePredictions,
    ProbeStage,
    RunMetrics,
    all_there,
    finite,
    read_runs,
    run_constants,
)
from crs_assets.stages.run_scorer import RunScorer
from crs_assets.stages.stage import Built


class ExtraDegradedFeatures(Encoding):
    """Embeddings of the test images under the degradations that stand beside the score."""

    name = "extra_degraded_features"
    code_version = "1"
    libraries = Features.libraries
    keeps_old_versions = False

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every existing (encoder, data set)."""
        return (parts for parts in Features().partitions(bench) if self.left_out(bench, *parts) is None)

    def left_out(self, bench: Bench, *parts: str) -> str | None:
        """A transfer target."""
        return "a transfer target is not degraded" if parts[1] in bench.suite.targets else None

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """What clean features depend on, degradations, and what the libraries make of them."""
        inputs = encoding_inputs(bench, *parts)
        return None if inputs is None else {**inputs, **extra_degradation_recipe(bench)}

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Decode each test image once, degrade it every way, encode; one file per condition."""
        encoder, dataset = parts
        rows = usable_rows(read_index(bench, dataset)).filter("is_test")
        ids, load = rows["image_id"].to_list(), extra_degraded_images(bench, encoder, dataset, rows)
        conditions = [condition.name for condition in bench.suite.protocol.extra_degradations()]
        features, timing = encode_rows(
            bench, staging, ready_encoder(bench, encoder), self.name, parts, ids, load, conditions
        )
        for position, condition in enumerate(conditions):
            write_features(staging.path(f"{condition}.arrow"), ids, features[:, position, :])
        return built_features(features, timing)


class ExtraDegradationMetrics(ProbeStage):
    """Metrics of the published linear probe, not refitted, under the degradations that stand beside the score."""

    name = "extra_degradation_metrics"
    code_version = "1"
    libraries = ("numpy", "polars")
    side_by_side = True

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Features, the stored probe, its clean run, labels, and the metric part of the protocol."""
        encoder, task = parts
        dataset, _ = parse_task(task)
        protocol = bench.suite.protocol
        return all_there(
            features=ExtraDegradedFeatures().version(bench, encoder, dataset),
            probe=ProbePredictions().version(bench, encoder, task),
            runs=RunMetrics().version(bench, encoder, task),
            weights=EncoderWeights().version(bench, encoder),
            index=DatasetIndex().version(bench, dataset),
            splits=Splits().version(bench, task),
            protocol_id=protocol.id,
            protocol=protocol_part(protocol, "metrics"),
            conditions=[condition.name for condition in protocol.extra_degradations()],
            salt=protocol.salt,
        )

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Score every condition at all labels, beside the stored clean run."""
        encoder, task = parts
        dataset, seed = parse_task(task)
        probe = StoredProbe.open(bench, encoder, task)
        degraded = read_extra_degraded(bench, encoder, dataset)
        predictions = prediction_frame(probe, {(str(TEST), name): stored for name, stored in degraded.items()})
        scored = RunScorer.open(bench, dataset, seed).score(predictions, probe.fits)
        clean = _clean_run(bench, encoder, task)
        runs = scored.runs.with_columns(
            **run_constants(bench, encoder, dataset),
            auroc_drop=pl.lit(clean["auroc"]) - pl.col("auroc"),
            ece_rise=pl.col("ece") - pl.lit(clean["ece"]),
        ).drop("auroc_source", "target_index")
        runs.write_parquet(staging.path(RUNS_FILE))
        worst = runs.fill_nan(None).sort("auroc_drop", descending=True, nulls_last=True).row(0, named=True)
        return Built(
            {
                "rows": runs.height,
                "not_converged": int((~runs["converged"]).sum()),
                "auroc_clean": finite(clean["auroc"]),
                "worst_condition": worst["condition"],
                "largest_auroc_drop": worst["auroc_drop"],
            }
        )


def read_extra_degraded(bench: Bench, encoder: str, dataset: str) -> dict[str, tuple[list[str], Float32]]:
    """Image ids and features of the test images by condition name."""
    artifact = bench.store.open(bench.key(ExtraDegradedFeatures.name, encoder, dataset))
    return {
        condition.name: open_features(artifact.file(f"{condition.name}.arrow"))
        for condition in bench.suite.protocol.extra_degradations()
    }


def read_extra_runs(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """Runs under the degradations beside the score: columns of ``run_metrics``, at all labels.

    Beside them ``auroc_drop`` (clean minus degraded) and ``ece_rise`` (degraded minus clean), signed, lower is better.
    """
    return pl.read_parquet(bench.store.open(bench.key(ExtraDegradationMetrics.name, encoder, task)).file(RUNS_FILE))


def _clean_run(bench: Bench, encoder: str, task: str) -> dict[str, Any]:
    clean = (pl.col("condition") == CLEAN) & (pl.col("fraction") == ALL_LABELS)
    return read_runs(bench, encoder, task).filter(clean).row(0, named=True)


__all__ = ["ExtraDegradationMetrics", "ExtraDegradedFeatures", "read_extra_degraded", "read_extra_runs"]
