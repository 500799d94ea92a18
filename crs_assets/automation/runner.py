"""Running a suite in this process: the same assets, events and store as the UI, without a daemon's waiting."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import dagster as dg

from crs_assets.automation.planner import (
    ALL,
    DATA_STEPS,
    ENCODER_STEPS,
    LEADERBOARD_STEP,
    NULL_STEP,
    PANEL_STEP,
    SCORE_STEP,
    Selection,
    Step,
    contiguous_ranges,
    stale_partitions,
)
from crs_assets.partitions import encoder_partitions_name, partition_key
from crs_assets.resources.bench import Bench
from crs_assets.science.panel import PanelError
from crs_assets.stages.scores import active_panel, freeze_panel

RANGE_START = "dagster/asset_partition_range_start"
RANGE_END = "dagster/asset_partition_range_end"
SOURCE_TAG = "crs/launched_by"


@dataclass
class RunSummary:
    """What a run did.

    Attributes:
        recomputed: Asset -> partitions made.
        failed: Descriptions of the Dagster runs that failed.
        panel: Name of the panel that was frozen, where this run froze one.
    """

    recomputed: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    panel: str | None = None


class Runner:
    """Materializes what is stale, layer by layer, encoder by encoder.

    Args:
        instance: Where events go.
        assets: The suite's assets.
        resources: Their resources.
        bench: The same resources, resolved.
        announce: Told what is about to be made: step, encoder, number of partitions.
        launched_by: Tag of every run, for example ``cli`` or ``schedule``.
    """

    def __init__(
        self,
        instance: dg.DagsterInstance,
        assets: Sequence[dg.AssetsDefinition],
        resources: dict[str, object],
        bench: Bench,
        announce: Callable[[str, str, int], None] = lambda *_: None,
        launched_by: str = "cli",
    ) -> None:
        self.instance = instance
        self.assets = assets
        self.resources = resources
        self.bench = bench
        self.announce = announce
        self.launched_by = launched_by
        self.summary = RunSummary()

    def run(self, selection: Selection = ALL, *, freeze_if_missing: bool = False) -> RunSummary:
        """Bring a suite, or a part of it, up to date; what is current is left alone.

        Args:
            selection: Restrict to encoders or data sets.
            freeze_if_missing: Freeze a panel of the suite's members where there is none.
        """
        self._register_encoders()
        for step in DATA_STEPS:
            self._step(step, Selection(datasets=selection.datasets))
        for encoder in self._encoders(selection):
            for step in ENCODER_STEPS:
                self._step(step, Selection((encoder,), selection.datasets), encoder)
        self._step(NULL_STEP, Selection(datasets=selection.datasets))
        if freeze_if_missing and active_panel(self.bench) is None:
            try:
                self.summary.panel = freeze_panel(self.bench)["name"]
            except PanelError as error:
                self.summary.failed.append(f"panel: {error}")
        if active_panel(self.bench) is not None:
            self._step(PANEL_STEP, ALL)
            self._step(SCORE_STEP, Selection(tuple(self._encoders(selection))), one_run=True)
            self._step(LEADERBOARD_STEP, ALL)
        return self.summary

    def _register_encoders(self) -> None:
        name = encoder_partitions_name(self.bench.suite.id)
        known = set(self.instance.get_dynamic_partitions(name))
        new = [encoder for encoder in self.bench.suite.encoders if encoder not in known]
        if new:
            self.instance.add_dynamic_partitions(name, new)

    def _encoders(self, selection: Selection) -> Iterator[str]:
        return (name for name in self.bench.suite.encoders if selection.encoders is None or name in selection.encoders)

    def _step(self, step: Step, selection: Selection, encoder: str = "", *, one_run: bool = False) -> None:
        ready = [
            parts
            for parts in stale_partitions(self.bench, step, selection)
            if step.stages[0].recipe(self.bench, *parts) is not None
        ]
        if not ready:
            return
        self.announce(step.name, encoder, len(ready))
        order = [parts for parts in step.stages[0].partitions(self.bench)]
        ranges = [ready] if one_run or ready == [()] else contiguous_ranges(ready, order)
        for run in ranges:
            self._materialize(step, run)

    def _materialize(self, step: Step, run: Sequence[tuple[str, ...]]) -> None:
        keys = [dg.AssetKey([self.bench.suite.id, name]) for name in step.assets]
        tags = {SOURCE_TAG: self.launched_by}
        if run[0]:
            tags |= {RANGE_START: partition_key(run[0]), RANGE_END: partition_key(run[-1])}
        result = dg.materialize(
            self.assets, selection=keys, instance=self.instance, resources=self.resources, tags=tags, raise_on_error=False
        )
        made = sum(not self._is_stale(step, parts) for parts in run)
        for name in step.assets:
            self.summary.recomputed[name] = self.summary.recomputed.get(name, 0) + made
        if not result.success:
            self.summary.failed.append(_failure(step, result))

    def _is_stale(self, step: Step, parts: tuple[str, ...]) -> bool:
        return not all(stage.is_current(self.bench, *parts) for stage in step.stages)


def _failure(step: Step, result: dg.ExecuteInProcessResult) -> str:
    """What failed, as the step itself says it."""
    for event in result.get_step_failure_events():
        error = event.step_failure_data.error
        while error and error.cause:
            error = error.cause
        description = event.step_failure_data.user_failure_data
        return f"{step.name}: {description.description if description else error.message.strip() if error else 'failed'}"
    return f"{step.name}: failed; see run {result.run_id} in the UI"
