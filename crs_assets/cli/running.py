"""``crs run``: the runner with progress for a person, a summary, and where to look next."""

import logging
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from crs_assets.automation.planner import Selection
from crs_assets.automation.runner import Runner, RunSummary
from crs_assets.cli.session import open_instance, resolve
from crs_assets.cli.showing import show_leaderboard
from crs_assets.definitions import build_defs
from crs_assets.resources.bench import Bench, BenchResource, default_resources
from crs_assets.science.toml_models import CatalogError
from crs_assets.stages import progress as stage_progress

MINIMUM_FREE_BYTES = 500_000_000


def run_suite(
    suite: str,
    encoders: tuple[str, ...] | None,
    datasets: tuple[str, ...] | None,
    *,
    freeze_if_missing: bool,
) -> bool:
    """Bring a suite up to date and show what came out; False where a Dagster run failed."""
    resources = default_resources(suite)
    bench_resource = resources["bench"]
    assert isinstance(bench_resource, BenchResource)  # default_resources makes it
    bench = resolve(bench_resource)
    _check_selection(bench, encoders, datasets)
    bench.store.check_writable(MINIMUM_FREE_BYTES)
    console = Console(stderr=True)
    console.print(f"[bold]{bench.suite.spec.title}[/]  protocol {bench.suite.protocol.id}, state in {bench.home.path}")
    # Dagster's own log of every event would drown the progress; all of it is in the UI.
    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    began = time.perf_counter()
    with open_instance(bench.home) as instance, RunProgress(console) as shown, stage_progress.listening(shown.report):
        runner = Runner(instance, list(build_defs(suite).assets or ()), resources, bench, shown.announce)
        summary = runner.run(Selection(encoders, datasets), freeze_if_missing=freeze_if_missing)
    _summarise(console, summary, time.perf_counter() - began)
    if bench.store.peek(bench.key("leaderboard")):
        show_leaderboard(suite)
    for failure in summary.failed:
        console.print(f"[red]failed[/] {failure}", highlight=False)
    return not summary.failed


def _check_selection(bench: Bench, encoders: tuple[str, ...] | None, datasets: tuple[str, ...] | None) -> None:
    problems = [f"no encoder {name!r} in suite {bench.suite.id}; it has {', '.join(bench.suite.encoders)}." for name in encoders or () if name not in bench.suite.encoders]
    problems += [f"no data set {name!r} in suite {bench.suite.id}; it has {', '.join(bench.suite.datasets)}." for name in datasets or () if name not in bench.suite.datasets]
    if problems:
        raise CatalogError("\n".join(problems))


def _summarise(console: Console, summary: RunSummary, seconds: float) -> None:
    made = {name: count for name, count in summary.recomputed.items() if count}
    if summary.panel:
        console.print(f"Reference panel frozen: {summary.panel}")
    if made:
        listed = ", ".join(f"{count} {name}" for name, count in made.items())
        console.print(f"Recomputed in {seconds:.0f} s: {listed}.")
    elif not summary.failed:
        console.print(f"Nothing to recompute: everything is up to date ({seconds:.0f} s).")


class RunProgress:
    """Progress of a run: stage, encoder, images per second, time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> "RunProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def announce(self, step: str, encoder: str, partitions: int) -> None:
        """A step begins."""
        self._clear()
        self._console.print(f"  {step:<14}{encoder or 'all':<36}{partitions} partition(s)", highlight=False)

    def report(self, progress: stage_progress.Progress) -> None:
        """A stage's own report."""
        name = f"{progress.stage} {' '.join(progress.parts)}"
        if name not in self._tasks:
            self._clear()
            self._tasks[name] = self._progress.add_task(name, total=progress.total, unit=progress.unit, rate="")
        rate = f"{progress.rate:.0f} {progress.unit}/s" if progress.rate else ""
        self._progress.update(self._tasks[name], completed=progress.done, rate=rate)

    def _clear(self) -> None:
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._tasks.clear()


