"""Choice of the penalty on validation log loss."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from crs_assets.science.probes.path import LinearPath, path_logits
from crs_assets.science.probes.standardisation import row_blocks
from crs_assets.science.validation import FloatArray, IntArray, refuse

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class LambdaChoice:
    """The chosen penalty of each of L problems.

    Attributes:
        index: (L,) int64, position in the penalty grid.
        edge_low: (L,) bool, the smallest penalty of the grid was chosen.
        edge_high: (L,) bool, the largest was chosen.
        borrowed: (L,) bool, the label could not choose for itself and took the others' choice.
    """

    index: IntArray
    edge_low: BoolArray
    edge_high: BoolArray
    borrowed: BoolArray

    @property
    def at_edge(self) -> BoolArray:
        """(L,) bool, whether the choice lies at either end of the grid: used all the same, and flagged."""
        return self.edge_low | self.edge_high


def validation_log_loss(
    path: LinearPath, features: NDArray[np.floating], labels: NDArray[np.generic], rows: IntArray, sample_set: int
) -> FloatArray:
    """Mean log loss of every fit of a sample set on validation rows, in one pass over them.

    Args:
        path: Fitted probes.
        features: (n, d) as stored; may be memory-mapped.
        labels: (n,) class indices, or (n, L) with 1, 0 and NaN = not observed.
        rows: Row indices of the validation subset.
        sample_set: Position of the sample set whose fits are judged.

    Returns:
        (P, L) float64 nats, lower is better. NaN where a label is not observed on any of the rows, or was not fitted.
    """
    loss = _softmax_loss if labels.ndim == 1 else _binary_loss
    total: FloatArray = np.zeros(path.objective.shape[1:])
    observed: FloatArray = np.zeros(path.objective.shape[2])
    for block in row_blocks(np.asarray(rows, dtype=np.int64)):
        block_total, block_observed = loss(path_logits(path, features, block, sample_set), labels[block])
        total += block_total
        observed += block_observed
    return np.divide(total, observed, out=np.full_like(total, np.nan), where=observed > 0)


def select_lambda(
    val_log_loss: ArrayLike, val_counts: ArrayLike | None, lambdas: ArrayLike, *, min_validation: int
) -> LambdaChoice:
    """The penalty of least validation log loss, per problem; of equal ones the largest.

    A label with few validation positives or negatives would choose on noise: it takes the penalty that is best on
    average over the labels that can choose. Where none can, all labels choose one penalty together, on the mean of
    their log losses.

    Args:
        val_log_loss: (P, L) nats; a column of NaN is a label without fit or without observed rows: it borrows.
        val_counts: (L,) smaller of the positives and negatives of each label in validation; None for a softmax
            problem, which always chooses for itself.
        lambdas: (P,) penalties, ascending.
        min_validation: Positives and negatives that a label needs to choose for itself.

    Raises:
        ValueError: If the shapes do not fit together, the penalties do not ascend, or no problem has a log loss.
    """
    losses = np.asarray(val_log_loss, dtype=np.float64)
    penalties = np.asarray(lambdas, dtype=np.float64)
    usable: BoolArray = np.atleast_1d(np.isfinite(losses).all(axis=0))
    refuse(_selection_problems(losses, val_counts, penalties, usable))
    enough: BoolArray = usable if val_counts is None else usable & (np.asarray(val_counts) >= min_validation)
    voters = enough if enough.any() else usable
    common = _last_argmin(losses[:, voters].mean(axis=1, keepdims=True))
    index = np.where(enough, _last_argmin(np.where(usable, losses, 0.0)), common)
    return LambdaChoice(
        index=index.astype(np.int64), edge_low=index == 0, edge_high=index == len(penalties) - 1, borrowed=~enough
    )


def _selection_problems(
    losses: FloatArray, val_counts: ArrayLike | None, penalties: FloatArray, usable: BoolArray
) -> list[str]:
    problems = []
    if losses.ndim != 2 or len(losses) != len(penalties):
        problems.append(f"validation log losses have shape {losses.shape}, expected ({len(penalties)}, problems)")
    elif not usable.any():
        problems.append("no problem has a finite validation log loss; are there validation rows with observed labels?")
    if val_counts is not None and losses.ndim == 2 and np.shape(val_counts) != (losses.shape[1],):
        problems.append(f"validation counts have shape {np.shape(val_counts)}, expected ({losses.shape[1]},)")
    if (np.diff(penalties) <= 0).any():
        problems.append("penalties must ascend: the larger one wins a tie")
    return problems


def _last_argmin(losses: FloatArray) -> IntArray:
    """Position of the minimum of each column, the last of equal ones."""
    index: IntArray = len(losses) - 1 - np.argmin(losses[::-1], axis=0)
    return index


def _softmax_loss(logits: FloatArray, labels: NDArray[np.generic]) -> tuple[FloatArray, FloatArray]:
    """Summed log loss (P, 1) and number of rows (1,)."""
    of_label = np.take_along_axis(logits, labels.astype(np.int64)[:, None, None], axis=2)[:, :, 0]
    total: FloatArray = (logsumexp(logits, axis=2) - of_label).sum(axis=0)
    return total[:, None], np.array([float(len(labels))])


def _binary_loss(logits: FloatArray, labels: NDArray[np.generic]) -> tuple[FloatArray, FloatArray]:
    """Summed log loss (P, L) and number of observed rows (L,)."""
    values = labels.astype(np.float64)
    observed = np.isfinite(values)
    sign = np.where(values == 1, 1.0, -1.0)
    # A label that was not fitted has NaN logits, and keeps them as its loss.
    with np.errstate(invalid="ignore"):
        loss = np.where(observed[:, None], np.logaddexp(0.0, -logits * sign[:, None]), 0.0)
    return loss.sum(axis=0), observed.sum(axis=0).astype(np.float64)
