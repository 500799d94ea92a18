"""What is missing or stale, in the order in which it has to be made: the one plan behind every launcher."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from crs_assets.resources.bench import Bench
from crs_assets.science.canonical import digest
from crs_assets.stages.analyses.axis_replicates import AxisReplicates
from crs_assets.stages.analyses.control_probes import ControlProbes
from crs_assets.stages.analyses.depth import DepthFeatures, DepthSweep
from crs_assets.stages.analyses.external_validity import ExternalValidity
from crs_assets.stages.analyses.extra_degradations import ExtraDegradationMetrics, ExtraDegradedFeatures
from crs_assets.stages.analyses.operating_points import OperatingPoints
from crs_assets.stages.analyses.penalty_axes import PenaltyAxes
from crs_assets.stages.analyses.rank_agreement import RankAgreementAnalysis
from crs_assets.stages.analyses.recalibration import Recalibration, RecalibrationSummary
from crs_assets.stages.analyses.reference_invariance import ReferenceInvariance
from crs_assets.stages.analyses.run_audits import LabelEfficiencyAudit, PerturbationAudit
from crs_assets.stages.analyses.score_sensitivity import ScoreSensitivity
from crs_assets.stages.analyses.subgroups import Subgroups
from crs_assets.stages.analyses.uncertainty import Uncertainty
from crs_assets.stages.data import DatasetIndex, Splits
from crs_assets.stages.encoders import DegradedFeatures, EncoderWeights, Features
from crs_assets.stages.leaderboard import Leaderboard
from crs_assets.stages.panel import ReferencePanel
from crs_assets.stages.probes import NullControls, ProbePredictions, RunMetrics
from crs_assets.stages.report import Report
from crs_assets.stages.scores import AxisProfile, Crs
from crs_assets.stages.stage import Stage


@dataclass(frozen=True)
class Step:
    """Stages that are materialized together, and whether they are made encoder by encoder."""

    name: str
    stages: tuple[Stage, ...]
    per_encoder: bool

    @property
    def assets(self) -> tuple[str, ...]:
        """Names of the assets."""
        return tuple(stage.name for stage in self.stages)


DATA_STEPS = (Step("data", (DatasetIndex(),), per_encoder=False), Step("splits", (Splits(),), per_encoder=False))
WEIGHTS_STEP = Step("weights", (EncoderWeights(),), per_encoder=True)
CELL_STEPS = (
    Step("features", (Features(), DegradedFeatures()), per_encoder=True),
    Step("probes", (ProbePredictions(), RunMetrics()), per_encoder=True),
)
NULL_STEP = Step("null controls", (NullControls(),), per_encoder=False)
PROFILE_STEP = Step("profiles", (AxisProfile(),), per_encoder=True)
PANEL_STEP = Step("panel", (ReferencePanel(),), per_encoder=False)
SCORE_STEP = Step("scores", (Crs(),), per_encoder=True)
LEADERBOARD_STEP = Step("leaderboard", (Leaderboard(),), per_encoder=False)
ENCODER_STEPS = (WEIGHTS_STEP, *CELL_STEPS, PROFILE_STEP, SCORE_STEP)
# Beside the score: no published number depends on them. Only depths and further degradations encode images again.
CELL_ANALYSES = tuple(
    Step(name, (stage,), per_encoder=True)
    for name, stage in (
        ("control probes", ControlProbes()),
        ("penalties", PenaltyAxes()),
        ("recalibration", Recalibration()),
        ("subgroups", Subgroups()),
        ("operating points", OperatingPoints()),
        ("replicates", AxisReplicates()),
        ("depth features", DepthFeatures()),
        ("depth sweep", DepthSweep()),
        ("further degradations", ExtraDegradedFeatures()),
        ("further metrics", ExtraDegradationMetrics()),
    )
)
SUITE_ANALYSES = tuple(
    Step(name, (stage,), per_encoder=False)
    for name, stage in (
        ("recalibration, all", RecalibrationSummary()),
        ("uncertainty", Uncertainty()),
        ("rank agreement", RankAgreementAnalysis()),
        ("external validity", ExternalValidity()),
        ("label efficiency", LabelEfficiencyAudit()),
        ("perturbations", PerturbationAudit()),
        ("invariance", ReferenceInvariance()),
        ("sensitivity", ScoreSensitivity()),
        ("report", Report()),
    )
)


@dataclass(frozen=True)
class Selection:
    """What a launch is restricted to; None takes all."""

    encoders: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None

    def admits(self, bench: Bench, step: Step, parts: tuple[str, ...]) -> bool:
        """Whether a partition is within the selection."""
        if step.per_encoder and self.encoders is not None and parts[0] not in self.encoders:
            return False
        data = parts[1:] if step.per_encoder else parts
        if self.datasets is None or not data:
            return True
        wanted = {*self.datasets, *(bench.suite.target_of(name) for name in self.datasets)}
        return data[0] in wanted or data[0].rpartition(".s")[0] in wanted


ALL = Selection()


class State(Enum):
    """Of a partition: as its recipe would make it now, to be made, or not to be made before its upstream is."""

    CURRENT = "current"
    STALE = "stale"
    WAITING = "waiting"


def state(bench: Bench, stage: Stage, parts: tuple[str, ...]) -> State:
    """How the store stands to what the recipe would make now.

    Raises:
        Exception: What the stage itself raises where its files or weights are not to be had.
    """
    recipe = stage.recipe(bench, *parts)
    if recipe is None:
        return State.WAITING
    return State.CURRENT if bench.store.is_current(bench.key(stage.name, *parts), digest(recipe)) else State.STALE


def admitted(bench: Bench, step: Step, selection: Selection = ALL) -> list[tuple[str, ...]]:
    """Existing partitions of a step within a selection; absent cells are none."""
    return [parts for parts in step.stages[0].partitions(bench) if selection.admits(bench, step, parts)]


def contiguous_ranges(
    wanted: Sequence[tuple[str, ...]], order: Sequence[tuple[str, ...]]
) -> Iterator[list[tuple[str, ...]]]:
    """Split partitions into runs that one Dagster range covers and nothing else.

    Args:
        wanted: Partitions to cover.
        order: Every partition of the definition, absent cells included, in its order.

    Yields:
        Partitions of one encoder, or of one dimension, that are neighbours in that order.
    """
    position = {parts: place for place, parts in enumerate(order)}
    run: list[tuple[str, ...]] = []
    for parts in sorted(wanted, key=position.__getitem__):
        if run and (parts[:-1] != run[-1][:-1] or position[parts] != position[run[-1]] + 1):
            yield run
            run = []
        run.append(parts)
    if run:
        yield run
