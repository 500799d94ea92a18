from itertools import combinations_with_replacement

import numpy as np
import pytest

from crs_assets.science.statistics import percentile_interval, seed_bootstrap_indices, seed_bootstrap_means


def test_percentiles_are_linear_between_order_statistics():
    # 0..40: positions .025 * 40 = 1 and .975 * 40 = 39.
    lower, upper = percentile_interval(np.arange(41.0)[::-1], level=0.95)
    assert (lower, upper) == (pytest.approx(1.0), pytest.approx(39.0))
    # Two values, level .5: quarter points.
    lower, upper = percentile_interval([10.0, 20.0], level=0.5)
    assert (lower, upper) == (12.5, 17.5)


def test_intervals_run_over_the_last_axis():
    lower, upper = percentile_interval(np.arange(12.0).reshape(2, 6), level=0.6)
    assert lower.tolist() == pytest.approx([1.0, 7.0])
    assert upper.tolist() == pytest.approx([4.0, 10.0])


def test_nan_and_bad_levels_are_refused():
    with pytest.raises(ValueError, match="replicates: 1 of 2 values are NaN"):
        percentile_interval([0.1, np.nan], level=0.95)
    with pytest.raises(ValueError, match="level is 95"):
        percentile_interval([0.1, 0.2], level=95)


def test_five_seeds_have_126_multisets_and_each_one_mean():
    indices = seed_bootstrap_indices(5, 20_000, np.random.default_rng(0))
    assert set(map(tuple, indices.tolist())) <= set(combinations_with_replacement(range(5), 5))
    values = np.random.default_rng(1).random(5)
    means = seed_bootstrap_means(values, indices)
    assert len(np.unique(indices, axis=0)) == 126
    assert len(np.unique(means)) == 126
    np.testing.assert_allclose(means, [values[row].mean() for row in indices], atol=1e-15)
    # Mean of means and its standard error, from the finite sample of seeds.
    assert means.mean() == pytest.approx(values.mean(), abs=0.005)
    assert means.std() == pytest.approx(values.std() / np.sqrt(5), rel=0.03)


def test_one_draw_serves_all_encoders_and_data_sets():
    values = np.random.default_rng(0).random((3, 2, 4))
    indices = seed_bootstrap_indices(4, 30, np.random.default_rng(1))
    means = seed_bootstrap_means(values, indices)
    assert means.shape == (3, 2, 30)
    np.testing.assert_array_equal(means[1, 0], seed_bootstrap_means(values[1, 0], indices))


def test_the_number_of_seeds_must_agree():
    with pytest.raises(ValueError, match="values has 4 seeds, indices were drawn for 5"):
        seed_bootstrap_means(np.ones(4), seed_bootstrap_indices(5, 3, np.random.default_rng(0)))
