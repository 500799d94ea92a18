"""Recalibration stages: maps of each cell and seed before and after, and what they do over all of them."""

from collections.abc import Iterator
from typing import Any

import polars as pl

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.recalibration import ROW_SCHEMA, case_curve, full_rows, null_band_of
from crs_assets.science.analyses.recalibration_summary import (
    ALL_CASES,
    OVERALL,
    condition_groups,
    summarise,
)
from crs_assets.science.protocol import CLEAN, TRANSFER, Protocol, protocol_part
from crs_assets.science.seeding import generator
from crs_assets.science.splits import CALIBRATION
from crs_assets.science.statistics import seed_bootstrap_indices
from crs_assets.science.suite import parse_task, task_key
from crs_assets.stages.analyses.recalibration_material import Material
from crs_assets.stages.data import DatasetIndex, Splits
from crs_assets.stages.probes import ProbePredictions, ProbeStage, RunMetrics, read_runs
from crs_assets.stages.run_scorer import TARGET
from crs_assets.stages.stage import Built, Stage

RECALIBRATION_FILE = "recalibration.parquet"
SUMMARY_FILE = "summary.parquet"


class Recalibration(ProbeStage):
    """Recalibration maps of each encoder, data set and seed, fitted on calibration and on target cases."""

    name = "recalibration"
    code_version = "1"
    libraries = ("numpy", "polars", "scikit-learn", "scipy")

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Predictions and their published metrics, labels, groups, and the numbers of cases."""
        encoder, task = parts
        dataset, _ = parse_task(task)
        protocol, target = bench.suite.protocol, bench.suite.target_of(dataset)
        versions = {
            "predictions": ProbePredictions().version(bench, encoder, task),
            "runs": RunMetrics().version(bench, encoder, task),
            "index": DatasetIndex().version(bench, dataset),
            "target_index": DatasetIndex().version(bench, target) if target else "",
            "splits": Splits().version(bench, task),
        }
        if None in versions.values():
            return None
        return {
            **versions,
            "cases": protocol.analyses.recalibration.model_dump(mode="json"),
            "protocol": protocol_part(protocol, "metrics"),
            "protocol_id": protocol.id,
            "salt": protocol.salt,
        }

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Fit every method on calibration cases, then on target cases, and judge each on images it never saw."""
        encoder, task = parts
        dataset, seed = parse_task(task)
        protocol = bench.suite.protocol
        runs = read_runs(bench, encoder, task).filter(pl.col("fraction") == 1.0)
        material = Material.open(bench, encoder, task)
        table = pl.DataFrame(_rows(material, runs, protocol), schema=ROW_SCHEMA).with_columns(
            encoder=pl.lit(encoder),
            dataset=pl.lit(dataset),
            seed=pl.lit(seed, dtype=pl.Int64),
            protocol=pl.lit(protocol.id),
            converged=pl.lit(bool(runs["converged"].all())),
        )
        table.write_parquet(staging.path(RECALIBRATION_FILE))
        clean = table.filter(pl.col("all_cases") & (pl.col("condition") == CLEAN))
        return Built(
            {
                "rows": table.height,
                "rows_without_map": table["reason"].count(),
                "calibration_images": len(material.calibration),
                "ece_before": clean["ece_before"].first(),
                "ece_after": dict(clean.select("method", "ece_after").iter_rows()),
            }
        )


class RecalibrationSummary(Stage):
    """Recalibration over encoders and data sets: means before and after with seed intervals; controls left out."""

    name = "recalibration_summary"
    code_version = "1"
    libraries = ("numpy", "polars")

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:  # noqa: ARG002  (one partition in every suite)
        """One."""
        return iter([()])

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:  # noqa: ARG002
        """Every cell that is there with all its seeds."""
        tables = {"|".join(cell): Recalibration().version(bench, *cell) for cell in _whole_cells(bench)}
        if not tables:
            return None
        protocol = bench.suite.protocol
        return {
            "tables": tables,
            "seeds": list(protocol.data.seeds),
            "protocol": protocol_part(protocol, "statistics", "perturbations"),
            "salt": protocol.salt,
        }

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:  # noqa: ARG002
        """Collect, average, resample seeds; runs whose probe did not converge are left out and counted."""
        protocol, seeds = bench.suite.protocol, bench.suite.protocol.data.seeds
        rows = pl.concat([read_recalibration(bench, *cell) for cell in _whole_cells(bench)])
        rng = generator(protocol.salt, "seed_bootstrap")
        draws = seed_bootstrap_indices(len(seeds), protocol.statistics.replicates, rng)
        summary = summarise(
            rows.filter("converged"), condition_groups(protocol), seeds, draws, protocol.statistics.interval
        ).with_columns(interval=pl.lit("seed"), protocol=pl.lit(protocol.id))
        summary.write_parquet(staging.path(SUMMARY_FILE))
        tasks = rows.select("encoder", "dataset", "seed", "converged").unique()
        errors = headline(summary).filter(pl.col("metric") == "ece")
        return Built(
            {
                "rows": summary.height,
                "cells": tasks.select("encoder", "dataset").n_unique(),
                "tasks_not_converged": int((~tasks["converged"]).sum()),
                "ece_difference": dict(errors.select("method", "difference").iter_rows()),
            }
        )


def read_recalibration(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """Rows of an encoder, data set and seed."""
    artifact = bench.store.open(bench.key(Recalibration.name, encoder, task))
    return pl.read_parquet(artifact.file(RECALIBRATION_FILE))


def read_recalibration_summary(bench: Bench) -> pl.DataFrame:
    """The summary over all whole cells."""
    return pl.read_parquet(bench.store.open(bench.key(RecalibrationSummary.name)).file(SUMMARY_FILE))


def headline(summary: pl.DataFrame) -> pl.DataFrame:
    """What each method does over all cells: clean images, fitted on all calibration cases."""
    return summary.filter(
        (pl.col("dataset") == OVERALL)
        & (pl.col("kind") == CALIBRATION)
        & (pl.col("cases") == ALL_CASES)
        & (pl.col("condition_group") == CLEAN)
    )


def _rows(material: Material, runs: pl.DataFrame, protocol: Protocol) -> list[dict[str, Any]]:
    scorer, target = material.scorer, material.target
    task, classes, settings = scorer.space.task, scorer.classes, protocol.analyses.recalibration
    null_highs = dict(runs.select("condition", "ece_null").iter_rows())
    clean = next(one for one in material.tests if one.condition == CLEAN)
    judged = list(material.tests)
    if target:
        # Half of the target is evaluated, so the published band, which is of all of it, is not its band.
        rng = generator(protocol.salt, "null_band", scorer.dataset, scorer.seed, "recalibration", TRANSFER)
        null_highs[TRANSFER] = null_band_of(target.evaluated_as_read, protocol.metrics, rng)
        judged.append(target.evaluated)
    order = [protocol.salt, "recalibration_cases"]
    rows = [
        *case_curve(
            material.calibration,
            classes,
            task,
            clean,
            null_highs[CLEAN],
            counts=settings.cases,
            order=[*order, scorer.dataset, scorer.seed],
        ),
        *full_rows(material.calibration, classes, task, judged, null_highs),
    ]
    of_calibration = [{**row, "fitted_on": CALIBRATION} for row in rows]
    if not target:
        return of_calibration
    curve = case_curve(
        target.cases,
        scorer.target_classes,
        scorer.target_space.task,
        target.evaluated_as_read,
        null_highs[TRANSFER],
        counts=settings.target_cases,
        order=[*order, target.name, scorer.seed],
    )
    return [*of_calibration, *({**row, "fitted_on": TARGET} for row in curve)]


def _whole_cells(bench: Bench) -> list[tuple[str, str]]:
    """(encoder, task) of every cell that is there with all its seeds; controls are no part of a summary."""
    cells = []
    for encoder, spec in bench.suite.encoders.items():
        if spec.role == "control":
            continue
        for dataset in bench.suite.existing_datasets(encoder):
            tasks = [(encoder, task_key(dataset, seed)) for seed in bench.suite.protocol.data.seeds]
            if all(Recalibration().version(bench, *task) for task in tasks):
                cells.extend(tasks)
    return cells
