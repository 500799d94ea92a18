"""What is missing or stale, in the order in which it has to be made: the one plan behind every launcher."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crs_assets.resources.bench import Bench
from crs_assets.stages.data import DatasetIndex, Splits
from crs_assets.stages.encoders import DegradedFeatures, EncoderWeights, Features
from crs_assets.stages.leaderboard import Leaderboard
from crs_assets.stages.panel import ReferencePanel
from crs_assets.stages.probes import NullControls, ProbePredictions, RunMetrics
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
ENCODER_STEPS = (
    Step("weights", (EncoderWeights(),), per_encoder=True),
    Step("features", (Features(), DegradedFeatures()), per_encoder=True),
    Step("probes", (ProbePredictions(), RunMetrics()), per_encoder=True),
    Step("profile", (AxisProfile(),), per_encoder=True),
)
NULL_STEP = Step("null controls", (NullControls(),), per_encoder=False)
PANEL_STEP = Step("panel", (ReferencePanel(),), per_encoder=False)
SCORE_STEP = Step("score", (Crs(),), per_encoder=True)
LEADERBOARD_STEP = Step("leaderboard", (Leaderboard(),), per_encoder=False)


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


def stale_partitions(bench: Bench, step: Step, selection: Selection = ALL) -> list[tuple[str, ...]]:
    """Existing partitions of a step that the store does not hold as their recipes would make them now."""
    partitions = [parts for parts in step.stages[0].partitions(bench) if selection.admits(bench, step, parts)]
    return [parts for parts in partitions if not all(stage.is_current(bench, *parts) for stage in step.stages)]


def contiguous_ranges(wanted: Sequence[tuple[str, ...]], order: Sequence[tuple[str, ...]]) -> Iterator[list[tuple[str, ...]]]:
    """Runs of partitions that one Dagster range covers: same encoder, neighbours in the order of the definition."""
    position = {parts: place for place, parts in enumerate(order)}
    run: list[tuple[str, ...]] = []
    for parts in sorted(wanted, key=lambda parts: position[parts]):
        breaks = run and (parts[:-1] != run[-1][:-1] or position[parts] != position[run[-1]] + 1)
        if breaks:
            yield run
            run = []
        run.append(parts)
    if run:
        yield run
