"""Scoring predictions: from logits and labels to one row of metrics per run of the grid."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.bench import Bench
from crs_assets.science import evaluation
from crs_assets.science.evaluation import Scored
from crs_assets.science.labels import LabelSpace, evaluation_labels
from crs_assets.science.protocol import CLEAN, TRANSFER
from crs_assets.science.splits import TEST, eligible_target_classes
from crs_assets.science.transfer import (
    fitted_labels,
    source_transfer_labels,
    target_in_source_names,
    transfer_labels,
    transfer_logits,
)
from crs_assets.stages.data import read_classes, read_derived, read_fractions, read_index
from crs_assets.stages.encoders import usable_rows

TARGET = "target"


@dataclass(frozen=True)
class RunTables:
    """What scoring one set of predictions gives: a row per run, a row per run and class, reliability bins."""

    runs: pl.DataFrame
    classes: pl.DataFrame
    reliability: pl.DataFrame


@dataclass(frozen=True)
class RunScorer:
    """Labels and scored classes of a data set and its target, ready to score any encoder's predictions.

    Attributes:
        bench: The bench.
        dataset: The data set.
        seed: Split seed.
        space: What was fitted: the classes, then derived labels.
        target_space: What is scored at the target; ``space`` where there is none.
        labels: Labels of the data set, of the target and, under ``TRANSFER``, of the data set as the target names them.
        positions: Image id -> row of the labels, of the data set and of the target.
        classes: K, as positions in ``space``.
        target_classes: K_T, as positions in ``target_space``.
        votes: As in ``Scored``.
    """

    bench: Bench
    dataset: str
    seed: int
    space: LabelSpace
    target_space: LabelSpace
    labels: Mapping[str, NDArray[Any]]
    positions: Mapping[str, dict[str, int]]
    classes: Sequence[int]
    target_classes: Sequence[int]
    votes: int | None = None

    @classmethod
    def open(cls, bench: Bench, dataset: str, seed: int) -> "RunScorer":
        """Read labels, K and K_T."""
        spec = bench.suite.datasets[dataset]
        space = target_space = fitted_labels(spec)
        index = usable_rows(read_index(bench, dataset))
        at = {name: position for position, name in enumerate(spec.classes)}
        scored = read_classes(bench, dataset, seed).filter("eligible")["class"].to_list()
        labels = {dataset: evaluation_labels(index, space)}
        positions = {dataset: _positions(index)}
        target_classes: list[int] = []
        target = bench.suite.target_of(dataset)
        if target:
            target_spec = bench.suite.targets[target]
            target_space = transfer_labels(spec, target_spec)
            renamed, known = target_in_source_names(usable_rows(read_index(bench, target)), spec, target_spec)
            fitted = [*scored, *read_derived(bench, dataset, seed).filter("eligible")["class"]]
            eligible = eligible_target_classes(renamed, known, fitted, bench.suite.protocol)
            at_target = {name: position for position, name in enumerate(target_space.classes)}
            target_classes = [at_target[name] for name in eligible.filter("eligible")["class"]]
            labels[TARGET] = evaluation.align_target_labels(evaluation_labels(renamed, known), known, target_space)
            labels[TRANSFER] = source_transfer_labels(index, spec, target_space)
            positions[TARGET] = _positions(renamed)
        classes = [at[name] for name in scored]
        return cls(bench, dataset, seed, space, target_space, labels, positions, classes, target_classes)

    def score(self, predictions: pl.DataFrame, fits: pl.DataFrame) -> RunTables:
        """Score every (fraction, condition) that was predicted on the test set or the target."""
        protocol = self.bench.suite.protocol
        sizes = {
            row["fraction"]: row for row in read_fractions(self.bench, self.dataset, self.seed).iter_rows(named=True)
        }
        fitted = {(fit["fraction"], fit["problem"]): fit for fit in fits.iter_rows(named=True)}
        runs: list[dict[str, Any]] = []
        classes: list[dict[str, Any]] = []
        bins: list[pl.DataFrame] = []
        scored = predictions.filter(pl.col("role").is_in([TEST, TARGET]))
        for (fraction, condition), frame in scored.group_by("fraction", "condition", maintain_order=True):
            run = self.read(frame["image_id"], frame["logits"].to_numpy(), str(condition))
            space = self.space_of(str(condition))
            key = {"dataset": self.dataset, "seed": self.seed, "fraction": float(fraction), "condition": str(condition)}
            row = evaluation.score(run, space.task, protocol, self.dataset, self.seed, f"{fraction:g}", str(condition))
            source = self._source_auroc(scored, float(fraction)) if condition == TRANSFER else float("nan")
            behind = [fitted[fraction, problem] for problem in self.problems(str(condition))]
            runs.append(
                {
                    **key,
                    "n_fit": sizes[fraction]["n_fit"],
                    "n_val": sizes[fraction]["n_val"],
                    "n_eval": frame.height,
                    "floor": sizes[fraction]["floor"],
                    "converged": all(fit["converged"] for fit in behind),
                    "lambda_at_edge": any(fit["at_edge"] for fit in behind),
                    "classes_scored": len(run.classes),
                    "auroc_source": source,
                    **row,
                }
            )
            classes.extend({**key, **entry} for entry in evaluation.class_rows(run, space))
            if fraction == 1.0:
                bins.append(
                    evaluation.reliability(run, space.task, n_bins=protocol.metrics.ece_bins).with_columns(
                        condition=pl.lit(str(condition))
                    )
                )
        return RunTables(pl.DataFrame(runs), pl.DataFrame(classes), pl.concat(bins))

    def space_of(self, condition: str) -> LabelSpace:
        """What is scored under a condition."""
        return self.target_space if condition == TRANSFER else self.space

    def problems(self, condition: str) -> list[int]:
        """Fit problems behind the scored classes: one per label, or the one softmax problem."""
        if self.space.task != "multilabel":
            return [0]
        return sorted({*self.classes, *(self.target_classes if condition == TRANSFER else ())})

    def read(self, image_ids: Iterable[str], logits: NDArray[np.float32], condition: str) -> Scored:
        """Predictions of test images under a condition, or of the target's images, beside their labels."""
        if condition == TRANSFER:
            return self._transferred(image_ids, logits, of=TARGET, labels=TARGET)
        rows = [self.positions[self.dataset][image_id] for image_id in image_ids]
        return Scored(self.labels[self.dataset][rows], logits, self.classes, self.votes)

    def read_source(self, image_ids: Iterable[str], logits: NDArray[np.float32]) -> Scored:
        """Clean predictions of test images on the classes that the target shares: the other side of the drop."""
        return self._transferred(image_ids, logits, of=self.dataset, labels=TRANSFER)

    def _transferred(self, image_ids: Iterable[str], logits: NDArray[np.float32], *, of: str, labels: str) -> Scored:
        """Predictions read as the target names its labels, whether of the target's images or of the source's own."""
        rows = [self.positions[of][image_id] for image_id in image_ids]
        read = transfer_logits(logits, self.bench.suite.datasets[self.dataset], self.target_space)
        return Scored(self.labels[labels][rows], read, self.target_classes, self.votes)

    def _source_auroc(self, scored: pl.DataFrame, fraction: float) -> float:
        clean = scored.filter((pl.col("fraction") == fraction) & (pl.col("condition") == CLEAN))
        run = self.read_source(clean["image_id"], clean["logits"].to_numpy())
        return evaluation.macro(run, self.target_space.task)


def _positions(index: pl.DataFrame) -> dict[str, int]:
    return {name: position for position, name in enumerate(index["image_id"])}
