"""``crs run``: the runner with progress for a person, a summary, and where to look next."""

import logging
import time
import warnings
from collections.abc import Callable

import click
import dagster as dg
from rich.console import Console

from crs_assets.automation.planner import Selection
from crs_assets.automation.runner import Runner, RunSummary
from crs_assets.cli.doctor import UNSCORABLE
from crs_assets.cli.interruption import InterruptedRunError
from crs_assets.cli.progress import run_progress
from crs_assets.cli.session import check_selection, dropin_problems, mirror_problems, open_bench, open_instance
from crs_assets.cli.showing import show_leaderboard
from crs_assets.definitions import build_defs
from crs_assets.resources.artifact_store import StoreError
from crs_assets.resources.bench import Bench
from crs_assets.resources.data_roots import write_phantoms
from crs_assets.stages import progress as stage_progress
from crs_assets.stages.panel_in_force import scoring_command
from crs_assets.stages.probes import RunMetrics
from crs_assets.stages.report import HTML_FILE, Report
from crs_assets.stages.scores import panel_gaps

MINIMUM_FREE_BYTES = 500_000_000


def run_suite(
    suite: str,
    encoders: tuple[str, ...] | None,
    datasets: tuple[str, ...] | None,
    *,
    freeze_if_missing: bool,
) -> bool:
    """Bring a suite up to date and show what came out.

    Returns:
        False where a Dagster run failed, or an encoder asked for by name could not be had.

    Raises:
        CatalogError: If the suite has no such encoder or data set.
        InterruptedRunError: On Ctrl-C; what was finished is kept.
    """
    bench = open_bench(suite, device=True)
    check_selection(bench, encoders, datasets)
    bench.store.check_writable(MINIMUM_FREE_BYTES)
    console = Console(stderr=True)
    _say(console, f"{bench.suite.spec.title}: protocol {bench.suite.protocol.id}, state in {bench.home.path}")
    for problem in (*mirror_problems(bench), *dropin_problems(bench)):
        _say(console, problem, "yellow")
    began = time.perf_counter()
    write_phantoms(bench.roots, bench.suite.image_sets.values(), bench.compute.workers)
    selection = Selection(encoders, datasets)
    summary = _run(bench, suite, console, lambda runner: runner.run(selection, freeze_if_missing=freeze_if_missing))
    _summarise(console, bench, summary, time.perf_counter() - began, is_whole=not (encoders or datasets))
    if bench.store.peek(bench.key("leaderboard")):
        show_leaderboard(suite)
    # An encoder asked for by name and not benchmarked is a failure to whoever asked.
    return not (summary.failed or (encoders and summary.skipped))


def run_report(suite: str) -> bool:
    """Bring the analyses and the report of a suite up to date, and say where the report is.

    Returns:
        False where a Dagster run failed.

    Raises:
        StoreError: If nothing has been benchmarked yet.
        InterruptedRunError: On Ctrl-C; what was finished is kept.
    """
    _check_benchmarked(open_bench(suite))
    bench = open_bench(suite, device=True)
    bench.store.check_writable(MINIMUM_FREE_BYTES)
    console = Console(stderr=True)
    began = time.perf_counter()
    summary = _run(bench, suite, console, lambda runner: runner.analyse())
    _outcome(console, bench, summary, time.perf_counter() - began)
    if summary.waiting:
        _say(console, f"The benchmark comes first: {scoring_command(bench)}", "yellow")
    if bench.store.peek(bench.key(Report.name)):
        click.echo(f"Report: {bench.store.open(bench.key(Report.name)).file(HTML_FILE)}")
    return not summary.failed


def _check_benchmarked(bench: Bench) -> None:
    """Refuse to analyse nothing, before seconds are spent on a device."""
    stage = RunMetrics()
    if not any(stage.version(bench, *parts) for parts in stage.partitions(bench)):
        raise StoreError(f"suite {bench.suite.id} has no results yet; make them first: {scoring_command(bench)}")


def _run(bench: Bench, suite: str, console: Console, action: Callable[[Runner], RunSummary]) -> RunSummary:
    # Dagster's own log of every event would drown the progress; all of it is in the UI.
    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore", dg.BetaWarning)
    job = build_defs(suite).resolve_implicit_global_asset_job_def()
    with open_instance(bench.home) as instance, run_progress(console) as shown, stage_progress.listening(shown.report):
        try:
            return action(Runner(instance, job, bench, shown.announce))
        except KeyboardInterrupt as interrupt:
            raise InterruptedRunError(
                "interrupted; what was finished is kept, parts of a partition included. The same command goes on there."
            ) from interrupt


def _summarise(console: Console, bench: Bench, summary: RunSummary, seconds: float, *, is_whole: bool) -> None:
    if summary.panel:
        _say(console, f"Reference panel frozen: {summary.panel}")
    _outcome(console, bench, summary, seconds)
    if not summary.failed and not bench.store.peek(bench.key("reference_panel")):
        _say(console, f"No reference panel, so no score yet; {_way_to_a_panel(bench, summary, is_whole=is_whole)}")


def _way_to_a_panel(bench: Bench, summary: RunSummary, *, is_whole: bool) -> str:
    """What leads to a panel; nobody is sent to run again where no run can mend what lacks."""
    gaps, freeze = panel_gaps(bench), f"freeze one and score: {scoring_command(bench)}"
    if is_whole and (summary.unscorable or gaps):
        return f"mend what is told above, then {freeze}"
    return f"it needs {', '.join(gaps)}. To make these, {freeze}" if gaps else freeze


def _outcome(console: Console, bench: Bench, summary: RunSummary, seconds: float) -> None:
    if summary.recomputed:
        _say(console, f"Recomputed in {seconds:.0f} s: {_listed(summary.recomputed)}.")
    if summary.recorded:
        _say(console, f"Already computed, recorded for the UI: {_listed(summary.recorded)}.")
    if not (summary.recomputed or summary.recorded or summary.failed or summary.skipped or summary.waiting):
        _say(console, f"Nothing to recompute: everything is up to date ({seconds:.0f} s).")
    if summary.waiting:
        _say(console, f"Waiting for what comes before: {_listed(summary.waiting)}.", "yellow")
    for name in summary.unscorable:
        _say(console, f"{name}: {UNSCORABLE} crs dataset check {name} --protocol {bench.suite.protocol.id}", "yellow")
    for reason in summary.skipped.values():
        _say(console, f"skipped: {reason}", "yellow")
    if summary.skipped:
        _say(console, f"What goes where: {bench.suite.command('doctor')}", "yellow")
    for failure in summary.failed:
        _say(console, f"failed: {failure}", "red")


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
