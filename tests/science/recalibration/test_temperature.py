import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax

from crs_assets.science.metrics import (
    accuracy,
    macro_auroc,
    multiclass_log_loss_from_logits,
    multilabel_log_loss_from_logits,
)
from crs_assets.science.recalibration import TemperatureMap, fit_temperature


def overconfident(n=2000, k=4, temperature=2.5, seed=0):
    """Logits whose labels were drawn from the softmax of logits / temperature."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, k)) * 4
    chances = softmax(logits / temperature, axis=1)
    return logits, (rng.random((n, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, k - 1)


def test_temperature_one_reproduces_the_link_bit_for_bit():
    logits, _ = overconfident()
    np.testing.assert_array_equal(TemperatureMap(1.0).transform(logits), softmax(logits, axis=1))
    np.testing.assert_array_equal(TemperatureMap(1.0).transform(logits[:, 0]), expit(logits[:, 0]))


def test_recovers_the_temperature_of_the_labels():
    logits, y_true = overconfident(n=20_000)
    assert fit_temperature(logits, y_true).temperature == pytest.approx(2.5, rel=0.03)


def test_a_binary_logit_keeps_its_own_scale():
    rng = np.random.default_rng(1)
    logits = rng.normal(size=20_000) * 4
    y_true = rng.random(20_000) < expit(logits / 2)
    # Not 4 and not 1: the sigmoid's logit is not doubled on the way.
    assert fit_temperature(logits, y_true).temperature == pytest.approx(2, rel=0.04)


def test_no_other_temperature_is_likelier():
    logits, y_true = overconfident(n=300)
    fitted = fit_temperature(logits, y_true).temperature
    best = multiclass_log_loss_from_logits(y_true, logits / fitted)
    for factor in (0.5, 0.99, 0.9999, 1.0001, 1.01, 2):
        assert multiclass_log_loss_from_logits(y_true, logits / (fitted * factor)) > best
    label = (y_true == 0).astype(int)
    binary = fit_temperature(logits[:, 0], label).temperature
    best = multilabel_log_loss_from_logits(label, logits[:, 0] / binary)
    for factor in (0.99, 1.01):
        assert multilabel_log_loss_from_logits(label, logits[:, 0] / (binary * factor)) > best


def test_matches_sklearn():
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class Logits(ClassifierMixin, BaseEstimator):
        """A fitted classifier whose decision function is its input."""

        def fit(self, x, y):
            self.classes_, self.n_features_in_ = np.unique(y), x.shape[1]
            return self

        def decision_function(self, x):
            return x

        def predict(self, x):
            return x.argmax(axis=1)

    logits, y_true = overconfident(n=800)
    reference = CalibratedClassifierCV(FrozenEstimator(Logits().fit(logits, y_true)), method="temperature").fit(
        logits, y_true
    )
    ours = fit_temperature(logits, y_true).transform(logits)
    np.testing.assert_allclose(ours, reference.predict_proba(logits), atol=2e-5)


@given(seed=st.integers(0, 1000), temperature=st.floats(0.05, 50))
@settings(max_examples=40, deadline=None)
def test_order_of_one_label_and_the_top_label_are_kept(seed, temperature):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(60, 3)).astype(np.float32) * 5
    y_true = rng.integers(0, 3, 60)
    fitted = TemperatureMap(temperature)
    binary = y_true == 0
    assert macro_auroc(binary, fitted.transform_logits(logits[:, 0])) == macro_auroc(binary, logits[:, 0])
    assert accuracy(y_true, fitted.transform_logits(logits)) == accuracy(y_true, logits)


def test_fitted_temperature_keeps_the_auroc_of_probabilities():
    logits, y_true = overconfident(n=500)
    label = y_true == 1
    proba = fit_temperature(logits[:, 1], label).transform(logits[:, 1])
    assert macro_auroc(label, proba) == macro_auroc(label, logits[:, 1])


def test_separable_and_reversed_logits_stop_at_the_bounds():
    z = np.array([-2.0, -1.0, 1.0, 2.0])
    sharp = fit_temperature(z, [0, 0, 1, 1])
    flat = fit_temperature(-z, [0, 0, 1, 1])
    assert (sharp.temperature, sharp.is_at_bound) == (pytest.approx(1e-3), True)
    assert (flat.temperature, flat.is_at_bound) == (pytest.approx(1e3), True)


def test_one_class_and_bad_logits_are_refused():
    with pytest.raises(ValueError, match="all of class 1, expected at least two classes"):
        fit_temperature([0.1, 0.2], [1, 1])
    with pytest.raises(ValueError, match="NaN or infinite"):
        fit_temperature([0.1, np.inf], [0, 1])
    with pytest.raises(ValueError, match="pass one binary label as 1-D"):
        fit_temperature(np.zeros((3, 1)), [0, 1, 0])
