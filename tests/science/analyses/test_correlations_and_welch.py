import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr, ttest_ind

from crs_assets.science.analyses.correlation import pair_draws, pearson, spearman
from crs_assets.science.analyses.welch import welch_test
from crs_assets.science.seeding import generator

pairs = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=3, max_size=10).filter(
    lambda rows: all(len(set(side)) > 1 for side in zip(*rows, strict=True))
)


@settings(deadline=None)
@given(pairs)
def test_coefficients_are_scipys(rows):
    x, y = (list(map(float, side)) for side in zip(*rows, strict=True))
    assert pearson(x, y).value == pytest.approx(pearsonr(x, y).statistic, abs=1e-12)
    assert spearman(x, y).value == pytest.approx(spearmanr(x, y).statistic, abs=1e-12)


def test_spearman_by_hand():
    # Ranks 1 2 3 4 against 2 1 4 3: squared differences sum to 4, rho = 1 - 6 * 4 / (4 * 15).
    found = spearman([10, 20, 30, 40], [0.2, 0.1, 0.9, 0.5])
    assert (found.value, found.n, found.lower) == (pytest.approx(0.6), 4, None)


def test_the_interval_is_that_of_the_resampled_coefficients():
    rng = np.random.default_rng(0)
    x = rng.normal(size=12)
    y = x + rng.normal(size=12)
    draws = pair_draws(12, 200, generator("salt", "test"))
    found = spearman(x, y, draws=draws, level=0.95)
    by_scipy = [spearmanr(x[draw], y[draw]).statistic for draw in draws]
    assert (found.lower, found.upper) == pytest.approx(tuple(np.quantile(by_scipy, (0.025, 0.975))))
    assert found.replicates == 200


def test_resamples_without_spread_are_left_out_and_counted():
    draws = np.array([[0, 0, 0], [0, 1, 2], [2, 2, 1]])
    found = spearman([1, 2, 3], [1, 2, 3], draws=draws, level=0.5)
    assert (found.replicates, found.lower, found.upper) == (2, 1.0, 1.0)


@pytest.mark.parametrize(
    ("x", "y", "reason"),
    [([1, 2], [2, 1], "n = 2, needs 3"), ([], [], "n = 0, needs 3"), ([1, 1, 1], [1, 2, 3], "one side are equal")],
)
def test_too_few_or_equal_values_have_a_reason_and_no_number(x, y, reason):
    for found in (pearson(x, y), spearman(x, y)):
        assert found.value is None
        assert reason in found.reason
        assert found.n == len(x)


def test_input_of_correlations_is_checked():
    with pytest.raises(ValueError, match="got 3 and 2 values"):
        pearson([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="NaN"):
        spearman([1, 2, np.nan], [1, 2, 3])
    with pytest.raises(ValueError, match="without a level"):
        spearman([1, 2, 3], [1, 2, 3], draws=np.zeros((2, 3), dtype=np.int64))


@settings(deadline=None)
@given(
    st.lists(st.floats(0.4, 1), min_size=2, max_size=9, unique=True),
    st.lists(st.floats(0.4, 1), min_size=2, max_size=9, unique=True),
)
def test_welch_is_scipys(a, b):
    if np.ptp(a) < 1e-6 or np.ptp(b) < 1e-6:
        return
    found, expected = welch_test(a, b, level=0.95), ttest_ind(a, b, equal_var=False)
    assert found.t == pytest.approx(expected.statistic, rel=1e-9, abs=1e-9)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-7, abs=1e-12)
    assert found.degrees_of_freedom == pytest.approx(expected.df, rel=1e-9)
    interval = expected.confidence_interval(0.95)
    assert (found.lower, found.upper) == pytest.approx((interval.low, interval.high), rel=1e-7, abs=1e-9)


def test_welch_by_hand():
    # Variances 0.02 and 0.005 over 2 each: error sqrt(0.0125), t = 0.15 / 0.1118.
    found = welch_test([0.7, 0.9], [0.6, 0.7], level=0.9)
    assert (found.mean, found.mean_against, found.difference) == pytest.approx((0.8, 0.65, 0.15))
    assert found.t == pytest.approx(0.15 / 0.0125**0.5)
    # (0.01 + 0.0025)^2 / (0.01^2 + 0.0025^2).
    assert found.degrees_of_freedom == pytest.approx(0.0125**2 / (0.0001 + 0.00000625))


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [([0.7], [0.5, 0.6], "1 against 2"), ([], [0.5, 0.6], "0 against 2"), ([0.7, 0.7], [0.5, 0.5], "no spread")],
)
def test_groups_without_a_test_have_a_reason(a, b, reason):
    found = welch_test(a, b, level=0.95)
    assert (found.p_value, found.t, found.lower) == (None, None, None)
    assert reason in found.reason
    assert found.mean == (pytest.approx(0.7) if a else None)
