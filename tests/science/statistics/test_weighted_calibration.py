import numpy as np
import pytest

from crs_assets.science.metrics import binary_expected_calibration_error
from crs_assets.science.statistics.weighted_calibration import WeightedCalibrationError


def case(seed=0, n=200, groups=60):
    rng = np.random.default_rng(seed)
    probability = np.round(rng.random(n), 2)
    outcome = (rng.random(n) < probability).astype(float)
    outcome[rng.random(n) < 0.1] = np.nan
    return outcome, probability, rng.integers(0, groups, n)


def test_counts_give_the_error_of_the_repeated_rows():
    outcome, probability, groups = case()
    counts = np.random.default_rng(1).integers(0, 4, (60, 8))
    error = WeightedCalibrationError(outcome, probability, 15, groups=groups, n_groups=60)
    expected = []
    for column in counts.T:
        rows = np.repeat(np.arange(len(groups)), column[groups])
        expected.append(binary_expected_calibration_error(outcome[rows], probability[rows], n_bins=15))
    np.testing.assert_allclose(error.evaluate(counts.astype(np.float32)), expected, rtol=0, atol=1e-14)


def test_two_bins_by_hand():
    # Bin 0: .2 and .4 with outcomes 1, 0; bin 1: .9 with 1. Weights 1, 3, 2: |.2 + 1.2 - 1| + |1.8 - 2| = .6 of 6.
    error = WeightedCalibrationError([1, 0, 1], [0.2, 0.4, 0.9], 2, groups=np.arange(3), n_groups=4)
    weights = np.array([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [9.0, 9.0]])
    found = error.evaluate(weights)
    assert found[0] == pytest.approx(0.1, abs=1e-15)
    assert np.isnan(found[1])
