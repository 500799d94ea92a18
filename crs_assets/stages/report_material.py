"""What the report is made of: everything that the store holds of a suite, read and put side by side."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from crs_assets.report.evidence import Analysis, DatasetCard, Evidence
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.uncertainty import CENTRED, PANEL_FIXED
from crs_assets.science.canonical import digest
from crs_assets.science.datasets import DatasetSpec
from crs_assets.science.leaderboard import Board
from crs_assets.science.protocol import CLEAN
from crs_assets.science.statistics import RankAgreement
from crs_assets.science.suite import task_key
from crs_assets.stages import leaderboard as board_stage
from crs_assets.stages.analyses.control_probes import ControlProbes, read_control_runs
from crs_assets.stages.analyses.depth import DepthSweep, read_depth_sweep
from crs_assets.stages.analyses.external_validity import FAMILIES, PREDICTORS, ExternalValidity
from crs_assets.stages.analyses.extra_degradations import ExtraDegradationMetrics, read_extra_runs
from crs_assets.stages.analyses.operating_points import OperatingPoints, read_operating_points
from crs_assets.stages.analyses.rank_agreement import AGREEMENT, RankAgreementAnalysis
from crs_assets.stages.analyses.recalibration import RecalibrationSummary, read_recalibration_summary
from crs_assets.stages.analyses.reference_invariance import DISPLACEMENT, TRIALS, ReferenceInvariance
from crs_assets.stages.analyses.run_audits import (
    CELLS,
    CONDITIONS,
    CORRELATIONS,
    CURVES,
    REACH,
    LabelEfficiencyAudit,
    PerturbationAudit,
)
from crs_assets.stages.analyses.score_sensitivity import VARIANT_TABLE, WEIGHTINGS, ScoreSensitivity
from crs_assets.stages.analyses.subgroups import Subgroups, read_subgroup_gaps, read_subgroups
from crs_assets.stages.analyses.suite_analysis import KEY_FIGURES_FILE, read_table, whole_cells
from crs_assets.stages.analyses.uncertainty import LEADING_TIER_FILE, Uncertainty
from crs_assets.stages.data import COUNTS_FILE, DatasetIndex, read_classes
from crs_assets.stages.leaderboard import Leaderboard, make_page
from crs_assets.stages.probes import RELIABILITY_FILE, RUNS_FILE, RunMetrics
from crs_assets.stages.stage import Stage

UNCERTAINTY_TABLES = ("intervals", "differences", "dominance", "ranks")
PROBE_COLUMNS = ("encoder", "dataset", "probe", "seed", "fraction", "condition", "converged", "auroc")


@dataclass(frozen=True)
class Source:
    """An analysis as the report reads it.

    Attributes:
        stage: What makes it.
        read: Its tables and figures.
        per_cell: Whether it has a partition per encoder, data set and seed; whole cells are read.
    """

    stage: Stage
    read: Callable[[Bench], Analysis]
    per_cell: bool = False

    def version(self, bench: Bench) -> Any:
        """What is in the store of it; something empty where there is nothing."""
        return whole_cells(bench, self.stage) if self.per_cell else self.stage.version(bench)

    def is_current(self, bench: Bench) -> bool:
        """Whether what is there is what its recipe would make now."""
        if not self.per_cell:
            return self.stage.is_current(bench)
        cells = whole_cells(bench, self.stage)
        return all(
            self.stage.is_current(bench, encoder, task)
            for encoder, datasets in cells.items()
            for tasks in datasets.values()
            for task in tasks
        )


def read_evidence(bench: Bench) -> Evidence:
    """The leaderboard, the runs behind it, and every analysis that is in the store."""
    runs, reliability = _runs(bench)
    there = {name: source for name, source in SOURCES.items() if source.version(bench)}
    return Evidence(
        page=make_page(bench, read_board(bench)),
        runs=runs,
        reliability=reliability,
        cards=tuple(_card(bench, name, spec) for name, spec in bench.suite.image_sets.items()),
        analyses={name: source.read(bench) for name, source in there.items()},
        outdated=outdated(bench),
        is_board_outdated=not Leaderboard().is_current(bench),
        versions=_versions(bench, there),
    )


def outdated(bench: Bench) -> tuple[str, ...]:
    """Analyses in the store that were made from an earlier state of what they rest on."""
    return tuple(name for name, source in SOURCES.items() if source.version(bench) and not source.is_current(bench))


def read_board(bench: Bench) -> Board:
    """The leaderboard as it is stored."""
    artifact = bench.store.open(bench.key(Leaderboard.name))
    agreement = json.loads(artifact.file(board_stage.AGREEMENT_FILE).read_text(encoding="utf-8"))
    return Board(
        rows=pl.read_parquet(artifact.file(board_stage.ROWS_FILE)),
        cells=pl.read_parquet(artifact.file(board_stage.CELLS_FILE)),
        common=tuple(artifact.manifest.summary["common_datasets"]),
        unrankable=tuple(artifact.manifest.summary["unrankable"]),
        agreement={name: _agreement(found) for name, found in agreement.items()},
    )


def run_versions(bench: Bench) -> dict[str, dict[str, str]]:
    """Encoder or control -> task -> version of its run metrics, whole cells only."""
    found: dict[str, dict[str, str]] = {}
    for name in bench.suite.encoders:
        for dataset in bench.suite.existing_datasets(name):
            tasks = [task_key(dataset, seed) for seed in bench.suite.protocol.data.seeds]
            versions = {task: RunMetrics().version(bench, name, task) for task in tasks}
            known = {task: version for task, version in versions.items() if version is not None}
            if len(known) == len(tasks):
                found.setdefault(name, {}).update(known)
    return found


def _agreement(found: Mapping[str, Any]) -> RankAgreement:
    undefined = {name: float("nan") for name in ("kendall_tau", "spearman_rho") if found[name] is None}
    values: dict[str, Any] = {**found, **undefined, "moves": tuple(found["moves"])}
    return RankAgreement(**values)


def _runs(bench: Bench) -> tuple[pl.DataFrame, pl.DataFrame]:
    runs, bins = [], []
    for encoder, tasks in run_versions(bench).items():
        for task in tasks:
            artifact = bench.store.open(bench.key(RunMetrics.name, encoder, task))
            own = pl.read_parquet(artifact.file(RUNS_FILE))
            runs.append(own)
            keys = {name: pl.lit(own[name][0]) for name in ("encoder", "dataset", "seed")}
            table = pl.read_parquet(artifact.file(RELIABILITY_FILE)).filter(pl.col("condition") == CLEAN)
            bins.append(table.with_columns(**keys))
    return pl.concat(runs), pl.concat(bins)


def _card(bench: Bench, name: str, spec: DatasetSpec) -> DatasetCard:
    counts = pl.read_parquet(bench.store.open(bench.key(DatasetIndex.name, name)).file(COUNTS_FILE))
    left_out: tuple[str, ...] = ()
    if name in bench.suite.datasets:
        classes = read_classes(bench, name, bench.suite.protocol.data.seeds[0])
        left_out = tuple(classes.filter(~pl.col("eligible"))["class"])
    source = bench.suite.source_of(name)
    facts = {
        "used as": f"transfer target of {source}" if source else "data set that probes are fitted on",
        "kind of problem": f"{spec.task}, {len(spec.classes)} classes",
        "never divided between splits": spec.group,
        "labels by": spec.label_source,
        "licence": spec.licence,
        "access": spec.access,
        "citation": spec.citation,
        "generator": spec.phantom or "",
        "index": DatasetIndex().version(bench, name) or "",
    }
    shown = tuple((term, text) for term, text in facts.items() if text)
    return DatasetCard(name, spec.title, shown, counts, left_out)


def _versions(bench: Bench, there: Mapping[str, Source]) -> dict[str, str]:
    analyses = {name: source.version(bench) for name, source in there.items()}
    return {
        "leaderboard": Leaderboard().version(bench) or "",
        "run_metrics (all)": digest(run_versions(bench)),
        **{f"index of {name}": DatasetIndex().version(bench, name) or "" for name in bench.suite.image_sets},
        **{name: found if isinstance(found, str) else digest(found) for name, found in analyses.items()},
    }


def _uncertainty(bench: Bench) -> Analysis:
    artifact = bench.store.open(bench.key(Uncertainty.name))
    document = json.loads(artifact.file(LEADING_TIER_FILE).read_text(encoding="utf-8"))
    wanted = {"reading": bench.suite.protocol.id, "kind": CENTRED, "peers": PANEL_FIXED}
    verdicts = [entry for entry in document["verdicts"] if wanted.items() <= entry.items()]
    figures = {"threshold": document["threshold"], "top_k": document["top_k"], "verdict": next(iter(verdicts), None)}
    tables = {name: pl.read_parquet(artifact.file(f"{name}.parquet")) for name in UNCERTAINTY_TABLES}
    return Analysis(tables, figures)


def _of_suite(stage: Stage, *tables: str) -> Source:
    """An analysis of the whole suite: its tables, and its key figures."""

    def read(bench: Bench) -> Analysis:
        path = bench.store.open(bench.key(stage.name)).file(KEY_FIGURES_FILE)
        figures = json.loads(path.read_text(encoding="utf-8"))
        return Analysis({name: read_table(bench, stage.name, name) for name in tables}, figures)

    return Source(stage, read)


def _of_cells(stage: Stage, **readers: Callable[[Bench, str, str], pl.DataFrame]) -> Source:
    """An analysis of cells and seeds: the tables of all of them."""

    def read(bench: Bench) -> Analysis:
        cells = whole_cells(bench, stage)
        parts = [(encoder, task) for encoder, sets in cells.items() for tasks in sets.values() for task in tasks]
        return Analysis({name: pl.concat([reader(bench, *part) for part in parts]) for name, reader in readers.items()})

    return Source(stage, read, per_cell=True)


def _probe_aurocs(bench: Bench) -> Analysis:
    """AUROC of the control probes beside the linear one, clean, at all labels: means over converged seeds."""
    cells = whole_cells(bench, ControlProbes())
    parts = [(encoder, task) for encoder, sets in cells.items() for tasks in sets.values() for task in tasks]
    controls = [read_control_runs(bench, *part).select(PROBE_COLUMNS) for part in parts]
    linear = [
        pl.read_parquet(bench.store.open(bench.key(RunMetrics.name, *part)).file(RUNS_FILE)).select(PROBE_COLUMNS)
        for part in parts
    ]
    clean = pl.concat([*linear, *controls]).filter((pl.col("fraction") == 1.0) & (pl.col("condition") == CLEAN))
    usable = pl.when(pl.col("converged") & pl.col("auroc").is_finite()).then(pl.col("auroc"))
    means = (
        clean.sort("encoder", "dataset", "probe", "seed")
        .group_by("encoder", "dataset", "probe", maintain_order=True)
        .agg(auroc=pl.when(usable.is_not_null().all()).then(usable.mean()))
    )
    return Analysis({"auroc": means})


def _recalibration(bench: Bench) -> Analysis:
    return Analysis({"summary": read_recalibration_summary(bench)})


SOURCES: Mapping[str, Source] = {
    Uncertainty.name: Source(Uncertainty(), _uncertainty),
    RankAgreementAnalysis.name: _of_suite(RankAgreementAnalysis(), AGREEMENT),
    RecalibrationSummary.name: Source(RecalibrationSummary(), _recalibration),
    LabelEfficiencyAudit.name: _of_suite(LabelEfficiencyAudit(), CURVES, CORRELATIONS, REACH),
    PerturbationAudit.name: _of_suite(PerturbationAudit(), CONDITIONS, CELLS),
    ExternalValidity.name: _of_suite(ExternalValidity(), PREDICTORS, FAMILIES),
    Subgroups.name: _of_cells(Subgroups(), groups=read_subgroups, gaps=read_subgroup_gaps),
    OperatingPoints.name: _of_cells(OperatingPoints(), points=read_operating_points),
    ControlProbes.name: Source(ControlProbes(), _probe_aurocs, per_cell=True),
    DepthSweep.name: _of_cells(DepthSweep(), depths=read_depth_sweep),
    ExtraDegradationMetrics.name: _of_cells(ExtraDegradationMetrics(), runs=read_extra_runs),
    ScoreSensitivity.name: _of_suite(ScoreSensitivity(), VARIANT_TABLE, WEIGHTINGS),
    ReferenceInvariance.name: _of_suite(ReferenceInvariance(), DISPLACEMENT, TRIALS),
}
"""Every analysis that the report shows, in the order of its chapters."""
