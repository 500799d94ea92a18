"""The files of an export, and its folder."""

import io
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, get_args

import polars as pl

from crs_assets.exports.croissant import croissant, lacking
from crs_assets.exports.eval_results import eval_results_yaml
from crs_assets.exports.folder import ExportFile, Written, write_folder
from crs_assets.exports.mteb_results import task_result
from crs_assets.exports.predictions import WARNING, new_key, prediction_table
from crs_assets.exports.results import SuiteResults
from crs_assets.exports.tables import TABLES
from crs_assets.report.page import PHANTOM_WARNING
from crs_assets.science.labels import LabelSpace
from crs_assets.science.transfer import fitted_labels

FormatType = Literal["parquet", "csv", "eval-results", "mteb", "croissant"]
FORMATS: tuple[FormatType, ...] = get_args(FormatType)
SCHEMA = 1

Predictions = Callable[[str, str], pl.DataFrame]
"""Encoder and data set -> rows of ``probe_predictions`` of every seed, with ``seed``."""


def write_export(
    results: SuiteResults,
    folder: Path,
    *,
    formats: Sequence[FormatType] = FORMATS,
    benchmark: str,
    predictions: Predictions | None = None,
    force: bool = False,
) -> Written:
    """Write a suite's results into a folder.

    Args:
        results: What is stored.
        folder: A new or empty folder, or one with an export.
        formats: Of ``FORMATS``.
        benchmark: Hub data set that hosts the leaderboard, for ``eval-results``.
        predictions: Reads stored predictions; only where those of single images are wanted.
        force: Replace an export that differs.

    Raises:
        ExportError: If the folder is taken.
    """
    files = list(export_files(results, formats, benchmark))
    if predictions is not None:
        files += prediction_files(results, predictions, new_key())
    facts = export_facts(results, has_predictions=predictions is not None)
    return write_folder(folder, files, facts, force=force)


def export_facts(results: SuiteResults, *, has_predictions: bool = False) -> dict[str, Any]:
    """What the manifest says beside the files."""
    notices = [PHANTOM_WARNING] if results.has_phantoms else []
    return {
        "schema": SCHEMA,
        "suite": results.suite.id,
        "title": results.suite.spec.title,
        "protocol": results.suite.protocol.id,
        "readings": [reading.id for reading in results.suite.readings],
        "panel": results.panel,
        "package_version": version("crs_assets"),
        "notices": [*notices, *([WARNING] if has_predictions else [])],
    }


def export_files(results: SuiteResults, formats: Sequence[FormatType], benchmark: str) -> Iterator[ExportFile]:
    """Every file of the given formats, contents made when they are written."""
    makers: dict[FormatType, Callable[[SuiteResults], Iterator[ExportFile]]] = {
        "parquet": partial(_table_files, ending="parquet", render=_parquet),
        "csv": partial(_table_files, ending="csv", render=_csv),
        "eval-results": partial(_eval_result_files, benchmark=benchmark),
        "mteb": _mteb_files,
        "croissant": _croissant_files,
    }
    for name in FORMATS:
        if name in formats:
            yield from makers[name](results)


def prediction_files(results: SuiteResults, predictions: Predictions, key: bytes) -> Iterator[ExportFile]:
    """Predictions of single images under hashed ids: one file per encoder (controls too) and data set."""
    for encoder, profile in results.profiles.items():
        for dataset in profile["datasets"]:
            space = fitted_labels(results.suite.datasets[dataset])
            yield ExportFile(
                f"predictions/{encoder}/{dataset}.parquet",
                "Probabilities of single test and target images under hashed ids; no labels.",
                partial(_prediction_bytes, predictions, encoder, dataset, space, key),
            )


def _table_files(results: SuiteResults, ending: str, render: Callable[[pl.DataFrame], bytes]) -> Iterator[ExportFile]:
    for name, (make, about) in TABLES.items():
        yield ExportFile(f"tables/{name}.{ending}", about, partial(_table_bytes, make, render, results))


def _eval_result_files(results: SuiteResults, benchmark: str) -> Iterator[ExportFile]:
    for encoder in results.encoders:
        yield ExportFile(
            f"eval-results/{encoder}/.eval_results/{results.suite.id}.yaml",
            "Hugging Face evaluation results, for the encoder's model repository.",
            partial(_eval_result_bytes, results, encoder, benchmark),
        )


def _mteb_files(results: SuiteResults) -> Iterator[ExportFile]:
    for encoder in results.encoders:
        profile = results.profiles[encoder]
        for dataset in profile["datasets"]:
            document = task_result(results, encoder, dataset)
            if document is not None:
                yield ExportFile(
                    f"mteb/results/{encoder}/{profile['weights']}/{dataset}.json",
                    "Result of one encoder on one data set, in the layout of MTEB's results.",
                    partial(_json, document),
                )


def _croissant_files(results: SuiteResults) -> Iterator[ExportFile]:
    for name, facts in results.image_sets.items():
        spec = results.suite.image_sets[name]
        document = croissant(spec, facts, results.suite.protocol, version("crs_assets"))
        missing = lacking(document)
        about = "Croissant description of a data set, without its images."
        if missing:
            about += f" Its catalogue entry names no {', '.join(missing)}, which Croissant requires."
        yield ExportFile(f"croissant/{name}.json", about, partial(_json, document))


def _table_bytes(
    make: Callable[[SuiteResults], pl.DataFrame], render: Callable[[pl.DataFrame], bytes], results: SuiteResults
) -> bytes:
    return render(make(results))


def _eval_result_bytes(results: SuiteResults, encoder: str, benchmark: str) -> bytes:
    return eval_results_yaml(results, encoder, benchmark).encode("utf-8")


def _prediction_bytes(predictions: Predictions, encoder: str, dataset: str, space: LabelSpace, key: bytes) -> bytes:
    return _parquet(prediction_table(predictions(encoder, dataset), space, key))


def _parquet(table: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    return buffer.getvalue()


def _csv(table: pl.DataFrame) -> bytes:
    return table.write_csv().encode("utf-8")


def _json(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    return f"{text}\n".encode()
