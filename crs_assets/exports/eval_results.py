"""Hugging Face evaluation results: one YAML file per encoder, for ``.eval_results/`` of its model repository.

The format is the Hub's decentralised one: a list of entries with ``dataset.id``, ``dataset.task_id`` and ``value``
required [1]_ [2]_. What maps to what:

=====================  ==================================================================
``dataset.id``         the Hub data set that hosts the benchmark's leaderboard
``dataset.task_id``    ``<reading>/<data set>/<measure>``; ``all`` for the mean over sets
``value``              ``crs`` in [0, 1], or a raw axis on its own scale
``notes``              what the value depends on: panel, index, weights, package
=====================  ==================================================================

``dataset.revision`` is a commit of the Hub's data set, which the benchmark does not know; ``date`` is left to the Hub,
which takes the commit's. A value that is not estimable has no entry.

References:
    .. [1] Hugging Face, "Evaluation Results", Hub documentation, docs/hub/eval-results.
    .. [2] Hugging Face, hub-docs repository, eval_results.yaml.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from crs_assets.exports.results import ExportError, SuiteResults
from crs_assets.science.protocol import AXES

ALL = "all"
CRS = "crs"


def check_benchmark(benchmark: str) -> None:
    """Refuse what cannot be the id of a data set on the Hub; whether there is one of that id, only the Hub knows.

    Raises:
        ExportError: If ``benchmark`` is no ``owner/name``.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    wanted = "the id of the Hub's data set that hosts the leaderboard: owner/name, such as clinic/crs-leaderboard"
    if benchmark.count("/") != 1:
        raise ExportError(f"--benchmark {benchmark!r} is not {wanted}.")
    try:
        validate_repo_id(benchmark)
    except HFValidationError as error:
        raise ExportError(f"--benchmark {benchmark!r} is not {wanted} ({error})") from error


def eval_results_yaml(results: SuiteResults, encoder: str, benchmark: str) -> str:
    """The entries of one encoder as YAML.

    Args:
        results: The suite's results.
        encoder: An encoder with a profile.
        benchmark: Id of the Hub data set that hosts the leaderboard, ``owner/name``.

    Raises:
        ExportError: If ``benchmark`` is no such id.
    """
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml
    from huggingface_hub.utils import yaml_dump

    check_benchmark(benchmark)
    entries = [
        EvalResultEntry(dataset_id=benchmark, task_id=task, value=value, notes=notes)
        for task, value, notes in _values(results, encoder)
    ]
    return str(yaml_dump(eval_result_entries_to_yaml(entries), sort_keys=False))


def _values(results: SuiteResults, encoder: str) -> Iterator[tuple[str, float, str]]:
    """Task id, value and notes of whatever is estimable."""
    profile, score = results.profiles[encoder], results.scores.get(encoder)
    for reading in (item.id for item in results.suite.readings):
        scored = score["readings"].get(reading) if score else None
        if scored and scored["aggregate"]:
            sets = ", ".join(scored["aggregate"]["datasets"])
            yield f"{reading}/{ALL}/{CRS}", scored["aggregate"]["crs"], _notes(results, profile, f"mean over {sets}")
        for dataset, readings in profile["datasets"].items():
            notes = _notes(results, profile, f"index {results.image_sets[dataset].index[:16]}")
            for measure, value in _measures(readings[reading], scored, dataset).items():
                if value is not None:
                    yield f"{reading}/{dataset}/{measure}", value, notes


def _measures(profile: Mapping[str, Any], scored: Mapping[str, Any] | None, dataset: str) -> dict[str, float | None]:
    terms = scored["datasets"].get(dataset) if scored else None
    return {CRS: terms["crs"] if terms else None, **{axis: profile["raw"][axis] for axis in AXES}}


def _notes(results: SuiteResults, profile: Mapping[str, Any], basis: str) -> str:
    parts = [
        "frozen encoder, linear probe",
        f"panel {results.panel}" if results.panel else "no panel",
        basis,
        f"weights {profile['weights'][:16]}",
        f"crs_assets {profile['package_version']}",
    ]
    if results.has_phantoms:
        parts.append("procedural phantoms, not medical images")
    return "; ".join(parts)
