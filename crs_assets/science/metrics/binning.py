"""Bins of (predicted probability, 0/1 outcome) pairs and the calibration errors they give.

Every calibration error of the package is one of these four estimators on pairs that ``calibration`` chooses: top
label, one label, or each class in turn. ``probability`` is float64 (n,) in [0, 1], ``outcome`` bool (n,).
"""

from typing import NamedTuple

import numpy as np

from crs_assets.science.validation import BoolArray, FloatArray, IntArray, positive_int


class BinSums(NamedTuple):
    """Totals of each bin that holds at least one row.

    Attributes:
        rows: Number of rows, shape (bins,).
        probability: Sum of the predicted probabilities.
        outcome: Number of positive outcomes.
    """

    rows: FloatArray
    probability: FloatArray
    outcome: FloatArray


def equal_width_bin(probability: FloatArray, n_bins: int) -> IntArray:
    """Bin b = min(floor(n_bins p), n_bins - 1) in float64: edges belong to the upper bin, p = 1 to the last."""
    return np.minimum(np.floor(probability * positive_int(n_bins, name="n_bins")), n_bins - 1).astype(np.int64)


def equal_width_sums(probability: FloatArray, outcome: BoolArray, n_bins: int) -> BinSums:
    """Totals of all ``n_bins`` equal-width bins, empty ones included."""
    bins = equal_width_bin(probability, n_bins)
    return BinSums(
        np.bincount(bins, minlength=n_bins).astype(np.float64),
        np.bincount(bins, weights=probability, minlength=n_bins).astype(np.float64),
        np.bincount(bins, weights=outcome, minlength=n_bins).astype(np.float64),
    )


def equal_mass_sums(probability: FloatArray, outcome: BoolArray, n_bins: int) -> BinSums:
    """Totals of at most ``n_bins`` bins of equal count, cut at the sorted values of rank floor(i n / n_bins).

    Equal probabilities always share a bin, so that row order cannot matter and bins may merge.
    """
    positive_int(n_bins, name="n_bins")
    return _SortedPairs(probability, outcome).equal_mass(n_bins)


def weighted_gap(sums: BinSums) -> float:
    """Sum over bins of n_b / n times |mean probability - frequency|: the expected calibration error."""
    return float(np.abs(sums.probability - sums.outcome).sum() / sums.rows.sum())


def equal_width_error(probability: FloatArray, outcome: BoolArray, n_bins: int) -> float:
    """Expected calibration error over equal-width bins (Naeini et al., AAAI 2015; Guo et al., ICML 2017)."""
    return weighted_gap(equal_width_sums(probability, outcome, n_bins))


def equal_mass_error(probability: FloatArray, outcome: BoolArray, n_bins: int) -> float:
    """Expected calibration error over equal-mass bins (Nguyen and O'Connor, EMNLP 2015)."""
    return weighted_gap(equal_mass_sums(probability, outcome, n_bins))


def debiased_rms_error(probability: FloatArray, outcome: BoolArray, n_bins: int) -> float:
    """Root of the debiased squared calibration error over equal-mass bins, floored at 0.

    From each squared gap the estimated sampling variance f (1 - f) / (n_b - 1) of its frequency f is taken off; bins
    of one row count as 0 (Kumar, Liang and Ma, "Verified Uncertainty Calibration", NeurIPS 2019).
    """
    sums = equal_mass_sums(probability, outcome, n_bins)
    count = sums.rows
    frequency = sums.outcome / count
    squared = (sums.probability / count - frequency) ** 2
    variance = frequency * (1 - frequency) / np.maximum(count - 1, 1)
    debiased = np.where(count > 1, squared - variance, 0.0)
    return float(np.sqrt(max(0.0, float((count * debiased).sum() / count.sum()))))


def monotonic_sweep_error(probability: FloatArray, outcome: BoolArray) -> float:
    """ECE over the largest number of equal-mass bins below which every binning has non-decreasing frequencies.

    ECE-sweep of Roelofs, Cain, Shlens and Mozer, "Mitigating Bias in Calibration Error Estimation", AISTATS 2022.
    """
    pairs = _SortedPairs(probability, outcome)
    best = pairs.equal_mass(1)
    for n_bins in range(2, len(probability) + 1):
        sums = pairs.equal_mass(n_bins)
        if np.any(np.diff(sums.outcome / sums.rows) < 0):
            break
        best = sums
    return weighted_gap(best)


class _SortedPairs:
    """Pairs sorted once, with running totals, so that each binning costs only its number of bins."""

    def __init__(self, probability: FloatArray, outcome: BoolArray) -> None:
        order = np.argsort(probability, kind="stable")
        values = probability[order]
        self._first_of_tie = np.searchsorted(values, values, side="left")
        self._probability = np.concatenate(([0.0], np.cumsum(values)))
        self._outcome = np.concatenate(([0.0], np.cumsum(outcome[order], dtype=np.float64)))

    def equal_mass(self, n_bins: int) -> BinSums:
        n_rows = len(self._first_of_tie)
        starts = np.unique(self._first_of_tie[np.arange(min(n_bins, n_rows)) * n_rows // min(n_bins, n_rows)])
        edges = np.append(starts, n_rows)
        return BinSums(
            np.diff(edges).astype(np.float64), np.diff(self._probability[edges]), np.diff(self._outcome[edges])
        )
