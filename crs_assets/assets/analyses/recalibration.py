"""Group ``analyses``: recalibration of each encoder, data set and seed, and its summary."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.assets.analyses.common import GROUP, on_probes
from crs_assets.assets.analyses.pictures import of_recalibration
from crs_assets.assets.describe import Metadata, markdown_table
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Recorded
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench
from crs_assets.science.protocol import CLEAN
from crs_assets.stages.analyses.recalibration import (
    Recalibration,
    RecalibrationSummary,
    headline,
    read_recalibration,
    read_recalibration_summary,
)
from crs_assets.stages.stage import Outcome

KINDS = frozenset({"polars", "parquet"})


def recalibration(partitions: Partitions) -> dg.AssetsDefinition:
    """Maps of each encoder, data set and seed, before and after."""
    return on_probes(partitions, Recalibration(), describe_recalibration, "probe_predictions", "run_metrics")


def recalibration_summary(partitions: Partitions) -> dg.AssetsDefinition:
    """What the maps do over all cells."""
    prefix = partitions.suite.id
    deps = (dg.AssetDep(dg.AssetKey([prefix, "recalibration"])),)
    recorded = Recorded(RecalibrationSummary(), dg.AssetKey([prefix, "recalibration_summary"]), describe_summary)
    return stage_assets(partitions.suite, Shared("recalibration_summary"), [Declared(recorded, GROUP, KINDS, deps)])


def describe_recalibration(bench: Bench, outcome: Outcome) -> Metadata:
    """Before and after each map: clean with all calibration cases, and the curve over numbers of cases."""
    summary = outcome.manifest.summary
    rows = read_recalibration(bench, *outcome.parts)
    measured = ["ece_before", "ece_after", "log_loss_before", "log_loss_after", "auroc_before", "auroc_after"]
    clean = rows.filter(pl.col("all_cases") & (pl.col("condition") == CLEAN))
    curve = rows.filter(~pl.col("all_cases"))
    return {
        "dagster/row_count": summary["rows"],
        "rows_without_map": summary["rows_without_map"],
        **{name: value for name, value in _errors(summary).items() if value is not None},
        "before_and_after": markdown_table(clean.select("method", "n_fit", *measured, "meaningful", "reason")),
        "over_cases": markdown_table(
            curve.select("fitted_on", "method", "n_cases", "n_fit", "ece_before", "ece_after", "reason")
        ),
    }


def _errors(summary: Mapping[str, Any]) -> dict[str, float | None]:
    """Calibration error before and after each map: clean, with all calibration cases."""
    after = {f"ece_after {method}": value for method, value in summary["ece_after"].items()}
    return {"ece_before": summary["ece_before"], **after}


def describe_summary(bench: Bench, outcome: Outcome) -> Metadata:
    """Means over all cells: clean, with all calibration cases."""
    summary, differences = read_recalibration_summary(bench), outcome.manifest.summary["ece_difference"]
    shown = ["method", "metric", "before", "after", "difference", "low", "high", "n", "n_meaningful", "n_worse"]
    return {
        "dagster/row_count": summary.height,
        "cells": outcome.manifest.summary["cells"],
        **{f"ece_difference {name}": value for name, value in differences.items() if value is not None},
        "before_and_after": markdown_table(headline(summary).select(shown)),
        **of_recalibration(bench),
    }
