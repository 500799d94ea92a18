import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn.isotonic import IsotonicRegression

from crs_assets.science.metrics import expected_calibration_error
from crs_assets.science.recalibration import IsotonicMap, fit_isotonic


def multiclass(n=400, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3)) * 3
    chances = softmax(logits / 2, axis=1)
    return logits, (rng.random((n, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, 2)


def test_pool_adjacent_violators_by_hand():
    # Outcomes in order of the logit: 0 1 0 1. The middle two violate and pool to one half.
    fitted = fit_isotonic([-2.0, -1.0, 1.0, 2.0], [0, 1, 0, 1])
    assert fitted.transform([-2.0, -1.0, 0.0, 1.0, 2.0]).tolist() == [0.0, 0.5, 0.5, 0.5, 1.0]
    assert fitted.transform([-9.0, 9.0]).tolist() == [0.0, 1.0]


def test_binary_matches_sklearn_on_unseen_rows():
    logits, y_true = multiclass()
    stated, label = expit(logits[:, 0]), (y_true == 0).astype(float)
    reference = IsotonicRegression(out_of_bounds="clip").fit(stated, label)
    unseen = np.linspace(-12, 12, 301)
    np.testing.assert_allclose(
        fit_isotonic(logits[:, 0], y_true == 0).transform(unseen), reference.predict(expit(unseen)), atol=1e-12
    )


def test_multiclass_is_one_versus_rest_and_renormalised():
    logits, y_true = multiclass()
    stated = softmax(logits, axis=1)
    curves = [IsotonicRegression(out_of_bounds="clip").fit(stated[:, k], y_true == k) for k in range(3)]
    raw = np.stack([curve.predict(stated[:, k]) for k, curve in enumerate(curves)], axis=1)
    np.testing.assert_allclose(
        fit_isotonic(logits, y_true).transform(logits), raw / raw.sum(axis=1, keepdims=True), atol=1e-12
    )


def test_a_row_whose_curves_are_all_zero_is_uniform():
    # Every curve is 0 up to p = .5; the first row states less than that for each class.
    curve = (np.array([0.5, 1.0]), np.array([0.0, 1.0]))
    fitted = IsotonicMap((curve[0],) * 3, (curve[1],) * 3)
    proba = fitted.transform(np.log([[0.4, 0.3, 0.3], [0.8, 0.1, 0.1]]))
    np.testing.assert_allclose(proba, [[1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]], atol=1e-15)


@given(seed=st.integers(0, 300))
@settings(max_examples=25, deadline=None)
def test_the_curve_is_monotone_and_bounded(seed):
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(size=30), 1)
    y_true = np.append(rng.integers(0, 2, 28), [0, 1])
    mapped = fit_isotonic(logits, y_true).transform(np.linspace(-5, 5, 50))
    assert (np.diff(mapped) >= 0).all()
    assert 0 <= mapped.min() <= mapped.max() <= 1


def test_calibrates_what_is_overconfident():
    fit_rows, test_rows = multiclass(4000, seed=1), multiclass(4000, seed=2)
    before = expected_calibration_error(test_rows[1], softmax(test_rows[0], axis=1))
    after = expected_calibration_error(test_rows[1], fit_isotonic(*fit_rows).transform(test_rows[0]))
    # The labels follow the softmax of half the logits, so the stated confidence is far too high.
    assert after < 0.5 * before


def test_shapes_must_be_the_fitted_ones():
    logits, y_true = multiclass(50)
    with pytest.raises(ValueError, match=r"logits has 2 column\(s\), the map was fitted on 3"):
        fit_isotonic(logits, y_true).transform(logits[:, :2])
