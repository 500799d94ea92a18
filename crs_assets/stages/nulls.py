"""Which cells stand above their null controls, by the paired case interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.bench import Bench
from crs_assets.science.evaluation import class_scores
from crs_assets.science.metrics import macro_auroc
from crs_assets.science.seeding import generator
from crs_assets.science.statistics import bootstrap_macro_auroc, percentile_interval
from crs_assets.science.suite import task_key
from crs_assets.stages.data import read_index
from crs_assets.stages.encoders import usable_rows
from crs_assets.stages.probes import (
    PREDICTIONS_FILE,
    NullControls,
    ProbePredictions,
    read_clean_predictions,
)
from crs_assets.stages.run_scorer import RunScorer


@dataclass(frozen=True)
class NullComparison:
    """A cell against one of its nulls.

    Attributes:
        encoder: The compared encoder.
        dataset: The data set.
        null: Name of the null control.
        difference: Mean over seeds of the macro-AUROC difference, encoder minus null.
        lower: Lower end of the paired case interval of that mean.
        upper: Upper end.
    """

    encoder: str
    dataset: str
    null: str
    difference: float
    lower: float
    upper: float

    @property
    def above(self) -> bool:
        """Whether the encoder is above this null: the whole interval lies above 0."""
        return self.lower > 0


def null_comparisons(bench: Bench, dataset: str, encoders: Sequence[str]) -> list[NullComparison]:
    """Compare encoders with every null control of a data set under the same resamples of the test groups.

    Nulls are the suite's controls (pixels, untrained networks), metadata only, and shuffled labels: whatever of them is
    in the store. A control is not compared with itself.

    Args:
        bench: The suite and its store.
        dataset: The data set.
        encoders: Encoders and controls to compare; those without predictions on every seed are passed over.
    """
    suite = bench.suite
    tasks = {seed: task_key(dataset, seed) for seed in suite.protocol.data.seeds}
    controls = [name for name, spec in suite.encoders.items() if spec.role == "control"]
    stored = [
        name
        for name in dict.fromkeys([*encoders, *controls])
        if all(ProbePredictions().version(bench, name, task) for task in tasks.values())
    ]
    if not all(NullControls().version(bench, task) for task in tasks.values()):
        return []
    if not RunScorer.open(bench, dataset, suite.protocol.data.seeds[0]).classes:
        return []
    per_seed = [_resampled(bench, dataset, seed, stored) for seed in tasks]
    names = [*stored, *sorted(set(per_seed[0]) - set(stored))]
    draws = {name: np.mean([seed[name] for seed in per_seed], axis=0) for name in names}
    nulls = [name for name in names if name not in encoders or name in controls]
    level = suite.protocol.statistics.interval
    return [
        _comparison(encoder, dataset, null, draws[encoder] - draws[null], level)
        for encoder in encoders
        if encoder in draws
        for null in nulls
        if null != encoder
    ]


def rankable_datasets(bench: Bench, encoders: Sequence[str]) -> dict[str, bool]:
    """Which data sets can rank encoders: those on which at least one of these is above all its nulls."""
    verdicts = {}
    for dataset in bench.suite.datasets:
        above: dict[str, bool] = {}
        for comparison in null_comparisons(bench, dataset, encoders):
            above[comparison.encoder] = above.get(comparison.encoder, True) and comparison.above
        verdicts[dataset] = any(above.values())
    return verdicts


def _comparison(encoder: str, dataset: str, null: str, difference: NDArray[np.float64], level: float) -> NullComparison:
    resampled = difference[1:]
    estimable = resampled[np.isfinite(resampled)]
    if not len(estimable):
        return NullComparison(encoder, dataset, null, float(difference[0]), float("nan"), float("nan"))
    lower, upper = percentile_interval(estimable, level=level)
    return NullComparison(encoder, dataset, null, float(difference[0]), float(lower), float(upper))


def _resampled(bench: Bench, dataset: str, seed: int, encoders: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    """Name -> macro-AUROC on the test set as it is, then under each resample; the same draws for every seed."""
    scorer = RunScorer.open(bench, dataset, seed)
    spec, protocol = bench.suite.datasets[dataset], bench.suite.protocol
    index = usable_rows(read_index(bench, dataset)).filter("is_test")
    task = task_key(dataset, seed)
    frames = {name: read_clean_predictions(bench, name, task) for name in encoders}
    controls = pl.read_parquet(bench.store.open(bench.key(NullControls.name, task)).file(PREDICTIONS_FILE))
    frames |= {str(name): frame.select("image_id", "logits") for (name,), frame in controls.group_by("encoder")}
    rows = [scorer.positions[dataset][image_id] for image_id in index["image_id"]]
    labels, classes = scorer.labels[dataset][rows], list(scorer.classes)
    scores = {
        name: _ranking(
            index.select("image_id").join(frame, on="image_id", maintain_order="left")["logits"].to_numpy(), spec.task
        )
        for name, frame in frames.items()
    }
    resampled = bootstrap_macro_auroc(
        labels,
        list(scores.values()),
        group_ids=index["group_id"].to_numpy().astype(str),
        replicates=protocol.statistics.replicates,
        rng=generator(protocol.salt, "case_bootstrap", dataset),
        classes=classes,
    )
    return {
        name: np.concatenate([[macro_auroc(labels, scores[name], classes=classes)], values])
        for name, values in zip(scores, resampled.values, strict=True)
    }


def _ranking(logits: NDArray[np.float32], task: str) -> NDArray[np.float64]:
    """What classes are ranked by; a label that could not be fitted ranks nothing, which is an AUROC of 0.5."""
    return np.nan_to_num(class_scores(logits, task), nan=0.0)
