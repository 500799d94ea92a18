"""``crs export``: gather what the store holds of a suite, and write it in the formats asked for."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import polars as pl

from crs_assets.cli.session import open_bench
from crs_assets.exports.eval_results import check_benchmark
from crs_assets.exports.exporting import FORMATS, FormatType, write_export
from crs_assets.exports.predictions import WARNING
from crs_assets.exports.results import ExportError, ImageSetFacts, SuiteResults
from crs_assets.exports.suppression import count_classes
from crs_assets.resources.artifact_store import Manifest
from crs_assets.resources.bench import Bench
from crs_assets.science.datasets import DatasetSpec
from crs_assets.science.splits import TEST
from crs_assets.science.suite import parse_task, task_key
from crs_assets.science.transfer import fitted_labels, target_in_source_names, transfer_labels
from crs_assets.stages.analyses.control_probes import ControlProbes
from crs_assets.stages.analyses.depth import DepthSweep
from crs_assets.stages.analyses.extra_degradations import ExtraDegradationMetrics
from crs_assets.stages.data import COUNTS_FILE, DatasetIndex, Splits, read_index
from crs_assets.stages.encoders import EncoderWeights, usable_rows
from crs_assets.stages.panel_in_force import active_panel, scoring_command
from crs_assets.stages.probes import (
    CLASS_RUNS_FILE,
    PREDICTIONS_FILE,
    RUNS_FILE,
    NullControls,
    ProbePredictions,
    RunMetrics,
)
from crs_assets.stages.scores import AxisProfile, Crs, read_profile, read_score
from crs_assets.stages.stage import Stage

DEFAULT_OWNER = "crs_assets"
EVAL_RESULTS: FormatType = "eval-results"


def export_suite(
    suite: str, folder: Path, formats: Sequence[str] = (), *, benchmark: str | None, predictions: bool, force: bool
) -> None:
    """Export a suite and say what was written.

    Args:
        suite: Suite id, or path of its TOML.
        folder: Where to.
        formats: Of ``FORMATS``; all of them where none is named.
        benchmark: Hub data set that hosts the leaderboard; by default one named after the suite, which has to be
            replaced before the results are pushed.
        predictions: Whether to write predictions of single images too.
        force: Replace an export that differs.

    Raises:
        click.ClickException: If there is nothing to export, what is stored does not fit together, the folder is taken,
            or the benchmark is no id of the Hub, or of no use to the formats.
    """
    chosen = [name for name in FORMATS if not formats or name in formats]
    _check_benchmark(benchmark, chosen)
    bench = open_bench(suite)
    if predictions:
        click.echo(f"Mind: {WARNING}", err=True)
    try:
        written = write_export(
            read_results(bench),
            folder,
            formats=chosen,
            benchmark=benchmark or f"{DEFAULT_OWNER}/{bench.suite.id}",
            predictions=(lambda encoder, dataset: read_predictions(bench, encoder, dataset)) if predictions else None,
            force=force,
        )
    except ExportError as error:
        raise click.ClickException(str(error)) from error
    if written.changed:
        click.echo(f"{folder}: {written.files} files, {written.size / 1e6:.1f} MB; manifest.json lists them.")
    else:
        click.echo(f"{folder}: already there, unchanged.")


def _check_benchmark(benchmark: str | None, formats: Sequence[str]) -> None:
    """Refuse a benchmark that cannot be meant, before anything is read or written."""
    if benchmark is None:
        return
    try:
        check_benchmark(benchmark)
    except ExportError as error:
        raise click.ClickException(str(error)) from error
    if EVAL_RESULTS not in formats:
        raise click.UsageError(
            f"--benchmark is written into {EVAL_RESULTS} only, and --format names {', '.join(formats)}; "
            f"add --format {EVAL_RESULTS}, or leave --benchmark out."
        )


def read_results(bench: Bench) -> SuiteResults:
    """Everything that is stored of a suite's results.

    Raises:
        ExportError: If there is none, or parts of it were made from other versions of the parts they rest on.
    """
    encoders = list(bench.suite.encoders)
    class_runs = _tables(bench, (RunMetrics(),), CLASS_RUNS_FILE)
    if class_runs.is_empty():
        raise ExportError(f"suite {bench.suite.id} has no results yet; make them first: {scoring_command(bench)}")
    profiles = {name: _manifest(bench, AxisProfile.name, name) for name in encoders}
    scores = {name: _manifest(bench, Crs.name, name) for name in encoders}
    panel = active_panel(bench)
    results = SuiteResults(
        suite=bench.suite,
        panel=str(panel["name"]) if panel else "",
        runs=_tables(bench, (RunMetrics(), NullControls(), ControlProbes())),
        further_runs=_tables(bench, (ExtraDegradationMetrics(),)),
        depths=_tables(bench, (DepthSweep(),)),
        class_runs=class_runs,
        test_classes=pl.concat(_test_classes(bench)),
        profiles={name: {**read_profile(bench, name), **_version(found)} for name, found in profiles.items() if found},
        scores={name: {**read_score(bench, name), **_version(found)} for name, found in scores.items() if found},
        image_sets={name: _facts(bench, name) for name in _indexed(bench)},
    )
    problems = [*_older_runs(bench, results), *_older_profiles(bench, profiles)]
    problems += _older_scores(profiles, scores, str(panel["sha256"]) if panel else "")
    older_analyses = list(_older_analyses(bench))
    problems += older_analyses
    if problems:
        shown = "\n".join(f"  {problem}" for problem in problems[:10])
        raise ExportError(
            f"{len(problems)} part(s) of the results do not fit together:\n{shown}\n"
            f"Bring them up to date first: {bench.suite.command('run')}"
            + (f", then {bench.suite.command('report')}" if older_analyses else "")
        )
    return results


def _tables(bench: Bench, stages: Sequence[Stage], file: str = RUNS_FILE) -> pl.DataFrame:
    """Rows of the partitions that are in the store and in the suite; none, and no columns, where there are none."""
    tables = []
    for stage in stages:
        for parts in stage.partitions(bench):
            if found := _manifest(bench, stage.name, *parts):
                table = pl.read_parquet(bench.store.open(bench.key(stage.name, *parts)).file(file))
                of_part = {"asset": stage.name, **_version(found)}
                tables.append(
                    table.with_columns(pl.lit(value, pl.String).alias(name) for name, value in of_part.items())
                )
    return pl.concat(tables) if tables else pl.DataFrame()


def _test_classes(bench: Bench) -> Iterator[pl.DataFrame]:
    """Counts behind every evaluation: a data set's test images, and its target's."""
    for name, spec in bench.suite.datasets.items():
        if DatasetIndex().version(bench, name) is None:
            continue
        test = usable_rows(read_index(bench, name)).filter("is_test")
        yield count_classes(test, fitted_labels(spec)).with_columns(dataset=pl.lit(name), at_target=pl.lit(value=False))
        if spec.transfer_target and DatasetIndex().version(bench, spec.transfer_target) is not None:
            yield _target_classes(bench, spec).with_columns(dataset=pl.lit(name), at_target=pl.lit(value=True))


def _target_classes(bench: Bench, spec: DatasetSpec) -> pl.DataFrame:
    target = bench.suite.targets[str(spec.transfer_target)]
    renamed, known = target_in_source_names(usable_rows(read_index(bench, target.id)), spec, target)
    counted = count_classes(renamed, known)
    # Labels that the target lacks have counts of 0 in the runs, which tell of nobody.
    lacking = [name for name in transfer_labels(spec, target).classes if name not in known.classes]
    blank = pl.DataFrame({"class": lacking}, schema={"class": pl.String})
    return pl.concat([counted, blank], how="diagonal").with_columns(
        pl.col(pl.Int64).fill_null(0), pl.col("adds_up").fill_null(value=False)
    )


def _facts(bench: Bench, name: str) -> ImageSetFacts:
    artifact = bench.store.open(bench.key(DatasetIndex.name, name))
    index = usable_rows(read_index(bench, name))
    roles: dict[str, list[int]] = {}
    if name in bench.suite.datasets:
        for seed in bench.suite.protocol.data.seeds:
            found = _manifest(bench, Splits.name, task_key(name, seed))
            for role, count in (found.summary["roles"] if found else {}).items():
                roles.setdefault(role, []).append(int(count))
    else:
        roles[TEST] = [index.height]
    return ImageSetFacts(
        index=artifact.manifest.data_version,
        counts=pl.read_parquet(artifact.file(COUNTS_FILE)),
        classes=count_classes(index, bench.suite.image_sets[name]),
        roles={role: (min(counts), max(counts)) for role, counts in roles.items()},
    )


def read_predictions(bench: Bench, encoder: str, dataset: str) -> pl.DataFrame:
    """Stored predictions of every seed that has them."""
    frames = []
    for task in bench.suite.tasks:
        name, seed = parse_task(task)
        if name == dataset and _manifest(bench, ProbePredictions.name, encoder, task):
            path = bench.store.open(bench.key(ProbePredictions.name, encoder, task)).file(PREDICTIONS_FILE)
            frames.append(pl.scan_parquet(path).filter(pl.col("fraction") == 1.0).with_columns(seed=pl.lit(seed)))
    return pl.concat(frames).collect()


def _older_runs(bench: Bench, results: SuiteResults) -> Iterator[str]:
    """Runs of another protocol or index than the one in force: results of two never share a table."""
    indexes = {name: facts.index for name, facts in results.image_sets.items()}
    cells = results.runs.select("encoder", "dataset", "protocol", "index", "target_index").unique().sort(pl.all())
    for row in cells.iter_rows(named=True):
        cell = f"{row['encoder']} on {row['dataset']}"
        target = bench.suite.target_of(row["dataset"])
        if row["protocol"] != bench.suite.protocol.id:
            yield f"{cell}: runs of protocol {row['protocol']}, the suite's is {bench.suite.protocol.id}"
        if row["index"] != indexes.get(row["dataset"]) or (target and row["target_index"] != indexes.get(target)):
            yield f"{cell}: runs on other images than those indexed now"


def _older_profiles(bench: Bench, profiles: dict[str, Manifest | None]) -> Iterator[str]:
    readings = {reading.id for reading in bench.suite.readings}
    for name, found in profiles.items():
        if found is None:
            continue
        if set(found.recipe["inputs"]["readings"]) != readings:
            yield f"{name}: its profile has other readings than the suite"
        for dataset, versions in found.recipe["inputs"]["runs"].items():
            if dataset not in bench.suite.datasets:
                yield f"{name} on {dataset}: its profile has a data set that the suite no longer has"
                continue
            now = {seed: RunMetrics().version(bench, name, task_key(dataset, int(seed))) for seed in versions}
            if now != versions:
                yield f"{name} on {dataset}: its profile is older than its runs"


def _older_scores(
    profiles: dict[str, Manifest | None], scores: dict[str, Manifest | None], panel: str
) -> Iterator[str]:
    for name, found in scores.items():
        if found is None:
            continue
        profile, rests_on = profiles[name], found.recipe["inputs"]
        if rests_on["panel"] != panel:
            yield f"{name}: its score was taken against another panel than the one in force"
        elif profile is None or rests_on["profile"] != profile.data_version:
            yield f"{name}: its score is older than its profile"


def _older_analyses(bench: Bench) -> Iterator[str]:
    """Tables beside the score that were made from other runs, features, images or splits than are there now."""
    for encoder, task in ExtraDegradationMetrics().partitions(bench):
        found = _manifest(bench, ExtraDegradationMetrics.name, encoder, task)
        if found and found.recipe["inputs"]["runs"] != RunMetrics().version(bench, encoder, task):
            yield f"{encoder} on {task}: its further degradations are older than its runs"
    for encoder, task in DepthSweep().partitions(bench):
        found, dataset = _manifest(bench, DepthSweep.name, encoder, task), parse_task(task)[0]
        now = {
            "weights": EncoderWeights().version(bench, encoder),
            "index": DatasetIndex().version(bench, dataset),
            "splits": Splits().version(bench, task),
            "protocol_id": bench.suite.protocol.id,
        }
        if found and any(found.recipe["inputs"][name] != version for name, version in now.items()):
            yield f"{encoder} on {task}: its depth sweep is older than its weights, images or splits"


def _indexed(bench: Bench) -> Iterable[str]:
    return (name for name in bench.suite.image_sets if DatasetIndex().version(bench, name) is not None)


def _manifest(bench: Bench, stage: str, *parts: str) -> Manifest | None:
    return bench.store.peek(bench.key(stage, *parts))


def _version(manifest: Manifest) -> dict[str, Any]:
    return {"package_version": manifest.provenance["libraries"]["crs_assets"]}
