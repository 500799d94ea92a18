"""Operating-point stage: thresholds of each encoder, data set and seed, and what they do on the test set."""

from typing import Any

import numpy as np
import polars as pl

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.operating_cases import SplitPredictions
from crs_assets.science.analyses.operating_points import operating_point_tables
from crs_assets.science.protocol import CLEAN
from crs_assets.science.splits import CALIBRATION, TEST, VALIDATION, RoleType
from crs_assets.science.suite import parse_task
from crs_assets.stages.analyses.stored_logits import StoredLogits
from crs_assets.stages.data import DatasetIndex, Splits, read_index, read_splits
from crs_assets.stages.encoders import usable_rows
from crs_assets.stages.probes import FITS_FILE, ProbePredictions, ProbeStage, all_there
from crs_assets.stages.run_scorer import RunScorer
from crs_assets.stages.stage import Built

POINTS_FILE = "operating_points.parquet"
NET_BENEFIT_FILE = "net_benefit.parquet"
ROLES: tuple[RoleType, ...] = (VALIDATION, CALIBRATION, TEST)


class OperatingPoints(ProbeStage):
    """Sensitivity, specificity, predictive values and net benefit at thresholds chosen before the test set is read."""

    name = "operating_points"
    code_version = "2"
    libraries = ("numpy", "polars", "scipy")

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Predictions, labels, splits, targets, prevalences and threshold probabilities."""
        encoder, task = parts
        dataset, _ = parse_task(task)
        protocol = bench.suite.protocol
        return all_there(
            predictions=ProbePredictions().version(bench, encoder, task),
            index=DatasetIndex().version(bench, dataset),
            splits=Splits().version(bench, task),
            protocol_id=protocol.id,
            operating_points=protocol.analyses.operating_points.model_dump(mode="json"),
            interval=protocol.statistics.interval,
            salt=protocol.salt,
        )

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Choose thresholds on calibration and validation, read the test set at them, resample patients."""
        encoder, task = parts
        dataset, seed = parse_task(task)
        protocol, spec = bench.suite.protocol, bench.suite.datasets[dataset]
        scorer = RunScorer.open(bench, dataset, seed)
        tables = operating_point_tables(
            spec.task,
            spec.classes,
            _predictions(bench, encoder, task, scorer),
            protocol,
            dataset,
            problems=_problems(bench, encoder, task, scorer),
        )
        constants = (
            pl.lit(encoder).alias("encoder"),
            pl.lit(dataset).alias("dataset"),
            pl.lit(seed, dtype=pl.Int64).alias("seed"),
            pl.lit(protocol.id).alias("protocol"),
        )
        tables.points.select(*constants, pl.all()).write_parquet(staging.path(POINTS_FILE))
        tables.net_benefit.select(*constants, pl.all()).write_parquet(staging.path(NET_BENEFIT_FILE))
        given = tables.points.filter(pl.col("reason").is_null())
        return Built(
            {
                "labels": len(spec.classes),
                "labels_with_points": given["label"].n_unique(),
                "points": tables.points.height,
                "points_without_figures": tables.points.height - given.height,
                "interval": given["interval"].first(),
            }
        )


def read_operating_points(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """Operating points of an encoder, data set and seed; see ``science.analyses.operating_points``."""
    return pl.read_parquet(bench.store.open(bench.key(OperatingPoints.name, encoder, task)).file(POINTS_FILE))


def read_net_benefit(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """Net benefit over threshold probabilities of an encoder, data set and seed."""
    return pl.read_parquet(bench.store.open(bench.key(OperatingPoints.name, encoder, task)).file(NET_BENEFIT_FILE))


def _predictions(bench: Bench, encoder: str, task: str, scorer: RunScorer) -> dict[RoleType, SplitPredictions]:
    """Clean predictions of each split at all labels, images in the order of the index."""
    stored = StoredLogits.open(bench, encoder, task, roles=ROLES)
    index = usable_rows(read_index(bench, scorer.dataset)).select("image_id", "group_id")
    roles = read_splits(bench, scorer.dataset, scorer.seed).select("image_id", "role")
    images = index.join(roles, on="image_id", how="left", maintain_order="left")
    splits: dict[RoleType, SplitPredictions] = {}
    for role in ROLES:
        rows = images.filter(pl.col("role") == role)
        at = [scorer.positions[scorer.dataset][image] for image in rows["image_id"]]
        splits[role] = SplitPredictions(
            labels=scorer.labels[scorer.dataset][at],
            logits=stored.of(rows["image_id"], role, CLEAN),
            group_ids=rows["group_id"].to_numpy().astype(np.str_),
        )
    return splits


def _problems(bench: Bench, encoder: str, task: str, scorer: RunScorer) -> dict[str, str]:
    """Labels that get no figure: those that are not scored, and those whose fit did not converge."""
    artifact = bench.store.open(bench.key(ProbePredictions.name, encoder, task))
    fits = pl.read_parquet(artifact.file(FITS_FILE)).filter((pl.col("fraction") == 1.0) & ~pl.col("converged"))
    failed = set(fits["problem"])
    problems = {}
    for position, name in enumerate(bench.suite.datasets[scorer.dataset].classes):
        if position not in scorer.classes:
            problems[name] = "not scored: too few positives or negatives in a split"
        elif (position if scorer.space.task == "multilabel" else 0) in failed:
            problems[name] = "the fit did not converge"
    return problems


__all__ = ["OperatingPoints", "read_net_benefit", "read_operating_points"]
