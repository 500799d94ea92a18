"""Inner folds for choosing a penalty on the calibration split: whole groups, classes spread, no randomness."""

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.validation import FloatArray, IntArray


def balanced_folds(inputs: FloatArray, labels: IntArray, groups: ArrayLike | None, n_folds: int) -> IntArray:
    """Deal groups to folds in turn, ordered by their rarest class, then by group id.

    Without groups every row is its own, ordered by class, then by its values: row order cannot matter.

    Args:
        inputs: float64 (n, K).
        labels: Class indices (n,).
        groups: Group of each row (n,), or None.
        n_folds: Number of folds, at least 2.

    Returns:
        Fold of each row, int64 (n,).

    Raises:
        ValueError: If there are fewer groups than folds, or a fold count or length is wrong.
    """
    if groups is not None and np.shape(groups) != (len(labels),):
        raise ValueError(f"groups has shape {np.shape(groups)}, expected ({len(labels)},): one group per row.")
    rarity = np.argsort(np.argsort(np.bincount(labels, minlength=inputs.shape[1]), kind="stable"))[labels]
    if groups is None:
        group_of_row = np.arange(len(labels))
        order = np.lexsort((*inputs.T, rarity))
    else:
        _, group_of_row = np.unique(np.asarray(groups), return_inverse=True)
        rarest = np.full(group_of_row.max() + 1, inputs.shape[1])
        np.minimum.at(rarest, group_of_row, rarity)
        order = np.lexsort((np.arange(len(rarest)), rarest))
    if not 2 <= n_folds <= len(order):
        raise ValueError(f"n_folds is {n_folds} for {len(order)} groups, expected 2 up to the number of groups.")
    fold_of_group = np.empty(len(order), dtype=np.int64)
    fold_of_group[order] = np.arange(len(order)) % n_folds
    return fold_of_group[group_of_row]
