"""Sensor and schedule: a new encoder is registered and benchmarked; what is stale or missing is re-benchmarked.

Both request one run per encoder of the job ``benchmark_encoder``, which brings exactly that encoder's partitions up to
date through the same runner as the command line.
"""

from collections.abc import Iterator
from typing import Any

import dagster as dg

from crs_assets.automation.planner import ENCODER_STEPS, SCORE_STEP, Selection, stale_partitions
from crs_assets.automation.runner import Runner
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench, BenchResource
from crs_assets.science.encoders import WeightsError

JOB = "benchmark_encoder"
SENSOR_SECONDS = 60


def build_job(assets: list[dg.AssetsDefinition], resources: dict[str, object], partitions: Partitions) -> dg.JobDefinition:
    """A job per encoder: everything of it that is missing or stale, upstream first."""

    @dg.op(name="bring_encoder_up_to_date", pool="gpu")
    def bring_encoder_up_to_date(context: dg.OpExecutionContext, bench: BenchResource) -> None:
        """Materialize the encoder's stale partitions, each as a run of its own on this instance."""
        runner = Runner(
            context.instance,
            assets,
            resources,
            bench.resolve(),
            announce=lambda step, encoder, count: context.log.info(f"{step} {encoder}: {count} partition(s)"),
            launched_by=f"job {context.run_id}",
        )
        summary = runner.run(Selection(encoders=(context.partition_key,)))
        if summary.failed:
            raise dg.Failure("\n".join(summary.failed), allow_retries=False)

    @dg.job(name=JOB, partitions_def=partitions.encoder, tags={"crs/suite": partitions.suite.id})
    def benchmark_encoder() -> None:
        bring_encoder_up_to_date()

    return benchmark_encoder


def build_sensor(job: dg.JobDefinition, partitions: Partitions) -> dg.SensorDefinition:
    """Watches the drop-in folder and the weights."""

    @dg.sensor(
        name="new_encoders",
        job=job,
        minimum_interval_seconds=SENSOR_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Registers encoders dropped into CRS_HOME/encoders, and requests exactly their runs.",
    )
    def new_encoders(context: dg.SensorEvaluationContext, bench: BenchResource) -> dg.SensorResult | dg.SkipReason:
        resolved = bench.resolve()
        known = set(context.instance.get_dynamic_partitions(partitions.encoder.name or ""))
        new = [encoder for encoder in resolved.suite.encoders if encoder not in known]
        requests = list(run_requests(resolved, [encoder for encoder in new]))
        if not new:
            return dg.SkipReason("no new encoder")
        return dg.SensorResult(
            dynamic_partitions_requests=[partitions.encoder.build_add_request(new)], run_requests=requests
        )

    return new_encoders


def build_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Weekly: every encoder of which anything is stale or missing."""

    @dg.schedule(
        name="rebenchmark",
        job=job,
        cron_schedule="0 3 * * 0",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Re-benchmarks encoders with stale or missing partitions, for example after weights were published anew.",
    )
    def rebenchmark(context: dg.ScheduleEvaluationContext, bench: BenchResource) -> Iterator[Any]:
        resolved = bench.resolve()
        occasion = context.scheduled_execution_time.date().isoformat()
        requests = list(run_requests(resolved, stale_encoders(resolved), occasion=occasion))
        yield from requests
        if not requests:
            yield dg.SkipReason("nothing is stale or missing")

    return rebenchmark


def stale_encoders(bench: Bench) -> list[str]:
    """Encoders with any stale or missing partition."""
    return [
        encoder
        for encoder in bench.suite.encoders
        if any(_stale(bench, step, encoder) for step in (*ENCODER_STEPS, SCORE_STEP))
    ]


def run_requests(bench: Bench, encoders: list[str], occasion: str = "") -> Iterator[dg.RunRequest]:
    """One run per encoder; the key names its weights, so that a request is made once per release and occasion."""
    for encoder in encoders:
        try:
            fingerprint = bench.weights.fingerprint(bench.suite.encoders[encoder])
        except WeightsError:
            # Without weights a run would only fail; `crs doctor` says what to copy, and the sensor asks again.
            continue
        yield dg.RunRequest(run_key=f"{encoder}:{fingerprint}:{occasion}", partition_key=encoder)


def _stale(bench: Bench, step: Any, encoder: str) -> bool:
    try:
        return bool(stale_partitions(bench, step, Selection(encoders=(encoder,))))
    except WeightsError:
        return False
