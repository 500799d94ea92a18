"""How assets record: one materialization event per partition, after its content is safely in the store.

Dagster's own outputs would mark every partition of a run's range as materialized, absent and failed ones too, with one
shared data version. So each asset is a generator that logs its events itself, and fails at the end, loudly, if any
partition failed; what was finished before stays finished.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import dagster as dg

from crs_assets.assets.ahead import Attempt, made_ahead
from crs_assets.assets.checks import Check
from crs_assets.assets.errors import tell, tell_where
from crs_assets.partitions import key_parts
from crs_assets.resources.bench import Bench
from crs_assets.stages.progress import Progress, current_sink, listening
from crs_assets.stages.stage import Outcome, Stage

Metadata = Mapping[str, Any]
Describe = Callable[[Bench, Outcome], Metadata]
LOG_EVERY_SECONDS = 15.0
DATA_VERSION_TAG = "dagster/data_version"
# What Dagster itself writes where an upstream asset has never been materialized.
NO_POINTER = "NULL"


@dataclass(frozen=True)
class Recorded:
    """One stage behind an asset: where its events go, what they show, what is asked of it afterwards."""

    stage: Stage
    key: dg.AssetKey
    describe: Describe
    checks: tuple[Check, ...] = ()


def materialize(
    context: dg.AssetExecutionContext, bench: Bench, *recorded: Recorded
) -> Iterator[dg.AssetCheckResult | dg.MaterializeResult[Any]]:
    """Bring the run's partitions up to date and record each; yield the checks; fail if any partition failed.

    Args:
        context: The run.
        bench: The suite and its resources.
        recorded: Stages in order; one that depends on another of the same run comes behind it.

    Raises:
        dagster.Failure: Naming every partition that failed or was refused.
    """
    step = _Step(context, bench, recorded)
    failures: dict[str, Exception] = {}
    partitions = list(step.partitions())
    with made_ahead(bench, [entry.stage for entry in recorded], partitions) as begun:
        for partition in partitions:
            for entry in recorded:
                try:
                    result = step.bring_up_to_date(entry, partition, begun.get(partition))
                # One failed partition must not lose the others of the run; it is reported and raised below.
                except Exception as error:
                    context.log.error(f"{partition or entry.stage.name}: {tell_where(bench, error)}")
                    failures[partition or entry.stage.name] = error
                    break
                if result is not None:
                    yield result
    told = {name: tell(bench, error) for name, error in failures.items()}
    for entry in recorded:
        for check in entry.checks:
            yield check.evaluate(bench, entry.key, entry.stage, failures, told)
    if failures:
        raise dg.Failure(
            description=f"{len(told)} partition(s) failed; the others are recorded.\n"
            + "\n".join(f"{name}: {message}" for name, message in told.items()),
            allow_retries=False,
        )


class _Step:
    """One step of a run: which partitions it is to make, and how each is recorded."""

    def __init__(self, context: dg.AssetExecutionContext, bench: Bench, recorded: tuple[Recorded, ...]) -> None:
        self._context = context
        self._bench = bench
        self._recorded = recorded
        self._own = {entry.key for entry in recorded}
        self._feeds_a_step = self._has_downstream_in_run()
        # Read before any input is: an upstream partition that is made anew meanwhile leaves this one stale.
        self._upstream = {key: _latest(context, key) for key in self._upstream_keys()}

    def partitions(self) -> Iterator[str]:
        """Partition keys to make, in order; the empty key for an asset without partitions; absent cells passed over.

        Raises:
            dagster.Failure: If a step of the same run would be skipped for want of an output.
        """
        if self._context.assets_def.partitions_def is None:
            yield ""
            return
        keys = list(self._context.partition_keys)
        if self._feeds_a_step and len(keys) > 1:
            raise dg.Failure(
                "This run holds another asset that is made from this one, and more than one partition: Dagster would "
                "skip the other step. Launch the assets as a backfill, or one after the other.",
                allow_retries=False,
            )
        existing = {parts for entry in self._recorded for parts in entry.stage.partitions(self._bench)}
        for key in keys:
            if key_parts(key) in existing:
                yield key
            else:
                self._context.log.info(f"{key}: passed over; {self._why_absent(key)}")

    def bring_up_to_date(
        self, entry: Recorded, partition: str, begun: "Future[Attempt] | None"
    ) -> dg.MaterializeResult[Any] | None:
        """Make one partition where it is stale, or wait for it where it was begun already, and record it.

        Returns:
            What Dagster is to record itself, only where a step of the same run waits for it.
        """
        if begun is not None:
            outcome = begun.result().outcome(entry.stage)
        else:
            with listening(self._sink()):
                outcome = entry.stage.ensure(self._bench, *(key_parts(partition) if partition else ()))
        version = outcome.manifest.data_version
        if self._feeds_a_step:
            metadata = self._metadata(entry, outcome)
            return dg.MaterializeResult(entry.key, metadata=metadata, data_version=dg.DataVersion(version))
        # Recorded anew even where nothing had to be made: a backfill takes a partition without an event for failed. The
        # data version is the old one, so nothing downstream turns stale.
        self._context.log_event(
            dg.AssetMaterialization(
                entry.key,
                partition=partition or None,
                metadata=self._metadata(entry, outcome),
                tags=self._tags(entry, version),
            )
        )
        return None

    def _metadata(self, entry: Recorded, outcome: Outcome) -> dict[str, Any]:
        return {
            **outcome.timing,
            **entry.describe(self._bench, outcome),
            "recomputed": outcome.made,
            "fingerprint": outcome.manifest.fingerprint,
            "protocol": self._bench.suite.protocol.id,
        }

    def _tags(self, entry: Recorded, version: str) -> dict[str, str]:
        """Dagster's own provenance tags: it reads them to tell what is stale."""
        tags = {DATA_VERSION_TAG: version, "dagster/code_version": entry.stage.code_version}
        for key in self._context.assets_def.asset_deps[entry.key]:
            # A sibling of this step has just been recorded: its latest event is the one that was read.
            latest = _latest(self._context, key) if key in self._own else self._upstream[key]
            name = key.to_user_string()
            tags[f"dagster/input_event_pointer/{name}"] = latest.pointer
            # Read for unpartitioned upstream assets only; for partitioned ones Dagster follows the pointer.
            tags[f"dagster/input_data_version/{name}"] = latest.version or NO_POINTER
        return tags

    def _upstream_keys(self) -> set[dg.AssetKey]:
        deps = self._context.assets_def.asset_deps
        return {upstream for key in self._own for upstream in deps[key]} - self._own

    def _has_downstream_in_run(self) -> bool:
        layer = self._context.job_def.asset_layer
        children = {child for key in self._own for child in layer.asset_graph.get(key).child_keys}
        return bool(children & set(layer.selected_asset_keys) - self._own)

    def _why_absent(self, key: str) -> str:
        first, *rest = key_parts(key)
        suite = self._bench.suite
        for entry in self._recorded:
            if reason := entry.stage.left_out(self._bench, first, *rest):
                return f"{reason}."
        if first in suite.encoders and rest:
            reason = suite.absent_reason(first, rest[0].rpartition(".s")[0] or rest[0])
            return f"absent by the catalogue: {reason}"
        return f"suite {suite.id} has no such partition."

    def _sink(self) -> Callable[[Progress], None]:
        """Pass progress on to whoever listens outside, and log it now and then for the UI."""
        outer, last = current_sink(), time.monotonic()

        def sink(progress: Progress) -> None:
            nonlocal last
            outer(progress)
            if time.monotonic() - last >= LOG_EVERY_SECONDS:
                last = time.monotonic()
                self._context.log.info(progress.line())

        return sink


@dataclass(frozen=True)
class _Latest:
    """The latest materialization of an asset or partition: its place in the event log, its data version."""

    pointer: str
    version: str | None


def _latest(context: dg.AssetExecutionContext, key: dg.AssetKey) -> _Latest:
    record = context.instance.get_latest_data_version_record(key)
    if record is None:
        return _Latest(NO_POINTER, None)
    event = record.asset_materialization
    return _Latest(str(record.storage_id), (event.tags or {}).get(DATA_VERSION_TAG) if event else None)
