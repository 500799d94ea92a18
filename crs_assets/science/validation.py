"""One vocabulary of refusals for everything that takes labels, scores, probabilities or logits.

Every message says what was seen, what was expected and the cure. A value in a cell that is not observed is never
looked at: neither checked nor used.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ROW_SUM_TOLERANCE = 1e-5
"""Largest deviation of a row of probabilities from 1: float32 softmax passes, float16 does not."""


class LabelColumns(NamedTuple):
    """Binary columns, one for each class or label.

    Attributes:
        positive: Whether the cell is positive, shape (n, L); False where not observed.
        score: Score of the cell, float64, shape (n, L); 0 where not observed.
        observed: Whether the cell has a label, shape (n, L).
    """

    positive: BoolArray
    score: FloatArray
    observed: BoolArray

    def column(self, index: int) -> tuple[BoolArray, FloatArray]:
        """The observed (positive, score) pairs of one column, each of shape (n_observed,)."""
        rows = self.observed[:, index]
        return self.positive[rows, index], self.score[rows, index]


def refuse(problems: Sequence[str]) -> None:
    """Raise one error that lists every problem, or return if there is none.

    Raises:
        ValueError: If ``problems`` is not empty.
    """
    if problems:
        raise ValueError("; ".join(problems) + ".")


def numeric_array(values: ArrayLike, *, name: str, ndim: tuple[int, ...], kinds: str = "fiub") -> NDArray[Any]:
    """An array of an expected dtype kind and number of dimensions, with at least one row.

    Args:
        values: Anything numpy can read as an array.
        name: The argument's name in messages.
        ndim: Numbers of dimensions that are accepted.
        kinds: Accepted numpy dtype kinds (f float, i and u integer, b bool).

    Raises:
        ValueError: If the dtype, the number of dimensions or the length is not as expected.
    """
    array = np.asarray(values)
    problems = []
    if array.dtype.kind not in kinds:
        wanted = "integer class indices" if "f" not in kinds else "numbers"
        problems.append(f"{name} has dtype {array.dtype}, expected {wanted}; cast it with .astype(...) before the call")
    if array.ndim not in ndim:
        expected = " or ".join(f"{count}-D" for count in ndim)
        problems.append(f"{name} has shape {array.shape}, expected a {expected} array")
    if array.size == 0:
        problems.append(
            f"{name} is empty (shape {array.shape}), expected at least one value; check the split or filter"
        )
    refuse(problems)
    return array


def finite_array(values: ArrayLike, *, name: str, ndim: tuple[int, ...]) -> FloatArray:
    """A float64 array without NaN or infinity.

    Args:
        values: Numbers.
        name: The argument's name in messages.
        ndim: Numbers of dimensions that are accepted.

    Raises:
        ValueError: If dtype, dimensions or length are wrong, or a value is not finite.
    """
    array = numeric_array(values, name=name, ndim=ndim).astype(np.float64)
    refuse(_finite_problems(array, name))
    return array


def class_indices(y_true: ArrayLike, *, n_classes: int, n_rows: int) -> IntArray:
    """Class indices 0 .. n_classes - 1, shape (n,).

    Raises:
        ValueError: If they are not integers, not 1-D, not ``n_rows`` many, or out of range.
    """
    labels = numeric_array(y_true, name="y_true", ndim=(1,), kinds="iub").astype(np.int64)
    problems = []
    if labels.shape[0] != n_rows:
        problems.append(
            f"y_true has {labels.shape[0]} rows and the scores have {n_rows}; pass the same rows in one order"
        )
    if labels.min() < 0 or labels.max() >= n_classes:
        problems.append(
            f"y_true spans {labels.min()}..{labels.max()}, expected class indices 0..{n_classes - 1} "
            f"for {n_classes} score columns; drop unlabelled rows and map labels to column positions"
        )
    refuse(problems)
    return labels


def multiclass_scores(y_true: ArrayLike, y_score: ArrayLike, *, name: str = "y_score") -> tuple[IntArray, FloatArray]:
    """Class indices (n,) with finite scores (n, K), K >= 2.

    Raises:
        ValueError: On any other shape, dtype or range.
    """
    scores = finite_array(y_score, name=name, ndim=(2,))
    if scores.shape[1] < 2:
        raise ValueError(
            f"{name} has one column, expected one for each of at least 2 classes; pass binary scores as 1-D."
        )
    return class_indices(y_true, n_classes=scores.shape[1], n_rows=scores.shape[0]), scores


def multiclass_probabilities(y_true: ArrayLike, y_proba: ArrayLike) -> tuple[IntArray, FloatArray]:
    """Class indices (n,) with probabilities (n, K) whose rows sum to 1.

    Raises:
        ValueError: As ``multiclass_scores``, or if values leave [0, 1] or rows do not sum to 1.
    """
    probabilities = probability_rows(y_proba)
    return class_indices(y_true, n_classes=probabilities.shape[1], n_rows=len(probabilities)), probabilities


def probability_rows(y_proba: ArrayLike) -> FloatArray:
    """Probabilities (n, K), K >= 2, in [0, 1], rows summing to 1.

    Raises:
        ValueError: If they are not; 1-D input is told of the binary functions.
    """
    if np.ndim(y_proba) == 1:
        raise ValueError(
            f"y_proba has shape {np.shape(y_proba)}, expected (n, K) with one column per class; "
            "for positive-class probabilities call the binary_ or multilabel_ function."
        )
    array = finite_array(y_proba, name="y_proba", ndim=(2,))
    problems = _range_problems(array)
    if array.shape[1] < 2:
        problems.append("y_proba has one column, expected one for each of at least 2 classes")
    worst = float(np.abs(array.sum(axis=1) - 1).max())
    if worst > ROW_SUM_TOLERANCE:
        problems.append(
            f"rows of y_proba must sum to 1 (worst deviation {worst:.2g}, allowed {ROW_SUM_TOLERANCE:g}); "
            "pass probabilities, not logits; independent labels belong to the multilabel_ function"
        )
    refuse(problems)
    return array


def label_columns(
    y_true: ArrayLike, y_score: ArrayLike, observed: ArrayLike | None = None, *, name: str = "y_score"
) -> LabelColumns:
    """Binary or multilabel input as columns; the class of a single label is 0 or 1, NaN means not observed.

    Args:
        y_true: 0/1 labels, shape (n,) or (n, L); integer, bool, or float with NaN allowed.
        y_score: Scores of the positive class, same shape as ``y_true``.
        observed: Optional bool mask of the same shape; combined with the NaN of ``y_true``.
        name: The scores' name in messages.

    Raises:
        ValueError: If shapes disagree, an observed label is not 0 or 1, or an observed score is not finite.
    """
    labels = numeric_array(y_true, name="y_true", ndim=(1, 2))
    scores = numeric_array(y_score, name=name, ndim=(1, 2)).astype(np.float64)
    if labels.shape != scores.shape:
        raise ValueError(
            f"y_true has shape {labels.shape} and {name} {scores.shape}; expected equal shapes (n,) or (n, L), "
            "or class indices (n,) with one score column per class."
        )
    mask = _observed_mask(labels, observed)
    seen = labels[mask]
    problems = _finite_problems(scores[mask], f"{name} at observed cells")
    if not np.isin(seen, (0, 1)).all():
        odd = sorted({float(value) for value in np.unique(seen) if value not in (0, 1)})[:5]
        problems.append(f"y_true holds {odd}, expected 0 or 1; mask uncertain or blank cells with NaN or `observed`")
    refuse(problems)
    positive, scores = (labels == 1) & mask, np.where(mask, scores, 0.0)
    shape = (len(labels), -1)
    return LabelColumns(positive.reshape(shape), scores.reshape(shape), mask.reshape(shape))


def label_probabilities(y_true: ArrayLike, y_proba: ArrayLike, observed: ArrayLike | None = None) -> LabelColumns:
    """``label_columns`` whose observed scores are probabilities in [0, 1].

    Raises:
        ValueError: As ``label_columns``, or if an observed probability leaves [0, 1].
    """
    columns = label_columns(y_true, y_proba, observed, name="y_proba")
    refuse(_range_problems(columns.score))
    return columns


def one_vs_rest(y_true: ArrayLike, y_score: ArrayLike, observed: ArrayLike | None = None) -> LabelColumns:
    """Multiclass (y_true (n,), y_score (n, K)), binary or multilabel input as one column per class or label.

    Raises:
        ValueError: On inconsistent input, or on a mask with multiclass input.
    """
    if np.ndim(y_true) != 1 or np.ndim(y_score) != 2:
        return label_columns(y_true, y_score, observed)
    if observed is not None:
        raise ValueError(
            "`observed` masks cells of binary and multilabel input; drop unlabelled rows of multiclass input."
        )
    labels, scores = multiclass_scores(y_true, y_score)
    positive = labels[:, None] == np.arange(scores.shape[1])
    return LabelColumns(positive, scores, np.ones(scores.shape, dtype=np.bool_))


def class_subset(classes: Sequence[int] | None, n_columns: int) -> IntArray:
    """Column positions to average over: all of them, or the given distinct ones.

    Raises:
        ValueError: If the selection is empty, repeats a column or names one that does not exist.
    """
    if classes is None:
        return np.arange(n_columns, dtype=np.int64)
    chosen = numeric_array(classes, name="classes", ndim=(1,), kinds="iu").astype(np.int64)
    if len(np.unique(chosen)) != len(chosen) or chosen.min() < 0 or chosen.max() >= n_columns:
        raise ValueError(f"classes is {chosen.tolist()}, expected distinct column positions within 0..{n_columns - 1}.")
    return chosen


def positive_int(value: int, *, name: str) -> int:
    """A count of at least 1.

    Raises:
        ValueError: If it is not.
    """
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ValueError(f"{name} is {value!r}, expected an integer of at least 1.")
    return int(value)


def open_unit(value: float, *, name: str) -> float:
    """A level strictly between 0 and 1.

    Raises:
        ValueError: If it is not.
    """
    if not 0 < value < 1:
        raise ValueError(f"{name} is {value!r}, expected a value strictly between 0 and 1, for example 0.95.")
    return float(value)


def _observed_mask(labels: NDArray[Any], observed: ArrayLike | None) -> BoolArray:
    known = ~np.isnan(labels) if labels.dtype.kind == "f" else np.ones(labels.shape, dtype=np.bool_)
    if observed is None:
        return known
    mask = np.asarray(observed)
    if mask.dtype != np.bool_ or mask.shape != labels.shape:
        raise ValueError(
            f"observed is {mask.dtype} of shape {mask.shape}, expected bool of shape {labels.shape} as y_true."
        )
    combined: BoolArray = known & mask
    return combined


def _finite_problems(array: FloatArray, name: str) -> list[str]:
    bad = int(array.size - np.isfinite(array).sum())
    return [f"{name}: {bad} of {array.size} values are NaN or infinite; a failed run has no metric, drop it"] * bool(
        bad
    )


def _range_problems(probabilities: FloatArray) -> list[str]:
    low, high = float(probabilities.min()), float(probabilities.max())
    if low >= 0 and high <= 1:
        return []
    return [f"y_proba spans {low:.6g}..{high:.6g}, expected [0, 1]; pass probabilities, not logits"]
