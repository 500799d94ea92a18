"""Analyses of a whole suite: one partition; tables and a few key figures made from what is stored."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from crs_assets.resources.artifact_store import Staging, write_atomic
from crs_assets.resources.bench import Bench
from crs_assets.science.canonical import canonical_json
from crs_assets.science.suite import task_key
from crs_assets.stages.analyses.axis_replicates import AxisReplicates
from crs_assets.stages.analyses.control_probes import ControlProbes
from crs_assets.stages.analyses.penalty_axes import PenaltyAxes
from crs_assets.stages.panel_in_force import active_panel
from crs_assets.stages.probes import RunMetrics, read_runs
from crs_assets.stages.scores import AxisProfile, Crs
from crs_assets.stages.stage import Built, Stage

KEY_FIGURES_FILE = "key_figures.json"
RUN_COLUMNS = (
    "encoder", "dataset", "seed", "fraction", "condition", "n_fit", "floor", "converged", "auroc", "auroc_source",
    "ece", "ece_null", "ece_equal_mass", "rms_calibration_debiased",
)  # fmt: skip


@dataclass(frozen=True)
class Findings:
    """What an analysis leaves behind.

    Attributes:
        tables: Name -> tidy table, stored as ``<name>.parquet``.
        key_figures: Small facts, no NaN: the summary, and ``KEY_FIGURES_FILE``.
    """

    tables: Mapping[str, pl.DataFrame]
    key_figures: dict[str, Any]


class SuiteAnalysis(Stage):
    """An analysis that reads what is stored of all encoders of a suite; controls are no part of it.

    Attributes:
        reads: What it depends on, of ``SOURCES``; it waits until there is some of each.
        reads_if_there: What it takes in beside that, and does not wait for.
    """

    libraries = ("numpy", "polars", "scipy")
    reads: ClassVar[tuple[str, ...]]
    reads_if_there: ClassVar[tuple[str, ...]] = ()

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:  # noqa: ARG002  (one partition in every suite)
        """One."""
        return iter([()])

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:  # noqa: ARG002
        """Versions of what is read, and the settings."""
        versions = {name: SOURCES[name](bench) for name in self.reads}
        if not all(versions.values()):
            return None
        more = {name: SOURCES[name](bench) for name in self.reads_if_there}
        return {**versions, **more, "settings": self.settings(bench)}

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:  # noqa: ARG002
        """Analyse, then write every table and the key figures."""
        findings = self.analyse(bench)
        for name, table in findings.tables.items():
            table.write_parquet(staging.path(table_file(name)))
        write_atomic(staging.path(KEY_FIGURES_FILE), canonical_json(findings.key_figures))
        return Built(findings.key_figures)

    @abstractmethod
    def settings(self, bench: Bench) -> dict[str, Any]:
        """Everything else that decides the content: the analysis's part of the protocol, facts of the catalogue."""

    @abstractmethod
    def analyse(self, bench: Bench) -> Findings:
        """Make the tables.

        Raises:
            RefusedError: If the suite lacks what the analysis needs; says the cure.
        """


def table_file(name: str) -> str:
    """File of a table."""
    return f"{name}.parquet"


def read_table(bench: Bench, analysis: str, name: str) -> pl.DataFrame:
    """A table of an analysis."""
    return pl.read_parquet(bench.store.open(bench.key(analysis)).file(table_file(name)))


def encoders(bench: Bench) -> list[str]:
    """The suite's encoders without its controls."""
    return [name for name, spec in bench.suite.encoders.items() if spec.role == "encoder"]


def whole_cells(bench: Bench, stage: Stage | None = None) -> dict[str, dict[str, dict[str, str]]]:
    """Encoder -> data set -> task -> version, of cells that have all their seeds.

    Args:
        bench: The suite and its store.
        stage: One with partitions of encoder and task; run metrics by default.
    """
    of, found = stage or RunMetrics(), dict[str, dict[str, dict[str, str]]]()
    for encoder in encoders(bench):
        for dataset in bench.suite.existing_datasets(encoder):
            tasks = [task_key(dataset, seed) for seed in bench.suite.protocol.data.seeds]
            known = _known({task: of.version(bench, encoder, task) for task in tasks})
            if len(known) == len(tasks):
                found.setdefault(encoder, {})[dataset] = known
    return found


def read_all_runs(bench: Bench) -> pl.DataFrame:
    """Run metrics (``RUN_COLUMNS``) of every whole cell and seed."""
    cells = whole_cells(bench)
    tables = [
        read_runs(bench, encoder, task).select(RUN_COLUMNS)
        for encoder, datasets in cells.items()
        for tasks in datasets.values()
        for task in tasks
    ]
    return pl.concat(tables)


def _scores(bench: Bench) -> dict[str, str]:
    return _known({name: Crs().version(bench, name) for name in encoders(bench)})


def _profiles(bench: Bench) -> dict[str, str]:
    return _known({name: AxisProfile().version(bench, name) for name in encoders(bench)})


def _replicates(bench: Bench) -> dict[str, dict[str, str]]:
    stage, found = AxisReplicates(), dict[str, dict[str, str]]()
    for name in encoders(bench):
        versions = {dataset: stage.version(bench, name, dataset) for dataset in bench.suite.existing_datasets(name)}
        if known := _known(versions):
            found[name] = known
    return found


def _panel(bench: Bench) -> str | None:
    panel = active_panel(bench)
    return None if panel is None else str(panel["sha256"])


def _known(versions: Mapping[str, str | None]) -> dict[str, str]:
    return {name: version for name, version in versions.items() if version is not None}


SOURCES: Mapping[str, Callable[[Bench], Any]] = {
    "scores": _scores,
    "profiles": _profiles,
    "runs": whole_cells,
    "control_probes": lambda bench: whole_cells(bench, ControlProbes()),
    "penalties": lambda bench: whole_cells(bench, PenaltyAxes()),
    "replicates": _replicates,
    "panel": _panel,
}
