import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from crs_assets.science.probes import standardisation


def test_agrees_with_scikit_learn_on_the_chosen_rows():
    x = np.random.default_rng(0).normal(5, 2, (5000, 7)).astype(np.float32)
    rows = np.arange(0, 5000, 2)
    mean, scale = standardisation(x, rows, std_floor=0, std_zero=1e-8)
    expected = StandardScaler().fit(x[rows].astype(np.float64))
    np.testing.assert_allclose(mean, expected.mean_, rtol=1e-12)
    np.testing.assert_allclose(scale, expected.scale_, rtol=1e-12)


def test_floor_and_zero():
    # Deviations 1, 2, 4 and 0.1 about means of 0, and a constant: the median of the four that vary is 1.5, a quarter of
    # it 0.375.
    signs = np.array([[1.0], [-1.0]])
    x = np.hstack([signs * 1, signs * 2, signs * 4, signs * 0.1, signs * 0 + 3])
    mean, scale = standardisation(x, np.arange(2), std_floor=0.25, std_zero=1e-8)
    np.testing.assert_allclose(mean, [0, 0, 0, 0, 3])
    np.testing.assert_allclose(scale, [1, 2, 4, 0.375, np.inf])


def test_a_large_mean_costs_no_digits():
    x = (1e4 + np.array([[0.0], [0.5], [1.0]])).astype(np.float32)
    _, scale = standardisation(x, np.arange(3), std_floor=0, std_zero=1e-8)
    np.testing.assert_allclose(scale, np.sqrt(1 / 6), rtol=1e-12)  # deviations -0.5, 0, 0.5


def test_refuses_non_finite_rows_and_names_the_first():
    x = np.ones((9, 2), np.float32)
    x[4, 1], x[7, 0] = np.nan, np.inf
    with pytest.raises(ValueError, match="2 of 9 rows hold NaN or infinity, the first is row 4"):
        standardisation(x, np.arange(9), std_floor=0.25, std_zero=1e-8)


def test_refuses_no_rows():
    with pytest.raises(ValueError, match="at least one row"):
        standardisation(np.ones((3, 2), np.float32), np.array([], dtype=np.int64), std_floor=0.25, std_zero=1e-8)
