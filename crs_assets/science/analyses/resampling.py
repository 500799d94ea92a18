"""Metrics of predictions as functions of the weights of test groups: resampled patients cost sums and no new sort."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crs_assets.science import metrics
from crs_assets.science.evaluation import Scored, class_scores, probabilities
from crs_assets.science.protocol import Protocol
from crs_assets.science.seeding import generator
from crs_assets.science.statistics import WeightedAuroc, group_bootstrap_counts, percentile_interval
from crs_assets.science.statistics.weighted_calibration import WeightedCalibrationError
from crs_assets.science.validation import BoolArray, FloatArray, IntArray, LabelColumns

Weights = NDArray[np.generic]


class Confusion(NamedTuple):
    """Weighted counts at thresholds (T) under weightings (R).

    Attributes:
        true_positives: float64 (T, R).
        false_positives: float64 (T, R).
        positives: float64 (R,).
        negatives: float64 (R,).
    """

    true_positives: FloatArray
    false_positives: FloatArray
    positives: FloatArray
    negatives: FloatArray

    @classmethod
    def join(cls, parts: Sequence["Confusion"]) -> "Confusion":
        """The weightings of several, one behind the other."""
        return cls(*(np.concatenate(arrays, axis=-1) for arrays in zip(*parts, strict=True)))

    @property
    def sensitivity(self) -> FloatArray:
        """True positives over positives, (T, R), in [0, 1], higher is better; NaN where there is no positive."""
        return _share(self.true_positives, self.positives)

    @property
    def specificity(self) -> FloatArray:
        """True negatives over negatives, (T, R), in [0, 1], higher is better; NaN where there is no negative."""
        return _share(self.negatives - self.false_positives, self.negatives)


class WeightedConfusion:
    """Confusion counts of one binary column at several thresholds, as functions of group weights.

    A row is called positive where its score is at or above the threshold.

    Args:
        positive: Whether a row is a definite positive, bool (n,).
        negative: Whether it is a definite negative; other rows do not count.
        score: float64 (n,), higher = more likely positive.
        thresholds: Thresholds (T,), in any order.
        groups: Position of each row's group among the weights, int64 (n,).
        n_groups: Number of weights.
    """

    def __init__(
        self,
        positive: BoolArray,
        negative: BoolArray,
        score: FloatArray,
        thresholds: Sequence[float],
        *,
        groups: IntArray,
        n_groups: int,
    ) -> None:
        self._positives = _rows_called(score[positive], groups[positive], thresholds, n_groups)
        self._negatives = _rows_called(score[negative], groups[negative], thresholds, n_groups)

    def evaluate(self, weights: Weights) -> Confusion:
        """Counts under each weighting; exact for whole numbers.

        Args:
            weights: Non-negative weights, shape (groups, replicates).
        """
        drawn = weights.astype(np.float64)
        positives, negatives = self._positives @ drawn, self._negatives @ drawn
        return Confusion(positives[:-1], negatives[:-1], positives[-1], negatives[-1])


def _rows_called(score: FloatArray, groups: IntArray, thresholds: Sequence[float], n_groups: int) -> FloatArray:
    """Rows of each group at or above each threshold and, last, in all: float64 (T + 1, groups)."""
    called = [score >= threshold for threshold in (*thresholds, -np.inf)]
    return np.array([np.bincount(groups[rows], minlength=n_groups) for rows in called], dtype=np.float64)


class ClassMetrics:
    """AUROC of classes and the calibration error of some images, as functions of group weights.

    Args:
        run: Predictions of these images.
        task: ``multiclass``, ``ordinal`` or ``multilabel``.
        n_bins: Bins of the calibration error: top label for a softmax; for a multilabel set the mean over the scored
            labels that have an observed cell. None leaves it out.
        classes: Classes whose AUROC is wanted.
        groups: Position of each image's group among the weights, int64 (n,).
        n_groups: Number of weights.
    """

    def __init__(
        self,
        run: Scored,
        task: str,
        n_bins: int | None,
        *,
        classes: Collection[int],
        groups: IntArray,
        n_groups: int,
    ) -> None:
        whose: dict[str, Any] = {"groups": groups, "n_groups": n_groups}
        columns = binary_columns(run.labels, class_scores(run.logits, task))
        self._aurocs = [
            WeightedAuroc(columns.positive[:, k], score, columns.observed[:, k], **whose)
            if k in classes and np.isfinite(score).all()
            else None
            for k, score in enumerate(columns.score.T)
        ]
        self._errors: list[WeightedCalibrationError] = []
        if n_bins is not None:
            pairs = _calibration_pairs(run, task)
            self._errors = [WeightedCalibrationError(*pair, n_bins, **whose) for pair in pairs]

    def evaluate(self, weights: Weights) -> tuple[FloatArray, FloatArray]:
        """AUROC of each class, float64 (C, replicates), and the calibration error, float64 (replicates,).

        NaN where a class was not fitted or a replicate lacks a sign of it, where nothing is observed, and for what was
        left out.

        Args:
            weights: Non-negative weights, shape (groups, replicates).
        """
        unknown = np.full(weights.shape[1], np.nan)
        aurocs = [unknown if auroc is None else auroc.evaluate(weights) for auroc in self._aurocs]
        errors = [error.evaluate(weights) for error in self._errors]
        return np.stack(aurocs), mean_of_known(np.stack(errors)) if errors else unknown


def group_positions(group_ids: NDArray[np.str_]) -> tuple[NDArray[np.str_], IntArray]:
    """The distinct groups, sorted, and the position of each row's group among them, int64 (n,)."""
    distinct, position = np.unique(group_ids, return_inverse=True)
    return distinct, position.reshape(-1).astype(np.int64)


def case_resamples(
    group_ids: NDArray[np.str_], replicates: int, protocol: Protocol, dataset: str
) -> Iterator[NDArray[np.int32]]:
    """The resamples of a data set's test groups: the same for every encoder, seed and analysis.

    Args:
        group_ids: Group of each test image, str (n,).
        replicates: Number of resamples; fewer are the first of more.
        protocol: Its salt seeds the draws.
        dataset: Names them.

    Yields:
        How often each distinct group was drawn, int32 (groups, some replicates), until all have been yielded.
    """
    rng = generator(protocol.salt, "case_bootstrap", dataset)
    return group_bootstrap_counts(np.unique(group_ids), replicates, rng)


def binary_columns(labels: NDArray[Any], scores: FloatArray) -> LabelColumns:
    """One binary column per class: one-vs-rest for class indices, the labels themselves for a multilabel set.

    Args:
        labels: (n,) int class indices, or (n, L) float of 0, 1 and NaN where not observed.
        scores: (n, C) float64; NaN in the columns of labels that were not fitted.
    """
    positive, negative = signs(labels, scores.shape[1])
    return LabelColumns(positive, scores, positive | negative)


def signs(labels: NDArray[Any], n_classes: int) -> tuple[BoolArray, BoolArray]:
    """Which images are a definite positive, and which a definite negative, of each class; two bool (n, C).

    Args:
        labels: (n,) int class indices, or (n, C) float of 0, 1 and NaN where not observed.
        n_classes: C.
    """
    if labels.ndim == 1:
        positive = labels[:, None] == np.arange(n_classes)
        return positive, ~positive
    return labels == 1, labels == 0


def mean_of_known(values: FloatArray) -> FloatArray:
    """Mean over the first axis of the values that are not NaN; NaN where none is known."""
    known = ~np.isnan(values)
    counts = known.sum(axis=0)
    sums = np.where(known, values, 0.0).sum(axis=0)
    means: FloatArray = np.divide(sums, counts, out=np.full(counts.shape, np.nan), where=counts > 0)
    return means


def interval_of(draws: ArrayLike, *, level: float) -> tuple[float, float]:
    """Percentile interval of the replicates that could be estimated; NaN, NaN where none could."""
    values = np.asarray(draws, dtype=np.float64)
    known = values[~np.isnan(values)]
    if not len(known):
        return float("nan"), float("nan")
    lower, upper = percentile_interval(known, level=level)
    return float(lower), float(upper)


def _calibration_pairs(run: Scored, task: str) -> list[tuple[NDArray[Any], FloatArray]]:
    """(outcome, probability): one for the top label of a softmax, or one for each scored label; none if not fitted."""
    fitted = np.asarray(np.isfinite(run.logits).all(axis=0))
    proba = probabilities(run.logits, task)
    if task == "multilabel":
        return [(run.labels[:, k], proba[:, k]) for k in run.classes if fitted[k]]
    if not fitted.all():
        return []
    stated, correct = metrics.top_label(run.labels, proba)
    return [(correct, stated)]


def _share(part: FloatArray, whole: FloatArray) -> FloatArray:
    share: FloatArray = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    return share
