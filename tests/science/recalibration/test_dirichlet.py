import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from crs_assets.science.metrics import multiclass_log_loss_from_logits
from crs_assets.science.recalibration import fit_dirichlet
from crs_assets.science.recalibration.folds import balanced_folds


def confused(n=1500, seed=0):
    """Labels follow a linear map of the log-probabilities that mixes classes 0 and 1."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3)) * 2
    weight = np.array([[1.0, 0.6, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.5]])
    chances = softmax(log_softmax(logits, axis=1) @ weight.T + [0.5, 0.0, -0.5], axis=1)
    return logits, (rng.random((n, 1)) > chances.cumsum(axis=1)).sum(axis=1).clip(0, 2)


def test_reaches_the_optimum_of_the_stated_objective():
    logits, y_true = confused(200)
    inputs, penalty = log_softmax(logits, axis=1), 0.05
    off_diagonal = ~np.eye(3, dtype=bool)

    def objective(flat):
        weight, bias = flat[:9].reshape(3, 3), flat[9:]
        loss = -log_softmax(inputs @ weight.T + bias, axis=1)[np.arange(200), y_true].mean()
        return loss + penalty * (np.mean(weight[off_diagonal] ** 2) + np.mean(bias**2))

    reference = minimize(objective, np.append(np.eye(3).ravel(), np.zeros(3)), method="BFGS", options={"gtol": 1e-7})
    fitted = fit_dirichlet(logits, y_true, lambdas=[penalty])
    ours = objective(np.append(fitted.weight.ravel(), fitted.bias))
    assert fitted.penalty == penalty
    # The ridge of 1e-6 toward the identity is all that separates them.
    assert ours == pytest.approx(reference.fun, abs=1e-6)


def test_the_penalty_is_the_one_with_the_best_held_out_loss():
    logits, y_true = confused()
    fitted = fit_dirichlet(logits, y_true, lambdas=(1e-3, 1.0, 1e3))
    assert len(fitted.validation_losses) == 3
    assert fitted.penalty == (1e-3, 1.0, 1e3)[int(np.argmin(fitted.validation_losses))]
    # Mixing classes is real here, so forbidding it costs likelihood.
    assert fitted.validation_losses[2] > min(fitted.validation_losses[:2])
    again = fit_dirichlet(logits, y_true, lambdas=(1e3, 1e-3, 1.0))
    assert again.penalty == fitted.penalty


def test_improves_labels_it_has_not_seen():
    fitted = fit_dirichlet(*confused(seed=1))
    logits, y_true = confused(seed=2)
    before = multiclass_log_loss_from_logits(y_true, logits)
    assert multiclass_log_loss_from_logits(y_true, fitted.transform_logits(logits)) < before - 0.02


def test_a_shift_of_the_logits_changes_nothing():
    logits, y_true = confused(300)
    fitted = fit_dirichlet(logits, y_true, lambdas=[0.1])
    shifted = fit_dirichlet(logits + np.arange(300)[:, None], y_true, lambdas=[0.1])
    np.testing.assert_allclose(shifted.transform(logits + 7), fitted.transform(logits), atol=1e-8)
    np.testing.assert_allclose(fitted.transform(log_softmax(logits, axis=1)), fitted.transform(logits), atol=1e-12)


def test_saturated_logits_and_an_absent_class_leave_a_finite_map():
    rng = np.random.default_rng(3)
    y_true = rng.integers(0, 3, 60)  # class 3 never occurs
    logits = 60.0 * np.eye(4)[y_true] + rng.normal(size=(60, 4))
    fitted = fit_dirichlet(logits, y_true, lambdas=[1e-4, 1e-2])
    proba = fitted.transform(logits)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-12)


def test_row_order_does_not_matter():
    logits, y_true = confused(200)
    order = np.random.default_rng(0).permutation(200)
    groups = np.arange(200) // 2
    for given in (None, groups):
        whole = fit_dirichlet(logits, y_true, groups=given, lambdas=(1e-2, 1.0))
        moved = None if given is None else given[order]
        mixed = fit_dirichlet(logits[order], y_true[order], groups=moved, lambdas=(1e-2, 1.0))
        assert mixed.penalty == whole.penalty
        np.testing.assert_allclose(mixed.weight, whole.weight, atol=1e-6)


def test_no_group_is_on_two_sides_and_classes_are_spread():
    rng = np.random.default_rng(0)
    groups = np.arange(200) % 60
    labels = np.where(
        np.isin(np.arange(200), [0, 3, 6, 9, 12, 15]), 1, 0
    )  # six groups hold the rare class, in one row each
    folds = balanced_folds(rng.normal(size=(200, 2)), labels, groups, 3)
    assert all(len(np.unique(folds[groups == group])) == 1 for group in np.unique(groups))
    rare = {fold: len(np.unique(groups[(folds == fold) & (labels == 1)])) for fold in range(3)}
    assert set(rare.values()) == {len(np.unique(groups[labels == 1])) // 3}


def test_input_is_checked():
    logits, y_true = confused(30)
    with pytest.raises(ValueError, match="on one binary logit Dirichlet calibration is fit_vector"):
        fit_dirichlet(logits[:, 0], y_true == 0)
    with pytest.raises(ValueError, match="at least one value above 0"):
        fit_dirichlet(logits, y_true, lambdas=[])
    with pytest.raises(ValueError, match="n_folds is 3 for 2 groups"):
        fit_dirichlet(logits, y_true, groups=np.arange(30) % 2)
    with pytest.raises(ValueError, match="one group per row"):
        fit_dirichlet(logits, y_true, groups=[1, 2])
    with pytest.raises(ValueError, match=r"fitted on \(n, 3\)"):
        fit_dirichlet(logits, y_true, lambdas=[1.0]).transform(logits[:, :2])


@pytest.mark.parametrize("scale", [0.01, 1.0, 300.0])
def test_logits_of_any_scale_can_be_fitted(scale):
    logits, y_true = confused(150)
    proba = fit_dirichlet(logits * scale, y_true, lambdas=[1e-3, 1.0]).transform(logits * scale)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-12)
