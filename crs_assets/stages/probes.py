"""Probe stages: predictions of the linear probe, one row of metrics per run of the grid, and the null controls."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.labels import fit_labels
from crs_assets.science.nulls import metadata_features, shuffle_labels
from crs_assets.science.probes import LinearPath
from crs_assets.science.probing import FittedProbe, ProbeTask, fit_probe, prediction_frame
from crs_assets.science.protocol import CLEAN, TRANSFER, protocol_part
from crs_assets.science.splits import CALIBRATION, TEST, VALIDATION
from crs_assets.science.suite import parse_task
from crs_assets.science.transfer import fitted_labels, mapped_labels
from crs_assets.stages.data import (
    DatasetIndex,
    Splits,
    read_index,
    read_splits,
    split_assignment,
)
from crs_assets.stages.encoders import (
    DegradedFeatures,
    EncoderWeights,
    Features,
    read_degraded,
    read_features,
    usable_rows,
)
from crs_assets.stages.progress import Progress, report
from crs_assets.stages.run_scorer import TARGET, RunScorer
from crs_assets.stages.stage import Built, Stage

PREDICTIONS_FILE = "predictions.parquet"
FITS_FILE = "fits.parquet"
WEIGHTS_FILE = "weights.safetensors"
RUNS_FILE = "runs.parquet"
CLASS_RUNS_FILE = "class_runs.parquet"
RELIABILITY_FILE = "reliability.parquet"
_PATH_TENSORS = tuple(field.name for field in fields(LinearPath) if field.name != "notes")

METADATA_ONLY = "metadata-only"
SHUFFLED_LABELS = "shuffled-labels"

_NUMERIC_LIBRARIES = ("numpy", "scipy", "torch")


class ProbeStage(Stage):
    """A stage with a partition for every existing (encoder, data set and seed)."""

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Absent cells are left out."""
        for encoder in bench.suite.encoders:
            existing = set(bench.suite.existing_datasets(encoder))
            yield from ((encoder, task) for task in bench.suite.tasks if parse_task(task)[0] in existing)


class ProbePredictions(ProbeStage):
    """Linear probes of an encoder on a data set and seed: the penalty path, and logits wherever they are scored."""

    name = "probe_predictions"
    code_version = "4"
    libraries = _NUMERIC_LIBRARIES
    keeps_old_versions = False
    side_by_side = True

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Features, splits, labels, and the probe part of the protocol."""
        encoder, task = parts
        dataset, _ = parse_task(task)
        protocol = bench.suite.protocol
        return all_there(
            **embeddings(bench, encoder, dataset),
            splits=split_assignment(bench, task),
            fractions=list(protocol.data.fractions),
            labels=list(fitted_labels(bench.suite.datasets[dataset]).classes),
            protocol=protocol_part(protocol, "probe"),
            uncertain_labels=protocol.data.uncertain_labels,
            device=bench.compute.kind,
        )

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Fit every fraction together, choose penalties on validation, predict; the test split is read once."""
        encoder, task = parts
        dataset, seed = parse_task(task)
        ids, features = read_features(bench, encoder, dataset)
        probe_task = open_task(bench, dataset, seed, features)
        probe = fit_probe(probe_task, bench.suite.protocol, device=bench.compute.device)
        report(Progress(self.name, parts, 1, 1, "probe sets"))
        inputs = prediction_inputs(bench, encoder, dataset, probe_task, ids)
        prediction_frame(probe, inputs).write_parquet(staging.path(PREDICTIONS_FILE))
        fits = fit_rows(probe)
        fits.write_parquet(staging.path(FITS_FILE))
        _write_path(probe, staging)
        return Built(
            {
                "fits": int(probe.path.converged.size),
                "fits_not_converged": int((~probe.path.converged).sum()),
                "chosen_not_converged": int((~fits["converged"]).sum()),
                "chosen_at_edge": int(fits["at_edge"].sum()),
                "n_train": probe.n_fit[-1],
                "dim": int(features.shape[1]),
            }
        )


class RunMetrics(ProbeStage):
    """One row per run of the grid: every metric of one label fraction and condition."""

    name = "run_metrics"
    code_version = "1"
    libraries = ("numpy", "polars")
    side_by_side = True

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Predictions, labels, and the metric part of the protocol."""
        encoder, task = parts
        dataset, _ = parse_task(task)
        protocol = bench.suite.protocol
        return all_there(
            predictions=ProbePredictions().version(bench, encoder, task),
            weights=EncoderWeights().version(bench, encoder),
            **scored_on(bench, dataset),
            splits=Splits().version(bench, task),
            protocol_id=protocol.id,
            protocol=protocol_part(protocol, "metrics"),
            salt=protocol.salt,
        )

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Score every run, and bin the clean predictions for the reliability diagram."""
        encoder, task = parts
        dataset, seed = parse_task(task)
        artifact = bench.store.open(bench.key(ProbePredictions.name, encoder, task))
        predictions = pl.read_parquet(artifact.file(PREDICTIONS_FILE))
        scorer = RunScorer.open(bench, dataset, seed)
        tables = scorer.score(predictions, pl.read_parquet(artifact.file(FITS_FILE)))
        constants = run_constants(bench, encoder, dataset)
        runs = tables.runs.with_columns(**constants)
        runs.write_parquet(staging.path(RUNS_FILE))
        tables.classes.with_columns(**constants).write_parquet(staging.path(CLASS_RUNS_FILE))
        tables.reliability.write_parquet(staging.path(RELIABILITY_FILE))
        clean = runs.filter((pl.col("condition") == CLEAN) & (pl.col("fraction") == 1.0)).row(0, named=True)
        return Built(
            {
                "rows": runs.height,
                "not_converged": int((~runs["converged"]).sum()),
                "classes_scored": len(scorer.classes),
                "auroc": finite(clean["auroc"]),
                "ece": finite(clean["ece"]),
                "ece_null": finite(clean["ece_null"]),
            }
        )


class NullControls(Stage):
    """What a probe reaches without looking: metadata only, and shuffled labels; clean, all labels, no axes."""

    name = "null_controls"
    code_version = "3"
    libraries = _NUMERIC_LIBRARIES
    side_by_side = True

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every data set and seed."""
        return ((task,) for task in bench.suite.tasks)

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Index, splits, and the features that the shuffled labels are fitted on."""
        dataset, _ = parse_task(parts[0])
        protocol = bench.suite.protocol
        return all_there(
            features=Features().version(bench, bench.suite.spec.shuffled_labels_encoder, dataset),
            encoder=bench.suite.spec.shuffled_labels_encoder,
            index=DatasetIndex().version(bench, dataset),
            splits=Splits().version(bench, parts[0]),
            protocol=protocol_part(protocol, "probe", "metrics"),
            uncertain_labels=protocol.data.uncertain_labels,
            salt=protocol.salt,
        )

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Fit each control at all labels and score it on the clean test set."""
        dataset, seed = parse_task(parts[0])
        protocol = bench.suite.protocol
        _, features = read_features(bench, bench.suite.spec.shuffled_labels_encoder, dataset)
        shuffled = open_task(bench, dataset, seed, features)
        labels = fit_labels(shuffled.index, shuffled.space, protocol.data.uncertain_labels)
        controls = {SHUFFLED_LABELS: (shuffled, shuffle_labels(labels, shuffled.index, protocol.salt, dataset, seed))}
        metadata = metadata_features(shuffled.index)
        if metadata is not None:
            controls[METADATA_ONLY] = (open_task(bench, dataset, seed, metadata), labels)
        scorer = RunScorer.open(bench, dataset, seed)
        runs, predictions = [], []
        for name, (task, dealt) in controls.items():
            probe = fit_probe(task, protocol, fractions=[1.0], labels=dealt)
            rows = task.rows(TEST)
            ids = task.index["image_id"].gather(rows).to_list()
            frame = prediction_frame(probe, {(TEST, CLEAN): (ids, task.features[rows])})
            tables = scorer.score(frame, fit_rows(probe))
            predictions.append(frame.with_columns(encoder=pl.lit(name)))
            runs.append(tables.runs.with_columns(**run_constants(bench, name, dataset)))
        pl.concat(predictions).write_parquet(staging.path(PREDICTIONS_FILE))
        table = pl.concat(runs)
        table.write_parquet(staging.path(RUNS_FILE))
        return Built({"auroc": {row["encoder"]: finite(row["auroc"]) for row in table.iter_rows(named=True)}})


def read_runs(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """Run metrics of an encoder, data set and seed."""
    return pl.read_parquet(bench.store.open(bench.key(RunMetrics.name, encoder, task)).file(RUNS_FILE))


def read_path(bench: Bench, encoder: str, task: str) -> LinearPath:
    """The penalty path of an encoder, data set and seed, without its notes; label fractions ascend."""
    from safetensors.numpy import load_file

    stored = load_file(bench.store.open(bench.key(ProbePredictions.name, encoder, task)).file(WEIGHTS_FILE))
    return LinearPath(**{name: stored[name] for name in _PATH_TENSORS})


def read_clean_predictions(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """Clean test predictions at all labels: ``image_id``, ``logits``."""
    path = bench.store.open(bench.key(ProbePredictions.name, encoder, task)).file(PREDICTIONS_FILE)
    return (
        pl.scan_parquet(path)
        .filter((pl.col("fraction") == 1.0) & (pl.col("condition") == CLEAN) & (pl.col("role") == TEST))
        .select("image_id", "logits")
        .collect()
    )


def all_there(**inputs: Any) -> dict[str, Any] | None:
    """The inputs, or None while one of them is missing."""
    return None if any(value is None for value in inputs.values()) else inputs


def embeddings(bench: Bench, encoder: str, dataset: str) -> dict[str, Any]:
    """Versions of all features that the probes of a data set look at, those of its transfer target too."""
    target = bench.suite.target_of(dataset)
    return {
        "features": Features().version(bench, encoder, dataset),
        "degraded_features": DegradedFeatures().version(bench, encoder, dataset),
        "target_features": Features().version(bench, encoder, target) if target else "",
    }


def scored_on(bench: Bench, dataset: str) -> dict[str, Any]:
    """What decides the labels that runs are scored on, at the source and at its transfer target."""
    suite, target = bench.suite, bench.suite.target_of(dataset)
    return {
        "index": DatasetIndex().version(bench, dataset),
        "target_index": DatasetIndex().version(bench, target) if target else "",
        "eligibility": suite.protocol.data.eligibility.model_dump(mode="json") if target else {},
        "transfer": mapped_labels(suite.datasets[dataset], suite.targets[target]) if target else {},
    }


def open_task(bench: Bench, dataset: str, seed: int, features: NDArray[np.float32]) -> ProbeTask:
    """What a probe of a data set and seed is fitted on."""
    index = usable_rows(read_index(bench, dataset))
    return ProbeTask(features, index, read_splits(bench, dataset, seed), fitted_labels(bench.suite.datasets[dataset]))


def prediction_inputs(
    bench: Bench, encoder: str, dataset: str, task: ProbeTask, ids: Sequence[str]
) -> dict[tuple[str, str], tuple[Sequence[str], NDArray[np.float32]]]:
    """(role, condition) -> image ids and features, of whatever is predicted."""
    names = np.asarray(ids, dtype=object)
    inputs: dict[tuple[str, str], tuple[Sequence[str], NDArray[np.float32]]] = {}
    for role in (VALIDATION, CALIBRATION, TEST):
        rows = task.rows(role)
        inputs[role, CLEAN] = (names[rows].tolist(), task.features[rows])
    for condition, degraded in read_degraded(bench, encoder, dataset).items():
        inputs[TEST, condition] = degraded
    target = bench.suite.target_of(dataset)
    if target:
        inputs[TARGET, TRANSFER] = read_features(bench, encoder, target)
    return inputs


def fit_rows(probe: FittedProbe) -> pl.DataFrame:
    """The chosen fit of each problem at each fraction."""
    rows = []
    for position, (fraction, choice) in enumerate(zip(probe.fractions, probe.choices, strict=True)):
        for problem, index in enumerate(choice.index):
            rows.append(
                {
                    "fraction": fraction,
                    "problem": problem,
                    "lambda": float(probe.path.lambdas[index]),
                    "converged": bool(probe.path.converged[position, index, problem]),
                    "newton_decrement": float(probe.path.newton_decrement[position, index, problem]),
                    "at_edge": bool(choice.at_edge[problem]),
                    "borrowed": bool(choice.borrowed[problem]),
                }
            )
    return pl.DataFrame(rows)


def _write_path(probe: FittedProbe, staging: Staging) -> None:
    from safetensors.numpy import save_file

    tensors = {name: np.ascontiguousarray(getattr(probe.path, name)) for name in _PATH_TENSORS}
    fractions = np.asarray(probe.fractions, dtype=np.float64)
    save_file({**tensors, "fractions": fractions}, staging.path(WEIGHTS_FILE))


def run_constants(bench: Bench, encoder: str, dataset: str, probe: str = "linear") -> dict[str, pl.Expr]:
    """Columns that are the same in every row of a table of runs."""
    protocol, target = bench.suite.protocol, bench.suite.target_of(dataset)
    return {
        "encoder": pl.lit(encoder),
        "probe": pl.lit(probe),
        "protocol": pl.lit(protocol.id),
        "uncertain_labels": pl.lit(protocol.data.uncertain_labels),
        "weights": pl.lit(
            EncoderWeights().version(bench, encoder) if encoder in bench.suite.encoders else None, dtype=pl.Utf8
        ),
        "index": pl.lit(DatasetIndex().version(bench, dataset)),
        "target_index": pl.lit(DatasetIndex().version(bench, target) if target else None, dtype=pl.Utf8),
    }


def finite(value: float) -> float | None:
    """A number as JSON holds it: None where it is not estimable."""
    return float(value) if np.isfinite(value) else None
