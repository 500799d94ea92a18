"""AUROC under many weightings at once: sort once, then every bootstrap replicate is a sum and a running sum."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crs_assets.science.validation import FloatArray, IntArray, label_columns, numeric_array


class WeightedAuroc:
    """AUROC of one binary column as a function of row weights, exact with ties.

    With integer weights (how often a row was drawn) the value equals the AUROC of the repeated rows to the last bit
    of the final division: all sums are of integers.

    Positives cut the sorted negatives into segments: a positive beats the segments below it, and half of those it is
    tied with. One product with a sparse matrix of ones sums the negatives of each segment and the positives at each
    cut, for all weightings; what is left to do per weighting is a running sum over segments, of which there are at
    most twice as many as positives.

    Args:
        y_true: 0/1 labels (n,); NaN = not observed.
        y_score: Scores (n,), higher = more likely positive.
        observed: Bool mask (n,).
        groups: Which weight each row takes, integers (n,); by default each row has its own, in order.
        n_groups: Number of weights; by default as many as ``groups`` names.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """

    def __init__(
        self,
        y_true: ArrayLike,
        y_score: ArrayLike,
        observed: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        n_groups: int | None = None,
    ) -> None:
        columns = label_columns(y_true, y_score, observed)
        if columns.score.shape[1] != 1:
            raise ValueError(
                f"y_score has shape {np.shape(y_score)}, expected (n,); build one WeightedAuroc per label."
            )
        positive, score, labelled = columns.positive[:, 0], columns.score[:, 0], columns.observed[:, 0]
        group_of_row = np.arange(len(score)) if groups is None else _positions(groups, len(score))
        self._n_groups = int(group_of_row.max()) + 1 if n_groups is None else n_groups
        negatives = _ascending(np.flatnonzero(labelled & ~positive), score)
        positives = np.flatnonzero(labelled & positive)
        below = score[negatives]
        beaten = np.searchsorted(below, score[positives], side="left")
        beaten_or_tied = np.searchsorted(below, score[positives], side="right")
        cuts = np.unique(np.concatenate([beaten, beaten_or_tied, [len(negatives)]]))
        self._steps = math.isqrt(len(cuts) - 1) + 1
        self._columns = -(-len(cuts) // self._steps)
        rows = np.concatenate(
            [
                self._row(np.searchsorted(cuts, np.arange(len(negatives)), side="right")),
                self._row(np.searchsorted(cuts, beaten), half=1),
                self._row(np.searchsorted(cuts, beaten_or_tied), half=1),
            ]
        )
        members = group_of_row[np.concatenate([negatives, positives, positives])]
        self._sums = _counting_matrix(rows, members, (2 * self._steps * self._columns, self._n_groups))

    def __call__(self, weights: ArrayLike) -> FloatArray:
        """AUROC under each weighting.

        Args:
            weights: Non-negative weights, shape (n or ``n_groups``, replicates); rows that are not observed do not
                count.

        Returns:
            float64 (replicates,); NaN where all positives or all negatives have weight 0.

        Raises:
            ValueError: If the number of rows differs or a weight is negative or not a number.
        """
        matrix = numeric_array(weights, name="weights", ndim=(2,))
        if len(matrix) != self._n_groups:
            raise ValueError(
                f"weights has {len(matrix)} rows, expected {self._n_groups}; one row of weights per test row or group."
            )
        if not (matrix >= 0).all():
            raise ValueError("weights holds negative or NaN values, expected counts or non-negative weights.")
        return self.evaluate(matrix.astype(np.float64))

    def evaluate(self, weights: NDArray[np.generic]) -> FloatArray:
        """``__call__`` without checks, for loops that made the weights themselves.

        Args:
            weights: As for ``__call__``. float32 is twice as fast, and exact for counts while twice their total stays
                below 2**24; anything else is taken as float64.
        """
        exact = weights if weights.dtype == np.float32 else weights.astype(np.float64)
        sums = (self._sums @ exact).reshape(2, self._steps, self._columns, -1)
        running = np.zeros_like(sums[0, 0])
        won = np.zeros(running.shape)
        product = np.empty(running.shape)
        for negatives, positives in zip(*sums, strict=True):
            running += negatives
            won += np.multiply(running, positives, out=product)
        ends = np.cumsum(running, axis=0, dtype=np.float64)
        # Twice the positives at the cuts of each column, which also beat all columns before it.
        at_cuts = sums[1].sum(axis=0, dtype=np.float64)
        wins = won.sum(axis=0) + np.einsum("cr,cr->r", ends - running, at_cuts)
        pairs = ends[-1] * at_cuts.sum(axis=0)
        auroc: FloatArray = np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
        return auroc

    def _row(self, segment: IntArray, *, half: int = 0) -> IntArray:
        """Row of the sums: consecutive segments run down a column, and one step of all columns is contiguous."""
        return (half * self._steps + segment % self._steps) * self._columns + segment // self._steps


def _positions(groups: ArrayLike, n_rows: int) -> IntArray:
    positions = numeric_array(groups, name="groups", ndim=(1,), kinds="iu").astype(np.int64)
    if len(positions) != n_rows or positions.min() < 0:
        raise ValueError(
            f"groups has {len(positions)} rows from {positions.min()}, expected {n_rows} from 0; one position per row."
        )
    return positions


def _ascending(rows: NDArray[np.intp], score: FloatArray) -> NDArray[np.intp]:
    return rows[np.argsort(score[rows], kind="stable")]


def _counting_matrix(rows: IntArray, columns: IntArray, shape: tuple[int, int]) -> Any:
    """Sparse float32 matrix that counts how often each (row, column) occurs."""
    # A quarter of a second of import, which loading the code location would pay.
    from scipy.sparse import csr_array

    return csr_array((np.ones(len(rows), dtype=np.float32), (rows, columns)), shape=shape)
