"""Control probes: the runs of the grid once more under a perceptron and nearest neighbours, beside the score."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import polars as pl

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.control_probes import CONTROL_PROBES, KNN, ControlFits, fit_control_probes
from crs_assets.science.probing import ProbeTask, prediction_frame
from crs_assets.science.protocol import CLEAN, protocol_part
from crs_assets.science.splits import TEST
from crs_assets.science.suite import parse_task
from crs_assets.science.transfer import fitted_labels
from crs_assets.stages.data import Splits
from crs_assets.stages.encoders import EncoderWeights, read_features
from crs_assets.stages.probes import (
    FITS_FILE,
    RUNS_FILE,
    ProbeStage,
    all_there,
    embeddings,
    finite,
    open_task,
    prediction_inputs,
    run_constants,
    scored_on,
)
from crs_assets.stages.progress import Progress, report
from crs_assets.stages.run_scorer import TARGET, RunScorer
from crs_assets.stages.stage import Built

# k votes give k + 1 levels: too few for the bins of any calibration error.
_BINNED = ("ece", "ece_null", "ece_equal_mass", "ece_classwise", "rms_calibration_debiased")


class ControlProbes(ProbeStage):
    """Metrics of a perceptron and of nearest neighbours on every run of the grid; no part of any score."""

    name = "control_probes"
    code_version = "1"
    libraries = ("numpy", "polars", "scipy", "torch")
    side_by_side = True

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Features, splits, labels, and the parts of the protocol that fit and score."""
        encoder, task = parts
        dataset, _ = parse_task(task)
        protocol, source = bench.suite.protocol, bench.suite.datasets[dataset]
        return all_there(
            **embeddings(bench, encoder, dataset),
            **scored_on(bench, dataset),
            weights=EncoderWeights().version(bench, encoder),
            splits=Splits().version(bench, task),
            fractions=list(protocol.data.fractions),
            labels=list(fitted_labels(source).classes),
            protocol_id=protocol.id,
            protocol=protocol_part(protocol, "probe", "metrics"),
            control_probes=protocol.analyses.control_probes.model_dump(mode="json"),
            uncertain_labels=protocol.data.uncertain_labels,
            salt=protocol.salt,
            device=bench.compute.kind,
        )

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Fit both at every fraction, predict and score; the test split is read once."""
        encoder, task = parts
        dataset, seed = parse_task(task)
        ids, features = read_features(bench, encoder, dataset)
        probe_task = open_task(bench, dataset, seed, features)
        fits = fit_control_probes(probe_task, bench.suite.protocol, seed=seed, device=bench.compute.device)
        inputs = prediction_inputs(bench, encoder, dataset, probe_task, ids)
        scored = {key: images for key, images in inputs.items() if key[0] in (TEST, TARGET)}
        tables = {}
        for done, probe in enumerate(CONTROL_PROBES):
            report(Progress(self.name, parts, done, len(CONTROL_PROBES), "probes scored"))
            runs = _score(bench, seed, probe_task, fits[probe], scored, probe)
            tables[probe] = runs.with_columns(**run_constants(bench, encoder, dataset, probe))
        runs = pl.concat(tables.values())
        runs.write_parquet(staging.path(RUNS_FILE))
        rows = [fits[probe].rows(_problems(probe_task)).with_columns(probe=pl.lit(probe)) for probe in CONTROL_PROBES]
        pl.concat(rows).write_parquet(staging.path(FITS_FILE))
        clean = runs.filter((pl.col("condition") == CLEAN) & (pl.col("fraction") == 1.0))
        return Built(
            {
                "rows": runs.height,
                "not_converged": int((~runs["converged"]).sum()),
                "auroc": {row["probe"]: finite(row["auroc"]) for row in clean.iter_rows(named=True)},
            }
        )


def read_control_runs(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """Runs of an encoder, data set and seed under the control probes: the columns of ``run_metrics``.

    ``probe`` is ``mlp`` or ``knn``; ``lambda_at_edge`` tells of the weight decay. Calibration errors of nearest
    neighbours are null.
    """
    return pl.read_parquet(bench.store.open(bench.key(ControlProbes.name, encoder, task)).file(RUNS_FILE))


def _score(
    bench: Bench,
    seed: int,
    task: ProbeTask,
    fits: ControlFits,
    inputs: Mapping[tuple[str, str], Any],
    probe: str,
) -> pl.DataFrame:
    scorer = RunScorer.open(bench, task.space.id, seed)
    if probe == KNN:
        scorer = replace(scorer, votes=bench.suite.protocol.analyses.control_probes.knn_neighbours)
    runs = scorer.score(prediction_frame(fits, inputs), fits.rows(_problems(task))).runs
    return runs.with_columns(pl.lit(None, pl.Float64).alias(name) for name in _BINNED) if probe == KNN else runs


def _problems(task: ProbeTask) -> int:
    """Fit problems: one per label, or the one softmax."""
    return len(task.space.classes) if task.space.task == "multilabel" else 1


__all__ = ["ControlProbes", "read_control_runs"]
