"""Audits of two axes from run metrics: label efficiency, and what perturbation does to calibration."""

from typing import Any

import polars as pl

from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.label_audit import learning_curves, levels, measure_correlations, reach
from crs_assets.science.analyses.perturbation_audit import cell_changes, condition_changes, loss_and_rise
from crs_assets.stages.analyses.published import read_published
from crs_assets.stages.analyses.suite_analysis import Findings, SuiteAnalysis, encoders, read_all_runs
from crs_assets.stages.scores import AxisProfile, read_profile

CURVES = "curves"
CORRELATIONS = "correlations"
REACH = "reach"
CONDITIONS = "conditions"
CELLS = "cells"


class LabelEfficiencyAudit(SuiteAnalysis):
    """Learning curves, what area and retention measure beside full-label AUROC, at which fraction who is reached."""

    name = "label_efficiency_audit"
    code_version = "1"
    reads = ("scores", "profiles", "runs", "panel")

    def settings(self, bench: Bench) -> dict[str, Any]:
        """Fractions, bootstrap and salt."""
        protocol = bench.suite.protocol
        return {
            "fractions": list(protocol.data.fractions),
            "statistics": protocol.statistics.model_dump(mode="json"),
            "ranking": protocol.analyses.ranking.model_dump(mode="json"),
            "salt": protocol.salt,
        }

    def analyse(self, bench: Bench) -> Findings:
        """Curves, correlations, who reaches whom."""
        suite, published = bench.suite, read_published(bench)
        curves = learning_curves(read_all_runs(bench), suite.protocol)
        measures = ["aulc", *(_retention(reading.id) for reading in suite.readings)]
        correlations = measure_correlations(
            _measures(bench), measures, ranked=published.ranked(suite.protocol.id), common=published.common
        )
        return Findings(
            {CURVES: curves, CORRELATIONS: correlations, REACH: reach(curves)},
            {
                "smallest_fraction": suite.protocol.data.fractions[0],
                "highest_at_smallest_fraction": levels(curves, top_k=suite.protocol.analyses.ranking.top_k),
                "rho_with_full_auroc": {
                    f"{row['measure']}, {row['scope']}, n = {row['n']}": row["rho"]
                    for row in correlations.iter_rows(named=True)
                },
            },
        )


class PerturbationAudit(SuiteAnalysis):
    """Rise of ECE under degraded images beside the loss of AUROC, per condition and cell, and their correlation."""

    name = "perturbation_audit"
    code_version = "1"
    reads = ("runs",)

    def settings(self, bench: Bench) -> dict[str, Any]:
        """Which runs there are."""
        protocol = bench.suite.protocol
        return {
            "full_fraction": protocol.data.fractions[-1],
            "conditions": [condition.name for condition in protocol.conditions(transfer=False)],
        }

    def analyse(self, bench: Bench) -> Findings:
        """Changes per condition and per cell."""
        conditions = condition_changes(read_all_runs(bench), bench.suite.protocol)
        cells = cell_changes(conditions)
        found = loss_and_rise(cells)
        worst = cells.drop_nulls("ece_rise_mean").sort("ece_rise_mean", "encoder", descending=[True, False]).head(1)
        return Findings(
            {CONDITIONS: conditions, CELLS: cells},
            {
                "pearson_r": found.value,
                "cells": found.n,
                "reason": found.reason,
                "largest_mean_ece_rise": worst.select(
                    "encoder", "dataset", "ece_rise_mean", "ece_rise_peak", "peak_condition"
                ).to_dicts(),
            },
        )


def _retention(reading: str) -> str:
    return f"retention of {reading}"


def _measures(bench: Bench) -> pl.DataFrame:
    """Area under the learning curve and retention of every cell that has axes."""
    primary, rows = bench.suite.protocol.id, []
    for encoder in encoders(bench):
        if AxisProfile().version(bench, encoder) is None:
            continue
        for dataset, cell in read_profile(bench, encoder)["datasets"].items():
            if cell[primary]["problem"] is None:
                rows.append(
                    {
                        "encoder": encoder,
                        "dataset": dataset,
                        "discrimination": cell[primary]["raw"]["discrimination"],
                        "aulc": cell[primary]["components"]["aulc"],
                        **{_retention(name): profile["raw"]["label_efficiency"] for name, profile in cell.items()},
                    }
                )
    names = ("discrimination", "aulc", *(_retention(reading.id) for reading in bench.suite.readings))
    schema = {"encoder": pl.Utf8, "dataset": pl.Utf8, **dict.fromkeys(names, pl.Float64)}
    return pl.DataFrame(rows, schema=schema)
