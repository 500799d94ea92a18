"""Tidy tables of every result: one row per observation, values not estimable are null, small counts too.

Every table begins with ``suite`` and names its encoder, the encoder's role (encoder, control, null) and its data set,
and whether the images are procedural ``phantom``s; it ends with what the numbers depend on: protocol, weights
fingerprint, index digest, and the version of the package that computed them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from crs_assets.exports.results import SuiteResults
from crs_assets.exports.suppression import CLASS_COUNTS, mark_hidden, told
from crs_assets.science.evaluation import METRICS
from crs_assets.science.profiles import COMPONENTS
from crs_assets.science.protocol import AXES, TRANSFER

_CELL = {"suite": pl.String, "encoder": pl.String, "role": pl.String, "dataset": pl.String, "phantom": pl.Boolean}
_RUN = {"probe": pl.String, "seed": pl.Int64, "fraction": pl.Float64, "condition": pl.String}
_OF_RUN = {
    "protocol": pl.String,
    "uncertain_labels": pl.String,
    "weights": pl.String,
    "index": pl.String,
    "target_index": pl.String,
    "package_version": pl.String,
}
_OF_SCORE = {
    "panel": pl.String,
    "protocol": pl.String,
    "weights": pl.String,
    "index": pl.String,
    "package_version": pl.String,
}
_OF_PROFILE = {name: kind for name, kind in _OF_SCORE.items() if name != "panel"}
_SIZES = ("n_fit", "n_val", "n_eval")
_TERMS = {"dominance": pl.Float64, "dominated": pl.Int64, "peers": pl.Int64, "closeness": pl.Float64}
_AXES: Mapping[str, Any] = dict.fromkeys(AXES, pl.Float64)

RUN_SCHEMA: Mapping[str, Any] = {
    **_CELL,
    "asset": pl.String,
    **_RUN,
    **dict.fromkeys(_SIZES, pl.Int64),
    **dict.fromkeys(("floor", "converged", "lambda_at_edge"), pl.Boolean),
    "classes_scored": pl.Int64,
    "auroc_source": pl.Float64,
    **dict.fromkeys(METRICS, pl.Float64),
    **_OF_RUN,
}
DEPTH_SCHEMA: Mapping[str, Any] = {
    **_CELL,
    "probe": pl.String,
    "seed": pl.Int64,
    "share": pl.Float64,
    "block": pl.Int64,
    "blocks": pl.Int64,
    "pool": pl.String,
    "dim": pl.Int64,
    "chosen": pl.Boolean,
    "lambda": pl.Float64,
    "validation_log_loss": pl.Float64,
    **dict.fromkeys(_SIZES, pl.Int64),
    **dict.fromkeys(("converged", "lambda_at_edge"), pl.Boolean),
    "classes_scored": pl.Int64,
    **dict.fromkeys(METRICS, pl.Float64),
    **{name: kind for name, kind in _OF_RUN.items() if name != "target_index"},
}
CLASS_SCHEMA: Mapping[str, Any] = {
    **_CELL,
    **_RUN,
    "class": pl.String,
    "scored": pl.Boolean,
    "auroc": pl.Float64,
    "positives": pl.Int64,
    "negatives": pl.Int64,
    **_OF_RUN,
}
AXIS_SCHEMA: Mapping[str, Any] = {
    "reading": pl.String,
    **_CELL,
    **_AXES,
    "robustness_without_transfer": pl.Float64,
    **{f"z_{axis}": pl.Float64 for axis in AXES},
    "z_robustness_without_transfer": pl.Float64,
    **dict.fromkeys(COMPONENTS, pl.Float64),
    "problem": pl.String,
    **_OF_PROFILE,
}
AXIS_SEED_SCHEMA: Mapping[str, Any] = {"reading": pl.String, **_CELL, "seed": pl.Int64, **_AXES, **_OF_PROFILE}
SCORE_SCHEMA: Mapping[str, Any] = {
    "reading": pl.String,
    **_CELL,
    "state": pl.String,
    "crs": pl.Float64,
    "crs_without_transfer": pl.Float64,
    **_TERMS,
    "worst_axis": pl.Float64,
    **_OF_SCORE,
}
AGGREGATE_SCHEMA: Mapping[str, Any] = {
    "reading": pl.String,
    **{name: kind for name, kind in _CELL.items() if name != "dataset"},
    "crs": pl.Float64,
    "datasets": pl.String,
    "covered": pl.Int64,
    "expected": pl.Int64,
    "complete": pl.Boolean,
    **{name: kind for name, kind in _OF_SCORE.items() if name != "index"},
}


def run_table(results: SuiteResults) -> pl.DataFrame:
    """Every metric of every run; columns of ``RUN_SCHEMA``.

    ``asset`` names where a row is kept: ``run_metrics``, ``control_probes`` (other probes than the scored one),
    ``null_controls`` (role ``null``: what looks at no image), or ``extra_degradation_metrics`` (the scored probe under
    degradations that no score is made from).
    """
    rows = pl.concat([results.runs, results.further_runs], how="diagonal")
    return _finished(_with_cell(rows, results), RUN_SCHEMA, [*_RUN]).with_columns(map(told, _SIZES))


def depth_table(results: SuiteResults) -> pl.DataFrame:
    """Linear probes at several depths of each encoder, clean and at all labels; columns of ``DEPTH_SCHEMA``.

    The row of the last depth repeats the published run; ``chosen`` is the depth that is best on validation. No score is
    made from these.
    """
    if results.depths.is_empty():
        return pl.DataFrame(schema=DEPTH_SCHEMA)
    rows = _finished(_with_cell(results.depths, results), DEPTH_SCHEMA, ["seed", "share"])
    return rows.with_columns(map(told, _SIZES))


def class_table(results: SuiteResults) -> pl.DataFrame:
    """AUROC of every class in every run; columns of ``CLASS_SCHEMA``.

    Counts and AUROC are null where fewer than 10 patients carry the class or lack it, and where those would follow.
    """
    hidden = mark_hidden(results.test_classes, ("dataset", "at_target")).select(
        "dataset", "at_target", "class", "hidden"
    )
    rows = _with_cell(results.class_runs, results).with_columns(at_target=pl.col("condition") == TRANSFER)
    joined = rows.join(hidden, on=["dataset", "at_target", "class"], how="left")
    # What was not counted is not told.
    shown = ~pl.col("hidden").fill_null(value=True)
    values = (pl.when(shown).then(name).alias(name) for name in ("auroc", *CLASS_COUNTS[:2]))
    return _finished(joined.with_columns(values), CLASS_SCHEMA, [*_RUN, "class"])


def axis_table(results: SuiteResults) -> pl.DataFrame:
    """Raw axes (means over seeds), their parts, and z under each reading; columns of ``AXIS_SCHEMA``."""
    return _frame(_axis_rows(results), AXIS_SCHEMA)


def axis_seed_table(results: SuiteResults) -> pl.DataFrame:
    """Raw axes of each seed under each reading; columns of ``AXIS_SEED_SCHEMA``."""
    rows = (
        {**cell, **of_seed, **provenance}
        for cell, entry, provenance in _profiles(results)
        for of_seed in entry["per_seed"]
    )
    return _frame(rows, AXIS_SEED_SCHEMA)


def score_table(results: SuiteResults) -> pl.DataFrame:
    """The score of every cell of the grid and its terms; columns of ``SCORE_SCHEMA``.

    A cell without a score has a row too: ``state`` says why.
    """
    return _frame(_score_rows(results), SCORE_SCHEMA)


def aggregate_table(results: SuiteResults) -> pl.DataFrame:
    """Mean score over the data sets of each encoder, with its coverage; columns of ``AGGREGATE_SCHEMA``."""
    rows = []
    for encoder, score in results.scores.items():
        for reading, entry in score["readings"].items():
            aggregate = entry["aggregate"]
            rows.append(
                {
                    "reading": reading,
                    "suite": results.suite.id,
                    "encoder": encoder,
                    "role": results.role(encoder),
                    "phantom": any(results.suite.datasets[name].phantom for name in entry["datasets"]),
                    "crs": aggregate["crs"] if aggregate else None,
                    "datasets": ", ".join(aggregate["datasets"]) if aggregate else None,
                    **{name: score[name] for name in ("covered", "expected", "complete")},
                    **_from(score, "panel", "protocol", "weights", "package_version"),
                }
            )
    return _frame(rows, AGGREGATE_SCHEMA)


TABLES: Mapping[str, tuple[Callable[[SuiteResults], pl.DataFrame], str]] = {
    "run_metrics": (
        run_table,
        "Every metric of every run: linear probes, control probes, null controls, and further degradations.",
    ),
    "depth_sweep": (
        depth_table,
        "Every metric of linear probes at several depths of each encoder, and the chosen depth.",
    ),
    "class_metrics": (class_table, "AUROC of every class in every run of the linear probe, with its counts."),
    "axis_profiles": (axis_table, "The four raw axes of every cell, their parts, and z, under each reading."),
    "axis_profiles_by_seed": (axis_seed_table, "The four raw axes of every cell and seed, under each reading."),
    "crs": (score_table, "The Clinical Reliability Score of every cell and its terms, against the named panel."),
    "crs_aggregate": (aggregate_table, "The mean score of every encoder over its data sets, with its coverage."),
}
"""Name of a file -> what makes the table, and what it is."""


def _axis_rows(results: SuiteResults) -> Iterator[dict[str, Any]]:
    for cell, entry, provenance in _profiles(results):
        z, without = entry["z"] or {}, entry["z_without_transfer"] or {}
        yield {
            **cell,
            **entry["raw"],
            "robustness_without_transfer": entry["robustness_without_transfer"],
            **{f"z_{axis}": z.get(axis) for axis in AXES},
            "z_robustness_without_transfer": without.get("robustness"),
            **entry["components"],
            "problem": entry["problem"],
            **provenance,
        }


def _score_rows(results: SuiteResults) -> Iterator[dict[str, Any]]:
    for reading in results.suite.readings:
        for encoder in results.suite.encoders:
            score = results.scores.get(encoder)
            scored = score["readings"].get(reading.id, {"datasets": {}})["datasets"] if score else {}
            for dataset in results.suite.datasets:
                terms = scored.get(dataset, {})
                yield {
                    **_cell(results, encoder, dataset, reading.id),
                    "state": results.state(encoder, dataset),
                    **_from(terms, "crs", "crs_without_transfer", *_TERMS, "worst_axis"),
                    "index": _index(results, dataset),
                    **_from(score or {}, "panel", "protocol", "weights", "package_version"),
                }


def _profiles(results: SuiteResults) -> Iterator[tuple[dict[str, Any], Mapping[str, Any], dict[str, Any]]]:
    """Cell, its profile under one reading, and provenance."""
    for encoder, profile in results.profiles.items():
        for dataset, readings in profile["datasets"].items():
            for reading, entry in readings.items():
                provenance = _from(profile, "protocol", "weights", "package_version")
                yield (
                    _cell(results, encoder, dataset, reading),
                    entry,
                    {**provenance, "index": _index(results, dataset)},
                )


def _cell(results: SuiteResults, encoder: str, dataset: str, reading: str) -> dict[str, Any]:
    return {
        "reading": reading,
        "suite": results.suite.id,
        "encoder": encoder,
        "role": results.role(encoder),
        "dataset": dataset,
        "phantom": results.suite.datasets[dataset].phantom is not None,
    }


def _index(results: SuiteResults, dataset: str) -> str | None:
    return results.image_sets[dataset].index if dataset in results.image_sets else None


def _from(document: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: document.get(name) for name in names}


def _with_cell(rows: pl.DataFrame, results: SuiteResults) -> pl.DataFrame:
    """Rows of runs with the columns that name their cell."""
    roles = {name: results.role(name) for name in rows["encoder"].unique()}
    phantoms = {name: spec.phantom is not None for name, spec in results.suite.datasets.items()}
    return rows.with_columns(
        suite=pl.lit(results.suite.id),
        role=pl.col("encoder").replace_strict(roles, return_dtype=pl.String),
        phantom=pl.col("dataset").replace_strict(phantoms, return_dtype=pl.Boolean),
    )


def _finished(rows: pl.DataFrame, schema: Mapping[str, Any], order: Sequence[str]) -> pl.DataFrame:
    """Rows in a fixed order and the columns of a schema; NaN, which only some formats have, is null."""
    table = rows.select(pl.col(name).cast(kind) for name, kind in schema.items())
    return table.with_columns(pl.col(pl.Float64).fill_nan(None)).sort("encoder", "dataset", *order)


def _frame(rows: Iterator[dict[str, Any]] | Sequence[dict[str, Any]], schema: Mapping[str, Any]) -> pl.DataFrame:
    order = [name for name in ("reading", "encoder", "dataset", "seed") if name in schema]
    return pl.DataFrame([{name: row[name] for name in schema} for row in rows], schema=schema).sort(order)
