"""How assets record: one materialization event per partition, after its content is safely in the store.

Dagster's own outputs would mark every partition of a run's range as materialized, absent and failed ones too, with one
shared data version. So each asset is a generator that logs its events itself, and fails at the end, loudly, if any
partition failed; what was finished before stays finished.
"""

import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

from crs_assets.assets.checks import Check
from crs_assets.partitions import key_parts
from crs_assets.resources.bench import Bench
from crs_assets.stages.progress import Progress, current_sink, listening
from crs_assets.stages.stage import Outcome, Stage

Metadata = Mapping[str, Any]
Describe = Callable[[Bench, Outcome], Metadata]
LOG_EVERY_SECONDS = 15.0


@dataclass(frozen=True)
class Recorded:
    """One stage behind an asset: where its events go, what they show, what is asked of it afterwards."""

    stage: Stage
    key: dg.AssetKey
    describe: Describe
    checks: tuple[Check, ...] = ()


def materialize(
    context: dg.AssetExecutionContext, bench: Bench, *recorded: Recorded
) -> Iterator[dg.AssetCheckResult]:
    """Bring the run's partitions up to date and record each; yield the checks; fail if any partition failed.

    Args:
        context: The run.
        bench: The suite and its resources.
        recorded: Stages in order; one that depends on another of the same run comes behind it.

    Raises:
        dagster.Failure: Naming every partition that failed or was refused.
    """
    failures: dict[str, Exception] = {}
    pointers: dict[dg.AssetKey, str] = {}
    existing = {parts for stage in recorded for parts in stage.stage.partitions(bench)}
    with listening(_throttled(context)):
        for key in context.partition_keys if context.has_partition_key or context.has_partition_key_range else [""]:
            parts = key_parts(key) if key else ()
            if parts not in existing:
                context.log.info(f"{key}: absent by the catalogue; passed over.")
                continue
            try:
                for entry in recorded:
                    outcome = entry.stage.ensure(bench, *parts)
                    _log_event(context, bench, entry, outcome, key or None, pointers)
            # One failed partition must not lose the others of the run; it is reported and raised below.
            except Exception as error:
                context.log.error(f"{key}: {''.join(traceback.format_exception(error))}")
                failures[key] = error
    for entry in recorded:
        for check in entry.checks:
            yield check.evaluate(bench, entry.key, entry.stage.name, failures)
    if failures:
        raise dg.Failure(
            description=f"{len(failures)} partition(s) failed; the others are recorded.\n"
            + "\n".join(f"{key}: {type(error).__name__}: {error}" for key, error in failures.items()),
            allow_retries=False,
        )


def _log_event(
    context: dg.AssetExecutionContext,
    bench: Bench,
    entry: Recorded,
    outcome: Outcome,
    partition: str | None,
    pointers: dict[dg.AssetKey, str],
) -> None:
    version = outcome.manifest.data_version
    if not outcome.made and _latest_version(context, entry.key, partition) == version:
        context.log.info(f"{partition or entry.stage.name}: already up to date.")
        return
    metadata = {
        **{name: value for name, value in outcome.timing.items()},
        **entry.describe(bench, outcome),
        "recomputed": outcome.made,
        "fingerprint": outcome.manifest.fingerprint,
        "protocol": bench.suite.protocol.id,
    }
    context.log_event(
        dg.AssetMaterialization(
            entry.key,
            partition=partition,
            metadata=metadata,
            tags=_tags(context, entry.key, entry.stage.code_version, version, pointers),
        )
    )


def _tags(
    context: dg.AssetExecutionContext,
    key: dg.AssetKey,
    code_version: str,
    version: str,
    pointers: dict[dg.AssetKey, str],
) -> dict[str, str]:
    """Dagster's own provenance tags: it reads them to tell what is stale."""
    tags = {"dagster/data_version": version, "dagster/code_version": code_version}
    for upstream in context.assets_def.asset_deps[key]:
        if upstream not in pointers:
            record = context.instance.get_latest_data_version_record(upstream)
            pointers[upstream] = str(record.storage_id) if record else "NULL"
        name = upstream.to_user_string()
        tags[f"dagster/input_event_pointer/{name}"] = pointers[upstream]
        tags[f"dagster/input_data_version/{name}"] = _input_version(context, upstream)
    return tags


def _input_version(context: dg.AssetExecutionContext, upstream: dg.AssetKey) -> str:
    # Dagster reads this tag for unpartitioned upstream assets only; for partitioned ones it follows the pointer.
    record = context.instance.get_latest_materialization_event(upstream)
    event = record.asset_materialization if record else None
    return (event.tags or {}).get("dagster/data_version", "n/a") if event and event.partition is None else "n/a"


def _latest_version(context: dg.AssetExecutionContext, key: dg.AssetKey, partition: str | None) -> str | None:
    record = context.instance.get_latest_data_version_record(key, partition_key=partition)
    event = record.asset_materialization if record else None
    return (event.tags or {}).get("dagster/data_version") if event else None


def _throttled(context: dg.AssetExecutionContext) -> Callable[[Progress], None]:
    """Pass progress on to whoever listens outside, and log it now and then for the UI."""
    last = time.monotonic()

    def sink(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= LOG_EVERY_SECONDS:
            last = time.monotonic()
            context.log.info(progress.line())

    outer = current_sink()

    def both(progress: Progress) -> None:
        outer(progress)
        sink(progress)

    return both
