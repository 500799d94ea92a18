"""Wall time of a suite's graph through Dagster against the same stages called directly, in one run.

Both sides start from nothing in a folder of their own; the order alternates between repetitions. ``--encoders`` takes a
part of the suite, for a quicker measurement: the fixed costs weigh more then, so the ratio comes out rather too high.
Prints the ratio with its spread, the machine and the versions; ``--json FILE`` writes the same.
"""

import argparse
import json
import logging
import os
import platform
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import dagster as dg

from crs_assets.automation.planner import (
    CELL_STEPS,
    DATA_STEPS,
    LEADERBOARD_STEP,
    NULL_STEP,
    PANEL_STEP,
    PROFILE_STEP,
    SCORE_STEP,
    WEIGHTS_STEP,
    Selection,
    Step,
)
from crs_assets.automation.runner import Runner
from crs_assets.definitions import build_defs
from crs_assets.resources.bench import Bench, default_resources
from crs_assets.resources.home import Home
from crs_assets.stages.scores import freeze_panel

BEFORE_PANEL = (*DATA_STEPS, WEIGHTS_STEP, *CELL_STEPS, NULL_STEP, PROFILE_STEP)
AFTER_PANEL = (PANEL_STEP, SCORE_STEP, LEADERBOARD_STEP)


def through_dagster(suite: str, home: Path) -> float:
    """Seconds of ``crs run`` without its terminal."""
    resources = default_resources(suite, Home(home))
    with dg.build_resources({"bench": resources["bench"]}) as resolved:
        bench: Bench = resolved.bench.resolve()
    job = build_defs(suite, home=home).resolve_implicit_global_asset_job_def()
    began = time.perf_counter()
    with dg.DagsterInstance.local_temp(str(home / "dagster-temp")) as instance:
        summary = Runner(instance, job, bench).run(Selection(), freeze_if_missing=True)
    if summary.failed:
        raise SystemExit("\n".join(summary.failed))
    return time.perf_counter() - began


def directly(suite: str, home: Path) -> float:
    """Seconds of the same stages without Dagster."""
    with dg.build_resources({"bench": default_resources(suite, Home(home))["bench"]}) as resolved:
        bench: Bench = resolved.bench.resolve()
    began = time.perf_counter()
    make(BEFORE_PANEL, bench)
    freeze_panel(bench)
    make(AFTER_PANEL, bench)
    return time.perf_counter() - began


def make(steps: tuple[Step, ...], bench: Bench) -> None:
    for step in steps:
        for stage in step.stages:
            for parts in list(stage.partitions(bench)):
                stage.ensure(bench, *parts)


def part_of(suite: str, encoders: list[str], home: Path) -> str:
    """A suite of some encoders of another, written into the home's catalogue; its id."""
    names = json.dumps(encoders)
    folder = home / "catalog" / "suites"
    folder.mkdir(parents=True)
    (folder / "part.toml").write_text(
        f'extends = "{suite}"\nid = "part"\nencoders = {names}\npanel_members = {names}\n'
        f'shuffled_labels_encoder = "{encoders[0]}"\ncontrols = ["pixels-16"]\n',
        encoding="utf-8",
    )
    return "part"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--suite", default="demo")
    parser.add_argument("--encoders", nargs="+", default=[], help="only these of the suite's encoders, at least two")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    sides = {"dagster": through_dagster, "direct": directly}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(arguments.repeats):
        for name in list(sides)[:: 1 if repeat % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory() as home:
                encoders = arguments.encoders
                suite = part_of(arguments.suite, encoders, Path(home)) if encoders else arguments.suite
                seconds[name].append(sides[name](suite, Path(home)))
                print(f"{name}: {seconds[name][-1]:.1f} s", flush=True)
    ratios = [a / b for a, b in zip(seconds["dagster"], seconds["direct"], strict=True)]
    result = {
        "benchmark": "overhead",
        "suite": arguments.suite,
        "encoders": arguments.encoders or "all",
        "seconds": seconds,
        "ratio_median": statistics.median(ratios),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "versions": {name: version(name) for name in ("dagster", "torch", "numpy", "polars")},
    }
    print(
        f"Dagster / direct: {result['ratio_median']:.3f} "
        f"(min {result['ratio_min']:.3f}, max {result['ratio_max']:.3f}; "
        f"{arguments.repeats} repetition(s), {result['cores']} cores, {result['versions']})"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
