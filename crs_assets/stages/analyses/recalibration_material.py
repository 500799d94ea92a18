"""What recalibration of one cell and seed is made of: cases to fit on, and predictions of other images to judge by."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.recalibration import Judged
from crs_assets.science.analyses.recalibration_cases import Cases, fit_half, rows_sha256
from crs_assets.science.evaluation import Logits
from crs_assets.science.protocol import CLEAN, TRANSFER
from crs_assets.science.splits import CALIBRATION, TEST
from crs_assets.science.suite import parse_task
from crs_assets.science.transfer import transfer_logits
from crs_assets.stages.data import read_index, read_splits
from crs_assets.stages.probes import PREDICTIONS_FILE, ProbePredictions
from crs_assets.stages.run_scorer import TARGET, RunScorer
from crs_assets.stages.stage import RefusedError


@dataclass(frozen=True, eq=False)
class TargetMaterial:
    """A target in two halves of disjoint groups, the same for every encoder, seed and number of cases.

    Attributes:
        name: The target.
        cases: The half that maps may be fitted on, logits as the target's labels are read.
        evaluated: The other half, for maps of the source's probe.
        evaluated_as_read: The same as the target's labels are read, for maps that were fitted on them.
    """

    name: str
    cases: Cases
    evaluated: Judged
    evaluated_as_read: Judged


@dataclass(frozen=True, eq=False)
class Material:
    """Cases and judged predictions of one task.

    Attributes:
        scorer: Scored classes and kinds of problem.
        calibration: The calibration split.
        tests: The test set, clean and under every degradation.
        target: None where the data set has no target.
    """

    scorer: RunScorer
    calibration: Cases
    tests: tuple[Judged, ...]
    target: TargetMaterial | None

    @classmethod
    def open(cls, bench: Bench, encoder: str, task: str) -> "Material":
        """Read what is stored of a task: predictions of the probe fitted on all labels.

        Raises:
            RefusedError: If the cases are not exactly the images of the calibration split.
        """
        dataset, seed = parse_task(task)
        reader = _Reader(bench, encoder, task, RunScorer.open(bench, dataset, seed))
        conditions = [condition.name for condition in bench.suite.protocol.conditions(transfer=False)]
        tests = tuple(reader.tested(condition) for condition in conditions)
        return cls(reader.scorer, reader.calibration(), tests, reader.target())


class _Reader:
    """Predictions of one task with the labels and groups of their images."""

    def __init__(self, bench: Bench, encoder: str, task: str, scorer: RunScorer) -> None:
        path = bench.store.open(bench.key(ProbePredictions.name, encoder, task)).file(PREDICTIONS_FILE)
        self.scorer = scorer
        self._bench = bench
        self._task = task
        self._spec = bench.suite.datasets[scorer.dataset]
        self._bins = bench.suite.protocol.metrics.ece_bins
        self._predictions = pl.scan_parquet(path).filter(pl.col("fraction") == 1.0).collect()

    def calibration(self) -> Cases:
        dataset = self.scorer.dataset
        ids, logits = self._part(CALIBRATION, CLEAN)
        splits = read_splits(self._bench, dataset, self.scorer.seed)
        if rows_sha256(ids) != rows_sha256(splits.filter(pl.col("role") == CALIBRATION)["image_id"]):
            raise RefusedError(
                f"{self._task}: the images that the probe calls calibration are not those of the splits; materialize "
                "probe_predictions again."
            )
        return Cases.of(ids, self._groups(dataset, ids), self._labels(dataset, ids), logits)

    def tested(self, condition: str) -> Judged:
        ids, logits = self._part(TEST, condition)
        labels = self._labels(self.scorer.dataset, ids)
        return Judged(condition, labels, logits, self.scorer.classes, self._spec.task, self._bins)

    def target(self) -> TargetMaterial | None:
        name = self._bench.suite.target_of(self.scorer.dataset)
        if name is None:
            return None
        view, classes = self.scorer.target_space, self.scorer.target_classes
        ids, logits = self._part(TARGET, TRANSFER)
        labels, groups = self._labels(TARGET, ids), self._groups(name, ids)
        to_fit = fit_half(groups, self._bench.suite.protocol.salt, "recalibration_half", name)
        read = partial(transfer_logits, source=self._spec, view=view)
        is_read = view.task == "multilabel" and self._spec.task != "multilabel"
        mine = np.flatnonzero(to_fit)
        cases = Cases.of([ids[i] for i in mine], [groups[i] for i in mine], labels[mine], read(logits[mine]))
        other, rest = labels[~to_fit], logits[~to_fit]
        as_read = Judged(TRANSFER, other, read(rest), classes, view.task, self._bins)
        if not is_read:
            return TargetMaterial(name, cases, as_read, as_read)
        evaluated = Judged(TRANSFER, other, rest, classes, self._spec.task, self._bins, read)
        return TargetMaterial(name, cases, evaluated, as_read)

    def _part(self, role: str, condition: str) -> tuple[list[str], Logits]:
        frame = self._predictions.filter((pl.col("role") == role) & (pl.col("condition") == condition))
        return frame["image_id"].to_list(), frame["logits"].to_numpy()

    def _labels(self, image_set: str, ids: Sequence[str]) -> NDArray[np.generic]:
        at = self.scorer.positions[image_set]
        labels: NDArray[np.generic] = self.scorer.labels[image_set][[at[image_id] for image_id in ids]]
        return labels

    def _groups(self, image_set: str, ids: Sequence[str]) -> list[str]:
        at = dict(read_index(self._bench, image_set).select("image_id", "group_id").iter_rows())
        return [at[image_id] for image_id in ids]
