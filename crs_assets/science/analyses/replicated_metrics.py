"""What the axes of one cell and seed are made of, under many weightings of its test groups at once.

Every run is sorted and binned once, when it comes in; a weighting then costs sums (``statistics.WeightedAuroc``,
``statistics.weighted_calibration``). A seed's runs take about 16 bytes per row, run and scored label.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crs_assets.science import metrics
from crs_assets.science.analyses.resampling import binary_columns, mean_of_known
from crs_assets.science.evaluation import Scored, class_scores, probabilities
from crs_assets.science.labels import TaskType
from crs_assets.science.statistics import WeightedAuroc
from crs_assets.science.statistics.weighted_calibration import WeightedCalibrationError
from crs_assets.science.validation import BoolArray, FloatArray, IntArray

Weights = NDArray[np.float32] | NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ResampledRun:
    """Predictions of one run, and whose they are.

    Attributes:
        scored: Labels, logits and scored classes.
        task: Kind of problem that the labels are read as.
        groups: Position of each row's test group among the weights, int64 (n,).
    """

    scored: Scored
    task: TaskType
    groups: IntArray


@dataclass(frozen=True, eq=False)
class SeedRuns:
    """The runs of one cell and seed that axes are made of.

    Attributes:
        curve: Clean runs, label fractions ascending, all labels last.
        degraded: Runs at all labels under each degradation.
        source: The clean run at all labels on the classes that the target shares; None without a target.
        target: The run on the target's images; None without a target.
    """

    curve: tuple[ResampledRun, ...]
    degraded: tuple[ResampledRun, ...]
    source: ResampledRun | None = None
    target: ResampledRun | None = None


@dataclass(frozen=True, eq=False)
class SeedMetrics:
    """What the axes of one cell and seed are made of, under R weightings; NaN where not estimable.

    Attributes:
        curve: Macro-AUROC of the clean runs, float64 (R, fractions).
        degraded: Macro-AUROC under each degradation, float64 (R, degradations).
        ece: Expected calibration error at all labels, clean, float64 (R,).
        transfer: Macro-AUROC of source and target on the classes they share, float64 (R, 2); (R, 0) without a target.
    """

    curve: FloatArray
    degraded: FloatArray
    ece: FloatArray
    transfer: FloatArray


class SeedReplicates:
    """The runs of one cell and seed, sorted, ready to be evaluated under weights of the test groups.

    Args:
        runs: The runs.
        n_bins: Bins of the calibration error.
        n_groups: Number of groups among the data set's test images and, where there is one, among the target's.
    """

    def __init__(self, runs: SeedRuns, n_bins: int, n_groups: Sequence[int]) -> None:
        own = [*runs.curve, *runs.degraded, *([runs.source] if runs.source else [])]
        of_target = [runs.target] if runs.target else []
        self._n_fractions, self._n_degradations = len(runs.curve), len(runs.degraded)
        self._aurocs = [(0, _aurocs(run, n_groups[0])) for run in own]
        self._aurocs += [(1, _aurocs(run, n_groups[1])) for run in of_target]
        self._errors = _calibration_errors(runs.curve[-1], n_bins, n_groups[0])

    def evaluate(self, weights: Sequence[Weights], pool: ThreadPoolExecutor | None = None) -> SeedMetrics:
        """Metrics under each weighting; the same whether or not a pool of threads shares the work.

        Args:
            weights: Weights of the data set's groups and, where there is one, of the target's: (groups, R) each.
            pool: Threads to share the work.
        """
        jobs = [(auroc, weights[side]) for side, per_label in self._aurocs for auroc in per_label]
        drawn = iter((pool.map if pool else map)(_evaluate, jobs))
        unknown = np.full(weights[0].shape[1], np.nan)
        macro = [_macro([next(drawn) for _ in per_label], unknown) for _, per_label in self._aurocs]
        first, second = self._n_fractions, self._n_fractions + self._n_degradations
        aurocs = np.stack(macro, axis=1)
        return SeedMetrics(
            curve=aurocs[:, :first],
            degraded=aurocs[:, first:second],
            ece=_macro([error.evaluate(weights[0]) for error in self._errors], unknown),
            transfer=aurocs[:, second:],
        )


def lacking_labels(
    labels: NDArray[np.generic], classes: Sequence[int], groups: IntArray, weights: Weights
) -> BoolArray:
    """Which scored classes have no positive or no negative in a resample: they are left out of its macro means.

    Args:
        labels: Evaluation labels (n,) or (n, L).
        classes: The scored classes.
        groups: Position of each row's group among the weights, int64 (n,).
        weights: (groups, R).

    Returns:
        bool (classes, R).
    """
    columns = binary_columns(labels, np.zeros((len(labels), max(classes, default=0) + 1)))
    lacking = np.zeros((len(classes), weights.shape[1]), dtype=np.bool_)
    for at, label in enumerate(classes):
        positive, observed = columns.positive[:, label], columns.observed[:, label]
        for rows in (positive & observed, ~positive & observed):
            lacking[at] |= ~(weights[np.unique(groups[rows])] > 0).any(axis=0)
    return lacking


def _evaluate(job: tuple[WeightedAuroc, Weights]) -> FloatArray:
    auroc, weights = job
    return auroc.evaluate(weights)


def _macro(per_label: Sequence[FloatArray], unknown: FloatArray) -> FloatArray:
    return mean_of_known(np.stack(per_label)) if per_label else unknown


def _aurocs(run: ResampledRun, n_groups: int) -> list[WeightedAuroc]:
    """One for each scored class that the probe was fitted for; of a softmax all or none."""
    fitted = _fitted(run)
    if not fitted:
        return []
    columns = binary_columns(run.scored.labels, class_scores(run.scored.logits, run.task))
    return [
        WeightedAuroc(
            columns.positive[:, k], columns.score[:, k], columns.observed[:, k], groups=run.groups, n_groups=n_groups
        )
        for k in fitted
    ]


def _calibration_errors(run: ResampledRun, n_bins: int, n_groups: int) -> list[WeightedCalibrationError]:
    """One for each scored label of a multilabel set, or one for the top label of a softmax."""
    fitted = _fitted(run)
    if not fitted:
        return []
    labels, proba = run.scored.labels, probabilities(run.scored.logits, run.task)
    if run.task == "multilabel":
        pairs = [(labels[:, k], proba[:, k]) for k in fitted]
    else:
        stated, correct = metrics.top_label(labels, proba)
        pairs = [(correct, stated)]
    return [WeightedCalibrationError(*pair, n_bins, groups=run.groups, n_groups=n_groups) for pair in pairs]


def _fitted(run: ResampledRun) -> list[int]:
    finite: BoolArray = np.asarray(np.isfinite(run.scored.logits).all(axis=0))
    return [k for k in run.scored.classes if (finite[k] if run.task == "multilabel" else finite.all())]
