import numpy as np
import pytest
from scipy.special import expit

from crs_assets.science.metrics import multilabel_log_loss
from crs_assets.science.recalibration import fit_isotonic, fit_per_label, fit_temperature, fit_vector


@pytest.fixture
def labels():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 3)) * 3
    y_true = (rng.random((400, 3)) < expit(logits / [1, 2, 3])).astype(float)
    y_true[rng.random((400, 3)) < 0.2] = np.nan
    return logits, y_true


@pytest.mark.parametrize("fit", [fit_temperature, fit_vector, fit_isotonic])
def test_each_label_has_the_map_of_its_observed_rows(fit, labels):
    logits, y_true = labels
    proba = fit_per_label(fit, logits, y_true).transform(logits)
    for k in range(3):
        rows = ~np.isnan(y_true[:, k])
        alone = fit(logits[rows, k], y_true[rows, k].astype(int))
        np.testing.assert_array_equal(proba[:, k], alone.transform(logits[:, k]))
    assert multilabel_log_loss(y_true, proba) < multilabel_log_loss(y_true, expit(logits))


def test_a_label_of_one_class_keeps_its_sigmoid_and_is_named(labels):
    logits, y_true = labels
    y_true = y_true.copy()
    y_true[:, 1] = np.where(np.isnan(y_true[:, 1]), np.nan, 0.0)
    y_true[:, 2] = np.nan
    fitted = fit_per_label(fit_temperature, logits, y_true)
    assert fitted.unfitted == (1, 2)
    np.testing.assert_array_equal(fitted.transform(logits)[:, 1:], expit(logits[:, 1:]))
    with pytest.raises(ValueError, match="logits has 2 columns, the map was fitted on 3"):
        fitted.transform(logits[:, :2])
