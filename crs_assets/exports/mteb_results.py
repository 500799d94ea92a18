"""Results in the layout of MTEB: one JSON file per encoder and data set, as ``mteb.results.TaskResult`` reads it [1]_.

What maps to what:

======================  ================================================================================
``task_name``           id of the data set
``dataset_revision``    digest of its index
``mteb_version``        null: MTEB computed nothing here
``scores``              one split, ``test``: the clean test set at all labels; one subset, ``default``
``main_score``          macro-AUROC of the linear probe, mean over seeds
``languages``           ``eng-Latn``, which MTEB gives to tasks on images
``scores_per_experiment``  one entry per seed
``evaluation_time``     null: it depends on the machine
======================  ================================================================================

Further keys of a score, which MTEB passes on as they are: every metric of the run, ``axis_<axis>`` (raw), ``crs`` with
``crs_panel``. Degraded and transferred conditions are in the axes and in the tables, not in further subsets: MTEB
averages over subsets. Null where not estimable.

References:
    .. [1] Muennighoff et al., MTEB, EACL 2023 (arXiv:2210.07316); class TaskResult of mteb 2.
"""

from typing import Any

import polars as pl

from crs_assets.exports.results import SuiteResults
from crs_assets.science.evaluation import METRICS
from crs_assets.science.protocol import AXES, CLEAN

SPLIT = "test"
SUBSET = "default"
LANGUAGES = ("eng-Latn",)
MAIN_METRIC = "auroc"
LINEAR = "linear"


def task_result(results: SuiteResults, encoder: str, dataset: str) -> dict[str, Any] | None:
    """The result of one encoder on one data set, or None where its AUROC is not estimable.

    Args:
        results: The suite's results.
        encoder: An encoder with a profile.
        dataset: A data set of its profile.
    """
    per_seed = _per_seed(results.runs, encoder, dataset)
    means = {name: _mean([row[name] for row in per_seed]) for name in METRICS}
    if means[MAIN_METRIC] is None:
        return None
    reading = results.suite.protocol.id
    profile, score = results.profiles[encoder], results.scores.get(encoder)
    raw = profile["datasets"][dataset][reading]["raw"]
    terms = score["readings"][reading]["datasets"].get(dataset) if score else None
    scores = {
        "main_score": means[MAIN_METRIC],
        "hf_subset": SUBSET,
        "languages": list(LANGUAGES),
        **means,
        **{f"axis_{axis}": raw[axis] for axis in AXES},
        "crs": terms["crs"] if terms else None,
        "crs_panel": results.panel if terms else None,
        "scores_per_experiment": per_seed,
    }
    return {
        "dataset_revision": results.image_sets[dataset].index,
        "task_name": dataset,
        "mteb_version": None,
        "scores": {SPLIT: [scores]},
        "evaluation_time": None,
        "kg_co2_emissions": None,
    }


def _per_seed(runs: pl.DataFrame, encoder: str, dataset: str) -> list[dict[str, Any]]:
    of_cell = (pl.col("encoder") == encoder) & (pl.col("dataset") == dataset)
    of_run = (pl.col("probe") == LINEAR) & (pl.col("condition") == CLEAN) & (pl.col("fraction") == 1.0)
    return runs.filter(of_cell & of_run).sort("seed").select(pl.col(METRICS).fill_nan(None)).to_dicts()


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
