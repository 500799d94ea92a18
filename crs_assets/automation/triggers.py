"""Sensor and schedule: a new encoder is registered and benchmarked; what is stale or missing is re-benchmarked.

Both request one run per encoder of the job ``benchmark_encoder``, which brings exactly that encoder's partitions up to
date through the same runner as the command line.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import dagster as dg

from crs_assets.assets.errors import MENDABLE
from crs_assets.automation.planner import DATA_STEPS, ENCODER_STEPS, Selection, State, Step, admitted, state
from crs_assets.automation.runner import Runner, asset_job, register_encoders
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench, BenchResource
from crs_assets.resources.home import Home
from crs_assets.resources.weights import Weights
from crs_assets.science.encoders import EncoderSpec, WeightsError
from crs_assets.science.suite import load_suite
from crs_assets.science.toml_models import CatalogError

JOB = "benchmark_encoder"
DEVICE_POOL = "gpu"
SENSOR_SECONDS = 60
WEEKLY = "0 3 * * 0"


def build_job(
    assets: Sequence[dg.AssetsDefinition], resources: dict[str, object], partitions: Partitions
) -> dg.JobDefinition:
    """A job per encoder: everything of it that is missing or stale, upstream first."""

    @dg.op(name="bring_encoder_up_to_date", pool=DEVICE_POOL)
    def bring_encoder_up_to_date(context: dg.OpExecutionContext, bench: BenchResource) -> None:
        """Materialize the encoder's stale partitions, each layer as a run of its own on this instance."""
        runner = Runner(
            context.instance,
            asset_job(assets, resources),
            bench.resolve(),
            announce=lambda step, encoder, count: context.log.info(f"{step} {encoder}: {count} partition(s)"),
            launched_by=f"job {context.run_id}",
        )
        summary = runner.run(Selection(encoders=(context.partition_key,)))
        context.log.info(f"recomputed: {summary.recomputed or 'nothing'}; waiting: {summary.waiting or 'nothing'}")
        if problems := [*summary.skipped.values(), *summary.failed]:
            raise dg.Failure("\n".join(problems), allow_retries=False)

    @dg.job(
        name=JOB,
        partitions_def=partitions.encoder,
        executor_def=dg.in_process_executor,
        tags={"crs/suite": partitions.suite.id},
        description="Brings exactly one encoder's stale or missing partitions up to date, then scores and leaderboard.",
    )
    def benchmark_encoder() -> None:
        bring_encoder_up_to_date()

    return benchmark_encoder


def build_sensor(job: dg.JobDefinition, partitions: Partitions) -> dg.SensorDefinition:
    """Watches the drop-in folder."""
    name = str(partitions.encoder.name)

    @dg.sensor(
        name="new_encoders",
        job=job,
        minimum_interval_seconds=SENSOR_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Registers encoders dropped into CRS_HOME/encoders/<suite>, and requests exactly their runs.",
    )
    def new_encoders(context: dg.SensorEvaluationContext, bench: BenchResource) -> dg.SensorResult | dg.SkipReason:
        # Not the whole bench: settling on a device imports torch, which a sensor has no use for.
        home = Home(Path(bench.home))
        try:
            own = load_suite(bench.suite, home.catalog)
        except CatalogError as error:
            return dg.SkipReason(str(error))
        dropins = home.read_dropins(own)
        known = set(context.instance.get_dynamic_partitions(name))
        new = {key: spec for key, spec in (own.encoders | dropins.encoders).items() if key not in known}
        requests, problems = run_requests(bench.weights.resolve(), new)
        problems = [*dropins.problems, *problems]
        for problem in problems:
            context.log.warning(problem)
        if not requests:
            return dg.SkipReason("\n".join(["No new encoder that can be run.", *problems]))
        registered = partitions.encoder.build_add_request([str(request.partition_key) for request in requests])
        return dg.SensorResult(dynamic_partitions_requests=[registered], run_requests=requests)

    return new_encoders


def build_schedule(job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Weekly: every encoder of which anything is stale or missing."""

    @dg.schedule(
        name="rebenchmark",
        job=job,
        cron_schedule=WEEKLY,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description="Re-benchmarks encoders with stale or missing partitions: weights published anew, changed files.",
    )
    def rebenchmark(
        context: dg.ScheduleEvaluationContext, bench: BenchResource
    ) -> Iterator[dg.RunRequest | dg.SkipReason]:
        resolved = bench.resolve()
        register_encoders(context.instance, resolved.suite)
        stale = {name: resolved.suite.encoders[name] for name in stale_encoders(resolved)}
        occasion = context.scheduled_execution_time.date().isoformat()
        requests, problems = run_requests(resolved.weights, stale, occasion)
        for problem in problems:
            context.log.warning(problem)
        yield from requests
        if not requests:
            yield dg.SkipReason("\n".join(["Nothing is stale or missing that can be run.", *problems]))

    return rebenchmark


def stale_encoders(bench: Bench) -> list[str]:
    """Encoders with any stale or missing partition, in the suite's order.

    A data set whose files changed makes every encoder stale that has a cell on it: what comes out of the files is known
    only once they are read. What waits for its upstream, or for a panel that nobody has frozen, does not count.
    """
    changed = _stale_data(bench)
    return [
        encoder
        for encoder in bench.suite.encoders
        if changed.intersection(bench.suite.existing_image_sets(encoder))
        or any(_is_stale(bench, step, parts) for step in ENCODER_STEPS for parts in _of_encoder(bench, step, encoder))
    ]


def run_requests(
    weights: Weights, encoders: dict[str, EncoderSpec], occasion: str = ""
) -> tuple[list[dg.RunRequest], list[str]]:
    """One run per encoder whose weights are here, and what keeps the others.

    A run's key names the weights, so that a request is made once per release and occasion.
    """
    requests, problems = [], []
    for name, spec in encoders.items():
        try:
            fingerprint = weights.fingerprint(spec)
        except WeightsError as error:
            problems.append(f"{name} waits for its weights: {error}")
            continue
        key = ":".join(filter(None, (name, fingerprint, occasion)))
        requests.append(dg.RunRequest(run_key=key, partition_key=name))
    return requests, problems


def _stale_data(bench: Bench) -> set[str]:
    return {
        parts[0].rpartition(".s")[0] or parts[0]
        for step in DATA_STEPS
        for parts in admitted(bench, step)
        if _is_stale(bench, step, parts)
    }


def _of_encoder(bench: Bench, step: Step, encoder: str) -> list[tuple[str, ...]]:
    return admitted(bench, step, Selection(encoders=(encoder,)))


def _is_stale(bench: Bench, step: Step, parts: tuple[str, ...]) -> bool:
    try:
        return any(state(bench, stage, parts) is State.STALE for stage in step.stages)
    except MENDABLE:
        # Files or weights that are not here now make nothing stale; `crs doctor` says how to get them.
        return False
