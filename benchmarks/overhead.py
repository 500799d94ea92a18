"""Wall time of a suite's graph through Dagster against the same stages called directly, in one run.

Both sides start from nothing in a folder of their own and do the same work in one process; the order alternates between
repetitions, and libraries are imported before the first. ``--encoders`` takes a part of the suite, for a quicker
measurement: the fixed costs weigh more then, so the ratio comes out rather too high. Of the stages called directly, the
share of each in their time is told too.
"""

import importlib
import json
import logging
import tempfile
import time
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import dagster as dg
from reporting import Stopwatch, options_parser, ratios, report, spread

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
# Only Dagster's side would fit probes in several processes.
CONFIG = "[compute]\nfits = 1\n"
LIBRARIES = ("torch", "timm", "cv2", "matplotlib.pyplot", "sklearn.linear_model")
AFTER_PANEL = (PANEL_STEP, SCORE_STEP, LEADERBOARD_STEP)


def through_dagster(suite: str, home: Path) -> float:
    """Seconds of ``crs run`` without its terminal."""
    resources = default_resources(suite, Home(home))
    with dg.build_resources({"bench": resources["bench"]}) as resolved:
        bench: Bench = resolved.bench.resolve()
    job = build_defs(suite, home=home).resolve_implicit_global_asset_job_def()
    instances = home / "dagster-temp"
    instances.mkdir()
    began = time.perf_counter()
    with dg.DagsterInstance.local_temp(str(instances)) as instance:
        summary = Runner(instance, job, bench).run(Selection(), freeze_if_missing=True)
    if summary.failed:
        raise SystemExit("\n".join(summary.failed))
    return time.perf_counter() - began


def directly(suite: str, home: Path, by_stage: Counter[str]) -> float:
    """Seconds of the same stages without Dagster; those of each are added to ``by_stage``."""
    with dg.build_resources({"bench": default_resources(suite, Home(home))["bench"]}) as resolved:
        bench: Bench = resolved.bench.resolve()
    began = time.perf_counter()
    make(BEFORE_PANEL, bench, by_stage)
    freeze_panel(bench)
    make(AFTER_PANEL, bench, by_stage)
    return time.perf_counter() - began


def make(steps: tuple[Step, ...], bench: Bench, by_stage: Counter[str]) -> None:
    for step in steps:
        for stage in step.stages:
            with Stopwatch() as watch:
                for parts in list(stage.partitions(bench)):
                    stage.ensure(bench, *parts)
            by_stage[stage.name] += watch.seconds


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
    parser = options_parser(__doc__)
    parser.add_argument("--suite", default="demo")
    parser.add_argument("--encoders", nargs="+", default=[], help="only these of the suite's encoders, at least two")
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore", dg.BetaWarning)
    for library in LIBRARIES:
        importlib.import_module(library)
    by_stage: Counter[str] = Counter()
    sides = {"dagster": through_dagster, "direct": partial(directly, by_stage=by_stage)}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for repeat in range(options.repeats):
        for name in list(sides)[:: 1 if repeat % 2 == 0 else -1]:
            with tempfile.TemporaryDirectory() as home:
                (Path(home) / "config.toml").write_text(CONFIG, encoding="utf-8")
                encoders = options.encoders
                suite = part_of(options.suite, encoders, Path(home)) if encoders else options.suite
                seconds[name].append(sides[name](suite, Path(home)))
                print(f"{name}: {seconds[name][-1]:.1f} s", flush=True)
    figures = {
        "suite": options.suite,
        "encoders": options.encoders or "all",
        "repetitions": options.repeats,
        **{f"{name}_seconds": spread(values) for name, values in seconds.items()},
        "ratio": ratios(seconds["dagster"], seconds["direct"]),
        "direct_shares": {name: spent / sum(seconds["direct"]) for name, spent in by_stage.most_common()},
    }
    report(figures, "dagster", "torch", "numpy", "polars", file=options.json)


if __name__ == "__main__":
    main()
