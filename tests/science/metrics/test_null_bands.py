import numpy as np
import pytest

from crs_assets.science.metrics import (
    expected_calibration_error,
    multilabel_expected_calibration_error,
    multilabel_null_band,
    null_band,
)


def flat_rows(n, k=5, seed=0):
    return np.random.default_rng(seed).dirichlet(np.ones(k), size=n)


def test_agrees_with_labels_drawn_row_by_row():
    probabilities = flat_rows(150)
    rng = np.random.default_rng(1)
    cumulated = probabilities.cumsum(axis=1)
    errors = [
        expected_calibration_error((rng.random((150, 1)) > cumulated).sum(axis=1).clip(0, 4), probabilities)
        for _ in range(1500)
    ]
    band = null_band(probabilities, draws=1500, level=0.95, rng=np.random.default_rng(2))
    # The 95 % quantile of 1500 draws has a standard error of about .002 here.
    assert band == pytest.approx(np.quantile(errors, 0.95), abs=0.01)


def test_multilabel_agrees_with_labels_drawn_cell_by_cell():
    rng = np.random.default_rng(3)
    p = rng.random((120, 4))
    observed = rng.random((120, 4)) < 0.7
    errors = [
        multilabel_expected_calibration_error((rng.random(p.shape) < p).astype(int), p, observed=observed)
        for _ in range(800)
    ]
    band = multilabel_null_band(p, draws=800, level=0.95, rng=np.random.default_rng(4), observed=observed)
    assert band == pytest.approx(np.quantile(errors, 0.95), abs=0.01)


def test_a_small_calibrated_test_set_has_a_large_error():
    # About .12 at n = 100 with five classes, about .025 at n = 4000 (simulated independently of this package).
    small = null_band(flat_rows(100), draws=400, level=0.5, rng=np.random.default_rng(0))
    large = null_band(flat_rows(4000), draws=100, level=0.5, rng=np.random.default_rng(0))
    assert 0.08 < small < 0.15
    assert large < 0.03


def test_certain_predictions_leave_no_room():
    assert null_band(np.eye(3), draws=20, level=0.95, rng=np.random.default_rng(0)) == 0.0


def test_row_order_does_not_matter_and_the_generator_does():
    probabilities = flat_rows(60)
    bands = [
        null_band(rows, draws=50, level=0.9, rng=np.random.default_rng(seed))
        for rows, seed in ((probabilities, 0), (probabilities[::-1], 0), (probabilities, 1))
    ]
    assert bands[0] == bands[1] != bands[2]


def test_unobserved_everything_is_nan_and_levels_are_checked():
    unseen = np.zeros((3, 2), dtype=bool)
    rng = np.random.default_rng(0)
    assert np.isnan(multilabel_null_band(np.full((3, 2), 0.5), draws=5, level=0.9, rng=rng, observed=unseen))
    with pytest.raises(ValueError, match="level is 95"):
        null_band(flat_rows(5), draws=5, level=95, rng=rng)
    with pytest.raises(ValueError, match="draws is 0"):
        null_band(flat_rows(5), draws=0, level=0.9, rng=rng)
