"""Score stages: an encoder's axis profile, and its Clinical Reliability Score against the frozen panel."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from crs_assets.resources.artifact_store import Staging, write_atomic
from crs_assets.resources.bench import Bench
from crs_assets.science import panel as panels
from crs_assets.science.canonical import canonical_json
from crs_assets.science.profiles import dataset_profile, seed_axes
from crs_assets.science.protocol import AXES, protocol_part
from crs_assets.science.suite import LOCAL_PANEL, parse_task, task_key
from crs_assets.stages.data import DatasetIndex, Splits, read_classes, read_fractions, unscorable_datasets
from crs_assets.stages.encoders import EncoderWeights
from crs_assets.stages.nulls import rankable_datasets
from crs_assets.stages.panel_in_force import active_panel, panel_pointer, require_panel, scoring_command
from crs_assets.stages.probes import NullControls, RunMetrics, read_runs
from crs_assets.stages.stage import Built, Stage

PROFILE_FILE = "profile.json"
SCORE_FILE = "crs.json"


class AxisProfile(Stage):
    """The four raw axes of an encoder on each data set, their parts and spread, and z under each reading."""

    name = "axis_profile"
    code_version = "1"
    libraries = ("numpy",)

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every encoder and control."""
        return ((encoder,) for encoder in bench.suite.encoders)

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Run metrics of the cells that are there; a cell is there when all its seeds are."""
        (encoder,) = parts
        runs = {
            dataset: versions
            for dataset in bench.suite.existing_datasets(encoder)
            if (versions := _seed_versions(bench, encoder, dataset)) is not None
        }
        if not runs:
            return None
        return {
            "runs": runs,
            "absent": {name: bench.suite.absent_reason(encoder, name) for name in bench.suite.datasets},
            "weights": EncoderWeights().version(bench, encoder),
            "readings": {reading.id: protocol_part(reading, "axes", "metrics") for reading in bench.suite.readings},
        }

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Axes per seed, their means, and what is missing and why."""
        (encoder,) = parts
        datasets: dict[str, Any] = {}
        coverage: dict[str, str] = {}
        for dataset in bench.suite.datasets:
            reason = bench.suite.absent_reason(encoder, dataset)
            if reason is not None:
                coverage[dataset] = f"absent: {reason}"
            elif _seed_versions(bench, encoder, dataset) is None:
                coverage[dataset] = "missing: not run"
            else:
                datasets[dataset] = _profiles_of(bench, encoder, dataset)
                problem = datasets[dataset][bench.suite.protocol.id]["problem"]
                coverage[dataset] = f"no axes: {problem}" if problem else "complete"
        profile = {
            "encoder": encoder,
            "weights": EncoderWeights().version(bench, encoder),
            "protocol": bench.suite.protocol.id,
            "coverage": coverage,
            "datasets": datasets,
        }
        write_atomic(staging.path(PROFILE_FILE), canonical_json(profile))
        primary = {name: entry[bench.suite.protocol.id] for name, entry in datasets.items()}
        return Built({"coverage": coverage, "raw": {name: entry["raw"] for name, entry in primary.items()}})


class Crs(Stage):
    """The Clinical Reliability Score of an encoder: three terms per data set, against the frozen panel alone."""

    name = "crs"
    code_version = "2"
    libraries = ("numpy",)

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every encoder and control; controls are scored and never ranked."""
        return ((encoder,) for encoder in bench.suite.encoders)

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """The encoder's own profile and the panel."""
        panel = active_panel(bench)
        return None if panel is None else _with_profile(bench, parts[0], panel)

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Score each data set under each reading, then the mean where no cell is missing."""
        (encoder,) = parts
        panel, profile = require_panel(bench), read_profile(bench, encoder)
        score = score_encoder(bench, panel, profile)
        write_atomic(staging.path(SCORE_FILE), canonical_json(score))
        primary = score["readings"][bench.suite.protocol.id]
        return Built(
            {
                "panel": panel["name"],
                "crs": primary["aggregate"]["crs"] if primary["aggregate"] else None,
                "coverage": f"{score['covered']} of {score['expected']}",
                "complete": score["complete"],
                "per_dataset": {name: entry["crs"] for name, entry in primary["datasets"].items()},
            }
        )


def score_encoder(bench: Bench, panel: Mapping[str, Any], profile: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that is published of one encoder's score.

    Raises:
        PanelError: If the panel is of other data, splits, policy or protocol.
    """
    suite, encoder = bench.suite, profile["encoder"]
    covered = [name for name in profile["datasets"] if name in panel["datasets"]]
    _check_comparable(bench, panel, covered)
    expected = suite.existing_datasets(encoder)
    scored = [name for name in covered if profile["datasets"][name][suite.protocol.id]["z"] is not None]
    ranked = [name for name in scored if panel["datasets"][name]["rankable"]]
    complete = set(scored) == set(expected)
    readings: dict[str, Any] = {}
    for reading in suite.readings:
        datasets = {}
        for name in covered:
            entry = profile["datasets"][name][reading.id]
            cell = {"encoder": encoder, "weights": profile["weights"], "dataset": name}
            if entry["z"] is None or not panels.peers_of(panel, reading, **cell):
                continue
            full = panels.score_against(panel, reading, z=entry["z"], **cell)
            inner = panels.score_against(panel, reading, z=entry["z_without_transfer"], transfer=False, **cell)
            datasets[name] = {**full.__dict__, "crs_without_transfer": inner.crs, "z": entry["z"]}
        usable = [datasets[name]["crs"] for name in ranked if name in datasets]
        has_aggregate = complete and len(usable) == len(ranked) and bool(usable)
        readings[reading.id] = {
            "datasets": datasets,
            "aggregate": {"crs": float(np.mean(usable)), "datasets": ranked} if has_aggregate else None,
        }
    return {
        "encoder": encoder,
        "weights": profile["weights"],
        "panel": panel["name"],
        "panel_sha256": panel["sha256"],
        "protocol": suite.protocol.id,
        "covered": len(scored),
        "expected": len(expected),
        "complete": complete,
        "coverage": {
            **profile["coverage"],
            **{name: _uncovered(bench, panel) for name in profile["datasets"] if name not in covered},
        },
        "readings": readings,
    }


def _check_comparable(bench: Bench, panel: Mapping[str, Any], datasets: Sequence[str]) -> None:
    """Refuse other data, splits, policy or protocol than the panel's, with the commands that lead to another panel."""
    suite = bench.suite
    for dataset in datasets:
        try:
            panels.check_comparable(panel, dataset, comparison_conditions(bench, dataset), suite.protocol.id)
        except panels.PanelError as error:
            raise panels.PanelError(f"{error} To freeze one: {suite.command('panel freeze')}") from error


def _uncovered(bench: Bench, panel: Mapping[str, Any]) -> str:
    # Published with the score, so under the suite's id, wherever its file lies.
    freeze = f"crs panel freeze --suite {bench.suite.id}"
    return f"no score: panel {panel['name']} does not cover it; run the panel members on it, then {freeze}"


def comparison_conditions(bench: Bench, dataset: str) -> dict[str, Any]:
    """What two scores on a data set must share to be comparable."""
    suite, target = bench.suite, bench.suite.target_of(dataset)
    seeds = suite.protocol.data.seeds
    classes = read_classes(bench, dataset, seeds[0])
    return {
        "index": DatasetIndex().version(bench, dataset),
        "target": target or "",
        "target_index": DatasetIndex().version(bench, target) if target else "",
        "splits": {str(seed): Splits().version(bench, task_key(dataset, seed)) for seed in seeds},
        "uncertain_labels": suite.protocol.data.uncertain_labels,
        "classes": classes.filter("eligible")["class"].to_list(),
    }


def panel_gaps(bench: Bench) -> list[str]:
    """What is not in the store, or not up to date, of what a panel of the suite's members is frozen from."""
    suite = bench.suite
    stale = [name for name in suite.spec.panel_members if not AxisProfile().is_current(bench, name)]
    # Without its nulls a data set would be frozen as one that cannot rank encoders.
    nulls = [parse_task(task)[0] for task in suite.tasks if not NullControls().is_current(bench, task)]
    runs = [
        f"{name} on {dataset}"
        for name in suite.spec.panel_members
        if name not in stale
        for dataset in suite.existing_datasets(name)
        if dataset not in read_profile(bench, name)["datasets"]
    ]
    lacking = {"profiles": stale, "null controls": dict.fromkeys(nulls), "runs": runs}
    return [f"{what} ({', '.join(names)})" for what, names in lacking.items() if names]


def freeze_panel(bench: Bench) -> dict[str, Any]:
    """Freeze the suite's panel members as they stand in the store, and make that panel the active one.

    Raises:
        PanelError: If the suite names a published panel, a data set cannot be scored, or a member's profile is missing
            or incomplete.
    """
    suite = bench.suite
    if suite.spec.panel != LOCAL_PANEL:
        raise panels.PanelError(
            f"suite {suite.id} is scored against panel {suite.spec.panel}, so one frozen here would have no effect; "
            f'set panel = "{LOCAL_PANEL}" in the suite to freeze panels of its own.'
        )
    if unscorable := unscorable_datasets(bench):
        checks = ", ".join(f"crs dataset check {name} --protocol {suite.protocol.id}" for name in unscorable)
        raise panels.PanelError(
            f"{', '.join(unscorable)} cannot be scored; mend the data set, or take it out of the suite. To count its "
            f"classes: {checks}"
        )
    if gaps := panel_gaps(bench):
        raise panels.PanelError(f"no up-to-date {', '.join(gaps)}; make them first: {scoring_command(bench)}")
    members: dict[str, Any] = {}
    for name in suite.spec.panel_members:
        profile = read_profile(bench, name)
        members[name] = {"weights": profile["weights"], "datasets": profile["datasets"]}
    rankable = rankable_datasets(bench, suite.spec.panel_members)
    covered = {name for member in members.values() for name in member["datasets"]}
    conditions = {
        name: {**comparison_conditions(bench, name), "rankable": rankable[name]}
        for name in suite.datasets
        if name in covered
    }
    panel = panels.freeze(suite.id, list(suite.readings), conditions, members)
    panels.write(panel, bench.home.panels)
    write_atomic(panel_pointer(bench), panel["name"])
    return panel


def rederive_panel(bench: Bench, panel: Mapping[str, Any]) -> list[str]:
    """Differences between a panel and what the stored profiles of its members give now; empty where equal."""
    members = {}
    for name in panel["encoders"]:
        profile = read_profile(bench, name)
        members[name] = {"weights": profile["weights"], "datasets": profile["datasets"]}
    rankable = rankable_datasets(bench, tuple(panel["encoders"]))
    conditions = {
        name: {**comparison_conditions(bench, name), "rankable": rankable[name]} for name in panel["datasets"]
    }
    return panels.differences(panel, panels.freeze(bench.suite.id, list(bench.suite.readings), conditions, members))


def read_profile(bench: Bench, encoder: str) -> dict[str, Any]:
    """An encoder's axis profile."""
    path = bench.store.open(bench.key(AxisProfile.name, encoder)).file(PROFILE_FILE)
    profile: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return profile


def read_score(bench: Bench, encoder: str) -> dict[str, Any]:
    """An encoder's published score."""
    path = bench.store.open(bench.key(Crs.name, encoder)).file(SCORE_FILE)
    score: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return score


def _with_profile(bench: Bench, encoder: str, panel: Mapping[str, Any]) -> dict[str, Any] | None:
    profile = AxisProfile().version(bench, encoder)
    if profile is None:
        return None
    scores = {reading.id: protocol_part(reading, "score") for reading in bench.suite.readings}
    return {"profile": profile, "panel": panel["sha256"], "readings": scores}


def _seed_versions(bench: Bench, encoder: str, dataset: str) -> dict[str, str] | None:
    versions = {
        str(seed): RunMetrics().version(bench, encoder, task_key(dataset, seed))
        for seed in bench.suite.protocol.data.seeds
    }
    return None if any(version is None for version in versions.values()) else {k: v for k, v in versions.items() if v}


def _profiles_of(bench: Bench, encoder: str, dataset: str) -> dict[str, Any]:
    seeds = bench.suite.protocol.data.seeds
    runs = {seed: read_runs(bench, encoder, task_key(dataset, seed)) for seed in seeds}
    distinct = {seed: _distinct(read_fractions(bench, dataset, seed)) for seed in seeds}
    return {
        reading.id: dataset_profile(
            [seed_axes(runs[seed], reading, distinct_fractions=distinct[seed]) for seed in seeds], reading
        )
        for reading in bench.suite.readings
    }


def _distinct(fractions: pl.DataFrame) -> bool:
    return fractions["n_fit"].n_unique() == fractions.height


__all__ = [
    "AXES",
    "AxisProfile",
    "Crs",
    "freeze_panel",
    "panel_gaps",
    "read_profile",
    "read_score",
    "rederive_panel",
]
