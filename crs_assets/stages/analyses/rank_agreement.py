"""Rank agreement of AUROC, of every axis and reading with CRS, and of the control probes with the linear one."""

from typing import Any

import polars as pl

from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.agreement import COMMON, CRS, rank_agreements
from crs_assets.science.analyses.axis_variants import has_distinct_fractions
from crs_assets.science.analyses.control_axes import control_axes
from crs_assets.science.suite import parse_task
from crs_assets.stages.analyses.control_probes import ControlProbes, read_control_runs
from crs_assets.stages.analyses.published import read_published
from crs_assets.stages.analyses.suite_analysis import Findings, SuiteAnalysis, whole_cells

AGREEMENT = "agreement"
MOVES = "moves"


class RankAgreementAnalysis(SuiteAnalysis):
    """How far rankings by AUROC, axis, reading and control probe agree with the published ones, and who moves where."""

    name = "rank_agreement"
    code_version = "1"
    reads = ("scores", "profiles", "panel")
    reads_if_there = ("control_probes",)

    def settings(self, bench: Bench) -> dict[str, Any]:
        """Size of the top group."""
        return {"ranking": bench.suite.protocol.analyses.ranking.model_dump(mode="json")}

    def analyse(self, bench: Bench) -> Findings:
        """Compare rankings over common data sets, existing cells, and each data set."""
        suite, published = bench.suite, read_published(bench)
        found = rank_agreements(
            published.cells,
            suite.readings,
            common=published.common,
            rankable=published.rankable,
            top_k=suite.protocol.analyses.ranking.top_k,
            control_axes=read_control_axes(bench),
        )
        headline = found.table.filter(
            (pl.col("scope") == COMMON)
            & (pl.col("reading") == suite.protocol.id)
            & (pl.col("a") == "discrimination")
            & (pl.col("b") == CRS)
        ).row(0, named=True)
        figures = ("n", "kendall_tau", "spearman_rho", "reversed_pairs", "pairs", "mean_displacement", "top_k_overlap")
        return Findings(
            {AGREEMENT: found.table, MOVES: found.moves},
            {
                **{name: headline[name] for name in figures},
                "compared": "AUROC against CRS",
                "data_sets": ", ".join(published.common),
            },
        )


def read_control_axes(bench: Bench) -> pl.DataFrame | None:
    """Raw axes of the control probes (``AXES_SCHEMA``), of every whole cell; None where none has been run."""
    tables = []
    for encoder, datasets in whole_cells(bench, ControlProbes()).items():
        for tasks in datasets.values():
            runs = {parse_task(task)[1]: read_control_runs(bench, encoder, task) for task in tasks}
            distinct = {seed: has_distinct_fractions(rows) for seed, rows in runs.items()}
            tables.append(control_axes(pl.concat(runs.values()), bench.suite.protocol, distinct_fractions=distinct))
    return pl.concat(tables) if tables else None
