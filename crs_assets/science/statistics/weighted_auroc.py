"""AUROC under many row weightings at once: sort once, then every bootstrap replicate is a running sum."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crs_assets.science.validation import FloatArray, label_columns, numeric_array


class WeightedAuroc:
    """AUROC of one binary column as a function of row weights, exact with ties.

    With integer weights (how often a row was drawn) the value equals the AUROC of the repeated rows to the last bit
    of the final division: all sums are of integers in float64.

    Args:
        y_true: 0/1 labels (n,); NaN = not observed.
        y_score: Scores (n,), higher = more likely positive.
        observed: Bool mask (n,).

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """

    def __init__(self, y_true: ArrayLike, y_score: ArrayLike, observed: ArrayLike | None = None) -> None:
        columns = label_columns(y_true, y_score, observed)
        if columns.score.shape[1] != 1:
            raise ValueError(
                f"y_score has shape {np.shape(y_score)}, expected (n,); build one WeightedAuroc per label."
            )
        positive, score, labelled = columns.positive[:, 0], columns.score[:, 0], columns.observed[:, 0]
        self._n_rows = len(score)
        self._negatives = _ascending(np.flatnonzero(labelled & ~positive), score)
        self._positives = _ascending(np.flatnonzero(labelled & positive), score)
        below, above = score[self._negatives], score[self._positives]
        self._beaten = np.searchsorted(below, above, side="left")
        self._beaten_or_tied = np.searchsorted(below, above, side="right")

    def __call__(self, weights: ArrayLike) -> FloatArray:
        """AUROC under each weighting.

        Args:
            weights: Non-negative row weights, shape (n, replicates); rows that are not observed do not count.

        Returns:
            float64 (replicates,); NaN where all positives or all negatives have weight 0.

        Raises:
            ValueError: If the number of rows differs or a weight is negative or not a number.
        """
        matrix = numeric_array(weights, name="weights", ndim=(2,))
        if len(matrix) != self._n_rows:
            raise ValueError(
                f"weights has {len(matrix)} rows, expected {self._n_rows}; one row of weights per test row."
            )
        if not (matrix >= 0).all():
            raise ValueError("weights holds negative or NaN values, expected counts or non-negative weights.")
        return self.evaluate(matrix)

    def evaluate(self, weights: NDArray[np.generic]) -> FloatArray:
        """``__call__`` without checks, for loops that made the weights themselves."""
        won = weights[self._positives].astype(np.float64)
        total = won.sum(axis=0)
        running = np.zeros((len(self._negatives) + 1, weights.shape[1]))
        np.cumsum(weights[self._negatives], axis=0, dtype=np.float64, out=running[1:])
        pairs = total * running[-1]
        wins = np.einsum("ir,ir->r", won, running[self._beaten] + running[self._beaten_or_tied])
        auroc: FloatArray = np.divide(wins, 2 * pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
        return auroc


def _ascending(rows: NDArray[np.intp], score: FloatArray) -> NDArray[np.intp]:
    return rows[np.argsort(score[rows], kind="stable")]
