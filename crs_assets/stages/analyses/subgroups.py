"""Subgroup stage: the four axes of each encoder, data set and seed within age bands, sexes, sites and other groups."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.subgroup_axes import SubgroupRuns, TransferRuns
from crs_assets.science.analyses.subgroup_columns import subgroup_columns
from crs_assets.science.analyses.subgroups import COMMON_CLASSES, subgroup_tables
from crs_assets.science.evaluation import Scored
from crs_assets.science.protocol import CLEAN, TRANSFER, protocol_part
from crs_assets.science.splits import TEST
from crs_assets.science.suite import parse_task
from crs_assets.stages.analyses.stored_logits import StoredLogits
from crs_assets.stages.data import DatasetIndex, Splits, read_fractions, read_index
from crs_assets.stages.encoders import usable_rows
from crs_assets.stages.probes import ProbePredictions, ProbeStage, RunMetrics, all_there, read_runs
from crs_assets.stages.progress import Progress, report
from crs_assets.stages.run_scorer import TARGET, RunScorer
from crs_assets.stages.stage import Built

SUBGROUPS_FILE = "subgroups.parquet"
GAPS_FILE = "subgroup_gaps.parquet"


class Subgroups(ProbeStage):
    """The four axes within each subgroup of the test set, the worst group and the gap; few patients are not shown."""

    name = "subgroups"
    code_version = "2"
    libraries = ("numpy", "polars", "scipy")
    side_by_side = True

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Predictions, which of them converged, labels and subgroups, and the parts of the protocol that are read."""
        encoder, task = parts
        dataset, _ = parse_task(task)
        protocol, target = bench.suite.protocol, bench.suite.target_of(dataset)
        return all_there(
            predictions=ProbePredictions().version(bench, encoder, task),
            runs=RunMetrics().version(bench, encoder, task),
            index=DatasetIndex().version(bench, dataset),
            target_index=DatasetIndex().version(bench, target) if target else "",
            splits=Splits().version(bench, task),
            protocol_id=protocol.id,
            protocol=protocol_part(protocol, "axes", "metrics"),
            eligibility=protocol.data.eligibility.test,
            subgroups=protocol.analyses.subgroups.model_dump(mode="json"),
            interval=protocol.statistics.interval,
            salt=protocol.salt,
        )

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Group the test images, evaluate every run in each group, resample patients."""
        encoder, task = parts
        dataset, seed = parse_task(task)
        protocol = bench.suite.protocol
        runs = read_subgroup_runs(bench, encoder, task)
        tables = subgroup_tables(runs, protocol, dataset, self._progress(parts))
        constants = (
            pl.lit(encoder).alias("encoder"),
            pl.lit(dataset).alias("dataset"),
            pl.lit(seed, dtype=pl.Int64).alias("seed"),
            pl.lit(protocol.id).alias("protocol"),
        )
        tables.groups.select(*constants, pl.all()).write_parquet(staging.path(SUBGROUPS_FILE))
        tables.gaps.select(*constants, pl.all()).write_parquet(staging.path(GAPS_FILE))
        groups = tables.groups.unique(["column", "group"])
        return Built(
            {
                "columns": [column.name for column in runs.columns],
                "groups_shown": int((~groups["suppressed"]).sum()),
                "groups_suppressed": int(groups["suppressed"].sum()),
                "problem": runs.problem,
                "note": None if runs.columns else f"{dataset} has no subgroup column",
                "gaps": _own_gaps(tables.gaps),
            }
        )

    def _progress(self, parts: tuple[str, ...]) -> Callable[[int, int], None]:
        return lambda done, total: report(Progress(self.name, parts, done, total, "groups"))


def read_subgroups(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """Axes per subgroup of an encoder, data set and seed; see ``science.analyses.subgroups.SubgroupTables``."""
    return pl.read_parquet(bench.store.open(bench.key(Subgroups.name, encoder, task)).file(SUBGROUPS_FILE))


def read_subgroup_gaps(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """Worst group and gap per subgroup column and axis of an encoder, data set and seed."""
    return pl.read_parquet(bench.store.open(bench.key(Subgroups.name, encoder, task)).file(GAPS_FILE))


def read_subgroup_runs(bench: Bench, encoder: str, task: str) -> SubgroupRuns:
    """Everything that subgroup axes are computed from, test images in the order of the index."""
    dataset, seed = parse_task(task)
    protocol = bench.suite.protocol
    scorer = RunScorer.open(bench, dataset, seed)
    index = usable_rows(read_index(bench, dataset)).filter("is_test")
    stored = StoredLogits.open(bench, encoder, task, roles=(TEST, TARGET))
    labels = scorer.labels[dataset][[scorer.positions[dataset][image] for image in index["image_id"]]]

    def scored(condition: str, fraction: float = 1.0) -> Scored:
        return Scored(labels, stored.of(index["image_id"], TEST, condition, fraction), scorer.classes)

    fractions = read_fractions(bench, dataset, seed)
    failed = int((~read_runs(bench, encoder, task)["converged"]).sum())
    return SubgroupRuns(
        task=scorer.space.task,
        group_ids=index["group_id"].to_numpy().astype(np.str_),
        columns=subgroup_columns(index, protocol.analyses.subgroups.age_edges),
        curve={fraction: scored(CLEAN, fraction) for fraction in protocol.data.fractions},
        degraded={condition.name: scored(condition.name) for condition in protocol.degradations()},
        transfer=_transfer_runs(bench, scorer, index, stored),
        problem=f"{failed} run(s) did not converge" if failed else None,
        distinct_fractions=fractions["n_fit"].n_unique() == fractions.height,
    )


def _transfer_runs(bench: Bench, scorer: RunScorer, index: pl.DataFrame, stored: StoredLogits) -> TransferRuns | None:
    """Both sides read as the target names its labels; None where the data set has no target."""
    target = bench.suite.target_of(scorer.dataset)
    if target is None:
        return None
    there = usable_rows(read_index(bench, target))
    here, at_target = index["image_id"], there["image_id"]
    return TransferRuns(
        task=scorer.target_space.task,
        source=scorer.read_source(here, stored.of(here, TEST, CLEAN)),
        target=scorer.read(at_target, stored.of(at_target, TARGET, TRANSFER), TRANSFER),
        group_ids=there["group_id"].to_numpy().astype(np.str_),
        columns=subgroup_columns(there, bench.suite.protocol.analyses.subgroups.age_edges),
        image_set=target,
    )


def _own_gaps(gaps: pl.DataFrame) -> dict[str, dict[str, float | None]]:
    """Column -> axis -> gap, each group on its own classes."""
    own = gaps.filter(pl.col("basis").is_null() | (pl.col("basis") != COMMON_CLASSES))
    found: dict[str, dict[str, float | None]] = {}
    for column, axis, gap in own.select("column", "axis", "gap").iter_rows():
        found.setdefault(column, {})[axis] = gap
    return found


__all__ = ["Subgroups", "read_subgroup_gaps", "read_subgroup_runs", "read_subgroups"]
