import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from crs_assets.science.metrics import macro_auroc, multiclass_log_loss_from_logits
from crs_assets.science.recalibration import fit_temperature, fit_vector


@pytest.fixture
def biased():
    """Logits whose labels follow the softmax of weight * logits + bias."""
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(4000, 3)) * 2
    chances = softmax(logits * [0.5, 1.0, 1.5] + [1.0, 0.0, -1.0], axis=1)
    return logits, (rng.random((4000, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, 2)


def test_recovers_weights_and_bias_differences(biased):
    fitted = fit_vector(*biased)
    np.testing.assert_allclose(fitted.weight, [0.5, 1.0, 1.5], atol=0.12)
    np.testing.assert_allclose(np.diff(fitted.bias), [-1, -1], atol=0.2)


def test_reaches_the_optimum_that_scipy_finds_without_a_gradient(biased):
    logits, y_true = biased[0][:300], biased[1][:300]

    def loss(parameters):
        scaled = logits * parameters[:3] + np.append(parameters[3:], 0.0)
        return -log_softmax(scaled, axis=1)[np.arange(300), y_true].mean()

    reference = minimize(
        loss, [1, 1, 1, 0, 0], method="Nelder-Mead", options={"maxiter": 20_000, "fatol": 1e-13, "xatol": 1e-9}
    )
    fitted = multiclass_log_loss_from_logits(y_true, fit_vector(logits, y_true).transform_logits(logits))
    assert fitted == pytest.approx(reference.fun, abs=2e-6)


def test_never_less_likely_than_temperature_on_the_rows_fitted(biased):
    logits, y_true = biased
    with_vector = multiclass_log_loss_from_logits(y_true, fit_vector(logits, y_true).transform_logits(logits))
    with_temperature = multiclass_log_loss_from_logits(y_true, fit_temperature(logits, y_true).transform_logits(logits))
    assert with_vector < with_temperature


def test_the_binary_case_is_logistic_regression_on_the_logit():
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(1)
    logits = rng.normal(size=500) * 3
    y_true = (rng.random(500) < expit(0.4 * logits - 1)).astype(int)
    fitted = fit_vector(logits, y_true)
    reference = LogisticRegression(C=1e10, tol=1e-10, max_iter=1000).fit(logits[:, None], y_true)
    assert fitted.weight[0] == pytest.approx(reference.coef_[0, 0], abs=1e-4)
    assert fitted.bias[0] == pytest.approx(reference.intercept_[0], abs=1e-4)
    np.testing.assert_allclose(fitted.transform(logits), reference.predict_proba(logits[:, None])[:, 1], atol=1e-4)
    assert macro_auroc(y_true, fitted.transform_logits(logits)) == macro_auroc(y_true, logits)


def test_separable_rows_and_an_absent_class_leave_finite_maps():
    rng = np.random.default_rng(2)
    separable = fit_vector(np.array([-2.0, -1.0, 1.0, 2.0]), [0, 0, 1, 1])
    assert np.isfinite(separable.weight).all()
    logits = rng.normal(size=(60, 4))
    absent = fit_vector(logits, rng.integers(0, 3, 60))  # class 3 never occurs
    proba = absent.transform(logits)
    assert np.isfinite(absent.bias).all()
    assert proba[:, 3].max() < 0.01


def test_shapes_must_be_the_fitted_ones(biased):
    fitted = fit_vector(*biased)
    np.testing.assert_allclose(fitted.transform(biased[0]).sum(axis=1), 1, atol=1e-12)
    with pytest.raises(ValueError, match=r"logits has 1 column\(s\), the map was fitted on 3"):
        fitted.transform(biased[0][:, 0])
