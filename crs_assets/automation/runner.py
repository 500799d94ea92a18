"""Running a suite in this process: the same assets, events and store as the UI, without a daemon's waiting."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from crs_assets.automation.ledger import Ledger
from crs_assets.automation.planner import (
    ALL,
    CELL_ANALYSES,
    CELL_STEPS,
    DATA_STEPS,
    LEADERBOARD_STEP,
    NULL_STEP,
    PANEL_STEP,
    PROFILE_STEP,
    SCORE_STEP,
    SUITE_ANALYSES,
    WEIGHTS_STEP,
    Selection,
    State,
    Step,
    admitted,
    contiguous_ranges,
    state,
)
from crs_assets.partitions import encoder_partitions_name, key_parts, partition_key
from crs_assets.resources.bench import Bench
from crs_assets.science.encoders import AbsentWeightsError, WeightsError
from crs_assets.science.panel import PanelError
from crs_assets.science.suite import Suite
from crs_assets.stages.data import unscorable_datasets
from crs_assets.stages.encoders import obtain_weights
from crs_assets.stages.panel_in_force import active_panel, scoring_command
from crs_assets.stages.scores import freeze_panel, panel_gaps
from crs_assets.stages.stage import Stage

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
LAUNCHED_BY = "crs/launched_by"
# Every event is in the UI; on a terminal they would drown the progress.
QUIET = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}

Parts = tuple[str, ...]
Announce = Callable[[str, str, int], None]


@dataclass
class RunSummary:
    """What a run did.

    Attributes:
        recomputed: Asset -> partitions made.
        recorded: Asset -> partitions that were in the store and only had to be recorded in this instance.
        waiting: Step and encoder -> partitions that could not be made before their upstream is.
        failed: Descriptions of the Dagster runs that failed.
        skipped: Encoder -> why its weights are not to be had, and the cure.
        unscorable: Data sets of which no class can be scored; nothing is encoded for them.
        panel: Name of the panel that was frozen, where this run froze one.
    """

    recomputed: dict[str, int] = field(default_factory=dict)
    recorded: dict[str, int] = field(default_factory=dict)
    waiting: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    unscorable: list[str] = field(default_factory=list)
    panel: str | None = None


def asset_job(assets: Sequence[dg.AssetsDefinition], resources: Mapping[str, object]) -> dg.JobDefinition:
    """The job of all assets, of which each launch takes a part."""
    definitions = dg.Definitions(assets=assets, resources=resources, executor=dg.in_process_executor)
    return definitions.resolve_implicit_global_asset_job_def()


def register_encoders(instance: dg.DagsterInstance, suite: Suite) -> None:
    """Make every encoder of a suite a partition; those that are one already stay as they are."""
    name = encoder_partitions_name(suite.id)
    known = set(instance.get_dynamic_partitions(name))
    new = [encoder for encoder in suite.encoders if encoder not in known]
    if new:
        instance.add_dynamic_partitions(name, new)


class Runner:
    """Materializes what is stale or not on record, layer by layer, encoder by encoder.

    Args:
        instance: Where events go.
        job: The suite's assets with their resources bound.
        bench: The same resources, resolved.
        announce: Told what is about to be made: step, encoder, number of partitions.
        launched_by: Tag of every run, for example ``cli`` or ``job <id>``.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        job: dg.JobDefinition,
        bench: Bench,
        announce: Announce = lambda *_: None,
        launched_by: str = "cli",
    ) -> None:
        self._instance = instance
        self._job = job
        self._bench = bench
        self._announce = announce
        self._launched_by = launched_by
        self._ledger = Ledger(instance, bench.suite.id)
        self._summary = RunSummary()

    def run(self, selection: Selection = ALL, *, freeze_if_missing: bool = False) -> RunSummary:
        """Bring a suite, or a part of it, up to date; what is current is left alone.

        A step that fails does not end the run: what does not depend on it is made, and the summary says why it failed.

        Args:
            selection: Restrict to encoders or data sets.
            freeze_if_missing: Freeze a panel of the suite's members where there is none.
        """
        self._summary = RunSummary()
        register_encoders(self._instance, self._bench.suite)
        of_data = Selection(datasets=selection.datasets)
        for step in DATA_STEPS:
            self._step(step, of_data)
        self._summary.unscorable = unscorable_datasets(self._bench)
        datasets = tuple(name for name in self._bench.suite.datasets if name not in self._summary.unscorable)
        if selection.datasets is not None:
            datasets = tuple(name for name in datasets if name in selection.datasets)
        encoders = self._with_weights(selection)
        self._step(WEIGHTS_STEP, Selection(encoders))
        for encoder in encoders:
            for step in CELL_STEPS:
                self._step(step, Selection((encoder,), datasets), encoder)
        self._step(NULL_STEP, Selection(datasets=datasets))
        self._step(PROFILE_STEP, selection)
        self._score(selection, freeze_if_missing=freeze_if_missing)
        return self._summary

    def analyse(self, selection: Selection = ALL) -> RunSummary:
        """Bring the analyses and the report up to date, on what the benchmark left in the store.

        Args:
            selection: Restrict what is made per encoder; what concerns the whole suite is made anyway.
        """
        self._summary = RunSummary()
        register_encoders(self._instance, self._bench.suite)
        for encoder in self._selected(selection):
            for step in CELL_ANALYSES:
                self._step(step, Selection((encoder,), selection.datasets), encoder)
        for step in SUITE_ANALYSES:
            self._step(step, ALL)
        return self._summary

    def _selected(self, selection: Selection) -> list[str]:
        return [name for name in self._bench.suite.encoders if selection.encoders is None or name in selection.encoders]

    def _with_weights(self, selection: Selection) -> tuple[str, ...]:
        """The selected encoders but those whose weights are not to be had: the others must not wait for a gate."""
        encoders = []
        for encoder in self._selected(selection):
            try:
                obtain_weights(self._bench, encoder)
            except AbsentWeightsError as error:
                self._summary.skipped[encoder] = str(error)
                continue
            except WeightsError:
                # Weights that are here but wrong: the encoder's own run fails, and says why.
                pass
            encoders.append(encoder)
        return tuple(encoders)

    def _score(self, selection: Selection, *, freeze_if_missing: bool) -> None:
        try:
            if freeze_if_missing and active_panel(self._bench) is None:
                if problem := self._bar_to_freezing(selection):
                    self._summary.failed.append(f"panel: not frozen, because {problem}")
                    return
                self._summary.panel = freeze_panel(self._bench)["name"]
            has_panel = active_panel(self._bench) is not None
        except PanelError as error:
            self._summary.failed.append(f"panel: {error}")
            return
        if has_panel:
            self._step(PANEL_STEP, ALL)
            self._step(SCORE_STEP, selection)
            self._step(LEADERBOARD_STEP, ALL)

    def _bar_to_freezing(self, selection: Selection) -> str | None:
        """Why no panel can be frozen after this run; nobody is sent to run again where no run can mend it."""
        if self._summary.unscorable:
            names = ", ".join(self._summary.unscorable)
            return f"{names} cannot be scored; mend the data set, or take it out of the suite."
        gaps = panel_gaps(self._bench)
        if not gaps:
            return None
        cure = "what keeps them is told above." if selection == ALL else f"make them: {scoring_command(self._bench)}"
        return f"there are no up-to-date {', '.join(gaps)}; {cure}"

    def _step(self, step: Step, selection: Selection, encoder: str = "") -> None:
        found = {parts: self._need(step, parts) for parts in admitted(self._bench, step, selection)}
        waiting = sum(need is State.WAITING for need in found.values())
        if waiting:
            self._summary.waiting[" ".join(filter(None, (step.name, encoder)))] = waiting
        needed = [parts for parts, need in found.items() if need is State.STALE]
        if needed:
            self._announce(step.name, encoder, len(needed))
            for run in self._ranges(step, needed):
                self._materialize(step, run)

    def _need(self, step: Step, parts: Parts) -> State:
        """Whether a partition has to be made or recorded; a cause of failure is left to the run, which will show it."""
        try:
            for stage in step.stages:
                found = state(self._bench, stage, parts)
                if found is not State.CURRENT:
                    return found
        # Whatever is wrong with a partition, its Dagster run is where it is told, and the others go on.
        except Exception:
            return State.STALE
        recorded = all(self._ledger.has(self._bench, stage, parts) for stage in step.stages)
        return State.CURRENT if recorded else State.STALE

    def _ranges(self, step: Step, needed: Sequence[Parts]) -> list[list[Parts]]:
        """Split by Dagster's own order of the partitions, so that a range never holds what was not asked for."""
        layer = self._job.asset_layer
        definition = layer.asset_graph.get(self._key(step.stages[0])).partitions_def
        if definition is None:
            return [list(needed)]
        keys = definition.get_partition_keys(dynamic_partitions_store=self._instance)
        return list(contiguous_ranges(needed, [key_parts(key) for key in keys]))

    def _materialize(self, step: Step, run: Sequence[Parts]) -> None:
        pairs = [(stage, parts) for stage in step.stages for parts in run]
        stale = {pair for pair in pairs if not self._is_current(*pair)}
        tags = {LAUNCHED_BY: self._launched_by}
        if run[0]:
            tags |= {RANGE_START: partition_key(run[0]), RANGE_END: partition_key(run[-1])}
        result = self._job.execute_in_process(
            asset_selection=[self._key(stage) for stage in step.stages],
            instance=self._instance,
            run_config=QUIET,
            tags=tags,
            raise_on_error=False,
        )
        if _was_interrupted(result):
            # Dagster turns Ctrl-C and termination into a failed step; the rest of the suite must not go on after it.
            raise KeyboardInterrupt
        if not result.success:
            self._summary.failed.append(f"{step.name}: {_failure(result)}")
        for stage, parts in pairs:
            self._ledger.forget(stage)
            self._count(stage, parts, was_stale=(stage, parts) in stale)

    def _count(self, stage: Stage, parts: Parts, *, was_stale: bool) -> None:
        if self._is_current(stage, parts):
            done = self._summary.recomputed if was_stale else self._summary.recorded
            done[stage.name] = done.get(stage.name, 0) + 1

    def _is_current(self, stage: Stage, parts: Parts) -> bool:
        try:
            return state(self._bench, stage, parts) is State.CURRENT
        # Told by the run already.
        except Exception:
            return False

    def _key(self, stage: Stage) -> dg.AssetKey:
        return dg.AssetKey([self._bench.suite.id, stage.name])


def _was_interrupted(result: Any) -> bool:
    errors = (event.step_failure_data.error for event in result.get_step_failure_events())
    return any(error and error.cls_name == dg.DagsterExecutionInterruptedError.__name__ for error in errors)


def _failure(result: Any) -> str:
    """What failed, as the step itself says it."""
    for event in result.get_step_failure_events():
        failure = event.step_failure_data
        if failure.user_failure_data and failure.user_failure_data.description:
            return str(failure.user_failure_data.description)
        error = failure.error
        while error and error.cause:
            error = error.cause
        if error:
            return str(error.message).strip()
    return f"see run {result.run_id} in the UI"
