"""Case bootstrap: test groups (patients, lesions) are resampled, with the same weights for every encoder."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crs_assets.science.statistics.intervals import percentile_interval
from crs_assets.science.statistics.weighted_auroc import WeightedAuroc
from crs_assets.science.validation import (
    FloatArray,
    IntArray,
    LabelColumns,
    class_subset,
    one_vs_rest,
    positive_int,
)

_WEIGHTS_AT_ONCE = 1_000_000
"""Weights held at once: 8 MB as float64, small enough to stay near the cache."""


@dataclass(frozen=True, eq=False)
class MacroAurocBootstrap:
    """Macro-AUROC of several encoders under common resamples of the test groups.

    Attributes:
        values: float64 (encoders, replicates): mean over the labels that the replicate can estimate; NaN if none.
        degenerate: int64 (labels,): replicates in which a label had no positive or no negative and was left out.
    """

    values: FloatArray
    degenerate: IntArray


@dataclass(frozen=True)
class PairedDifference:
    """Macro-AUROC of a minus that of b, with its percentile interval over resampled groups.

    Attributes:
        difference: On the test set as it is.
        lower: Lower end of the interval.
        upper: Upper end of the interval.
        level: Coverage the interval aims at.
        replicates: Resamples the interval rests on.
        undefined: Resamples left out because no label could be estimated.
        degenerate: Per label, resamples in which it had no positive or no negative and was left out.
    """

    difference: float
    lower: float
    upper: float
    level: float
    replicates: int
    undefined: int
    degenerate: tuple[int, ...]

    @property
    def excludes_zero(self) -> bool:
        """Whether the whole interval lies on one side of 0."""
        return self.lower > 0 or self.upper < 0


def group_bootstrap_counts(
    group_ids: ArrayLike, replicates: int, rng: np.random.Generator, *, chunk: int | None = None
) -> Iterator[NDArray[np.int32]]:
    """Draw as many groups as there are, with replacement, and count how often each row was drawn.

    Args:
        group_ids: Group of each row (n,): strings or integers. Draws depend on the sorted distinct ids only, so that
            row order and encoder cannot matter.
        replicates: Number of resamples.
        rng: Source of the draws; the stream does not depend on ``chunk``.
        chunk: Replicates per yielded array; by default as many as bounded memory allows.

    Yields:
        Counts, int32 (n, at most ``chunk``), until ``replicates`` columns have been yielded.

    Raises:
        ValueError: If there is no row, or ``replicates`` is below 1.
    """
    ids = np.asarray(group_ids)
    if ids.ndim != 1 or len(ids) == 0 or ids.dtype.kind not in "iuUS":
        raise ValueError(
            f"group_ids is {ids.dtype} of shape {ids.shape}, expected one string or integer per row; "
            "fill missing groups with the image id."
        )
    positive_int(replicates, name="replicates")
    distinct, group_of_row = np.unique(ids, return_inverse=True)
    width = chunk or max(1, _WEIGHTS_AT_ONCE // len(ids))
    for first in range(0, replicates, width):
        columns = min(width, replicates - first)
        drawn = rng.integers(0, len(distinct), size=(columns, len(distinct)))
        flat = (drawn * columns + np.arange(columns)[:, None]).ravel()
        counts = np.bincount(flat, minlength=len(distinct) * columns).astype(np.int32)
        yield counts.reshape(len(distinct), columns)[group_of_row]


def bootstrap_macro_auroc(
    y_true: ArrayLike,
    y_scores: Sequence[ArrayLike],
    *,
    group_ids: ArrayLike,
    replicates: int,
    rng: np.random.Generator,
    observed: ArrayLike | None = None,
    classes: Sequence[int] | None = None,
) -> MacroAurocBootstrap:
    """Macro-AUROC of several score matrices on the same test rows, under the same resamples of groups.

    Args:
        y_true: Labels as in ``metrics.macro_auroc``.
        y_scores: One score matrix per encoder, all for the rows of ``y_true``.
        group_ids: Group of each row (n,).
        replicates: Number of resamples.
        rng: Source of the draws.
        observed: Bool mask shaped as ``y_true``, for binary and multilabel input only.
        classes: Columns to average over; all by default.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """
    encoders = [one_vs_rest(y_true, scores, observed) for scores in y_scores]
    if not encoders or len({columns.score.shape for columns in encoders}) != 1:
        shapes = [columns.score.shape for columns in encoders]
        raise ValueError(
            f"y_scores has shapes {shapes}, expected at least one matrix, all for the same rows and labels."
        )
    if len(np.asarray(group_ids)) != len(encoders[0].score):
        raise ValueError(f"group_ids has {len(np.asarray(group_ids))} rows, expected {len(encoders[0].score)}.")
    chosen = class_subset(classes, encoders[0].score.shape[1])
    aurocs = [[_of_label(columns, int(label)) for label in chosen] for columns in encoders]
    values, degenerate = [], np.zeros(len(chosen), dtype=np.int64)
    for counts in group_bootstrap_counts(group_ids, replicates, rng):
        drawn = np.array([[auroc.evaluate(counts) for auroc in per_label] for per_label in aurocs])
        values.append(_mean_over_labels(drawn))
        degenerate += np.isnan(drawn[0]).sum(axis=1)
    return MacroAurocBootstrap(np.concatenate(values, axis=1), degenerate)


def paired_auroc_difference_interval(
    y_true: ArrayLike,
    y_score_a: ArrayLike,
    y_score_b: ArrayLike,
    *,
    group_ids: ArrayLike,
    replicates: int,
    rng: np.random.Generator,
    level: float,
    observed: ArrayLike | None = None,
    classes: Sequence[int] | None = None,
) -> PairedDifference:
    """Percentile interval of macro-AUROC(a) - macro-AUROC(b), groups resampled, the same weights for both.

    Args:
        y_true: Labels as in ``metrics.macro_auroc``.
        y_score_a: Scores of the first encoder for the rows of ``y_true``.
        y_score_b: Scores of the second encoder for the same rows.
        group_ids: Group of each row (n,).
        replicates: Number of resamples.
        rng: Source of the draws.
        level: Coverage, for example 0.95.
        observed: Bool mask shaped as ``y_true``, for binary and multilabel input only.
        classes: Columns to average over; all by default.

    Raises:
        ValueError: If shapes, dtypes or values are not as described, or no resample could be estimated.
    """
    resampled = bootstrap_macro_auroc(
        y_true,
        [y_score_a, y_score_b],
        group_ids=group_ids,
        replicates=replicates,
        rng=rng,
        observed=observed,
        classes=classes,
    )
    differences = resampled.values[0] - resampled.values[1]
    estimable = differences[~np.isnan(differences)]
    if not len(estimable):
        raise ValueError("no resample has a label with a positive and a negative; there is nothing to compare.")
    lower, upper = percentile_interval(estimable, level=level)
    return PairedDifference(
        difference=_point_difference(y_true, y_score_a, y_score_b, observed, classes),
        lower=float(lower),
        upper=float(upper),
        level=level,
        replicates=len(estimable),
        undefined=len(differences) - len(estimable),
        degenerate=tuple(int(count) for count in resampled.degenerate),
    )


def _of_label(columns: LabelColumns, label: int) -> WeightedAuroc:
    return WeightedAuroc(columns.positive[:, label], columns.score[:, label], columns.observed[:, label])


def _mean_over_labels(drawn: FloatArray) -> FloatArray:
    """Mean over axis 1 of the values that are not NaN; NaN where all are."""
    known = ~np.isnan(drawn)
    counts = known.sum(axis=1)
    sums = np.where(known, drawn, 0.0).sum(axis=1)
    means: FloatArray = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return means


def _point_difference(
    y_true: ArrayLike,
    y_score_a: ArrayLike,
    y_score_b: ArrayLike,
    observed: ArrayLike | None,
    classes: Sequence[int] | None,
) -> float:
    columns = [one_vs_rest(y_true, scores, observed) for scores in (y_score_a, y_score_b)]
    chosen = class_subset(classes, columns[0].score.shape[1])
    once = np.ones((len(columns[0].score), 1))
    drawn = np.array([[_of_label(each, int(label)).evaluate(once) for label in chosen] for each in columns])
    a, b = _mean_over_labels(drawn)[:, 0]
    return float(a - b)
