"""Expected calibration error under many weightings at once: bin once, then every bootstrap replicate is a sum."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crs_assets.science.metrics.binning import equal_width_bin
from crs_assets.science.validation import FloatArray, IntArray, label_probabilities


class WeightedCalibrationError:
    """Expected calibration error of stated probabilities over equal-width bins, as a function of row weights.

    With integer weights it is the error of the repeated rows. Resampling adds noise to every bin, so resampled errors
    lie above the error itself.

    Args:
        outcome: Whether the stated event happened, 0/1 (n,); NaN = not observed.
        probability: Stated probability (n,), in [0, 1].
        n_bins: Number of equal-width bins.
        groups: Which weight each row takes, integers (n,).
        n_groups: Number of weights.

    Raises:
        ValueError: If shapes, dtypes or values are not as described.
    """

    def __init__(
        self, outcome: ArrayLike, probability: ArrayLike, n_bins: int, *, groups: IntArray, n_groups: int
    ) -> None:
        columns = label_probabilities(outcome, probability)
        positive, stated = columns.column(0)
        taken = groups[columns.observed[:, 0]]
        bins = equal_width_bin(stated, n_bins)
        ones = np.ones(len(taken))
        self._n_bins = n_bins
        self._sums = _sums(
            rows=np.concatenate([bins, n_bins + bins[positive], np.full(len(taken), 2 * n_bins)]),
            columns=np.concatenate([taken, taken[positive], taken]),
            values=np.concatenate([stated, ones[positive], ones]),
            shape=(2 * n_bins + 1, n_groups),
        )

    def evaluate(self, weights: NDArray[np.generic]) -> FloatArray:
        """Errors in [0, 1], lower is better, float64 (replicates,); NaN where all rows have weight 0.

        Args:
            weights: Non-negative weights, shape (``n_groups``, replicates).
        """
        sums = self._sums @ weights
        stated, seen, total = sums[: self._n_bins], sums[self._n_bins : -1], sums[-1]
        gaps = np.abs(stated - seen).sum(axis=0)
        error: FloatArray = np.divide(gaps, total, out=np.full(len(total), np.nan), where=total > 0)
        return error


def _sums(rows: IntArray, columns: IntArray, values: FloatArray, shape: tuple[int, int]) -> Any:
    # A quarter of a second of import, which loading the code location would pay.
    from scipy.sparse import csr_array

    return csr_array((values, (rows, columns)), shape=shape)
