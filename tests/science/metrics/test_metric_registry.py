import numpy as np
import pytest

from crs_assets.science import metrics
from crs_assets.science.metrics import METRICS

BOUNDED_0_1 = {name for name in METRICS if "calibration_error" in name} | {
    "macro_auroc",
    "macro_auprc",
    "accuracy",
    "multilabel_brier_score",
}
OTHER_RANGE = {"quadratic_weighted_kappa", "multiclass_brier_score", "multiclass_log_loss", "multilabel_log_loss"}


def predictions(kind, *, good):
    """Forty rows of four classes or labels, with probabilities that lean to the truth or away from it."""
    rng = np.random.default_rng(0)
    sign = 1 if good else -1
    if kind == "multilabel":
        y_true = (rng.random((40, 4)) < 0.5).astype(float)
        return y_true, 1 / (1 + np.exp(-sign * 6 * (y_true - 0.5)))
    y_true = rng.integers(0, 4, 40)
    weights = np.exp(sign * 6 * np.eye(4)[y_true] + 0.01 * np.arange(4))
    return y_true, weights / weights.sum(axis=1, keepdims=True)


CASES = [(name, kind) for name, metric in METRICS.items() for kind in sorted(metric.kind)]


def test_every_metric_is_classified():
    assert set(METRICS) == BOUNDED_0_1 | OTHER_RANGE
    assert not BOUNDED_0_1 & OTHER_RANGE


def test_every_metric_is_public_under_its_own_name():
    for name, metric in METRICS.items():
        assert metric.function is getattr(metrics, name)
        assert metric.kind


def test_names_tell_the_direction():
    for name, metric in METRICS.items():
        is_lower = name.endswith(("_error", "_loss", "brier_score"))
        assert metric.direction == ("lower_is_better" if is_lower else "higher_is_better"), name


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_good_predictions_beat_bad_ones_in_the_stated_direction(name, kind):
    metric = METRICS[name]
    good, bad = (metric.function(*predictions(kind, good=good)) for good in (True, False))
    assert good > bad if metric.direction == "higher_is_better" else good < bad
    if name in BOUNDED_0_1:
        assert 0 <= min(good, bad) <= max(good, bad) <= 1


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_row_order_and_float32_do_not_matter(name, kind):
    y_true, proba = predictions(kind, good=True)
    value = METRICS[name].function(y_true, proba)
    order = np.random.default_rng(1).permutation(len(y_true))
    assert METRICS[name].function(y_true[order], proba[order]) == pytest.approx(value, abs=1e-12)
    assert METRICS[name].function(y_true, proba.astype(np.float32)) == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_object_dtype_and_nan_are_refused(name, kind):
    y_true, proba = predictions(kind, good=True)
    with pytest.raises(ValueError, match="dtype object"):
        METRICS[name].function(y_true.astype(object), proba)
    proba[3, 0] = np.nan
    with pytest.raises(ValueError, match="NaN or infinite"):
        METRICS[name].function(y_true, proba)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_inputs_are_not_written_to(name, kind):
    y_true, proba = predictions(kind, good=True)
    y_true.setflags(write=False)
    proba.setflags(write=False)
    before = proba.copy()
    METRICS[name].function(y_true, proba)
    np.testing.assert_array_equal(proba, before)
