import sys
from dataclasses import fields

import numpy as np
import pytest
from probe_cases import (
    LAMBDAS,
    binary_labels,
    classes,
    features,
    sigmoid_minimum,
    sigmoid_objective,
    softmax_objective,
)
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from crs_assets.science.probes import fit_linear_path, predict_logits, standardisation

GAP = 2e-8
"""What is promised of a fit asked for 1e-8, against an independent float64 optimum."""


def fit(x, y, rows=None, lambdas=LAMBDAS, scale=None, **keywords):
    rows = np.arange(len(x)) if rows is None else rows
    mean, own_scale = standardisation(x, rows, std_floor=0.25, std_zero=1e-8)
    scale = own_scale if scale is None else scale
    kind = "multiclass" if np.ndim(y) == 1 else "multilabel"
    return fit_linear_path(x, y, [rows], lambdas, kind=kind, mean=mean, scale=scale, **keywords), mean, scale


@pytest.fixture(params=[1, 60], ids=["newton", "quasi-newton"])
def either_phase(request, monkeypatch):
    """Newton steps from the start, or as late as usual, which in small problems is hardly ever."""
    from crs_assets.science.probes import solver

    monkeypatch.setattr(solver, "_QUASI_NEWTON_PASSES", request.param)


@pytest.mark.usefixtures("either_phase")
@pytest.mark.parametrize(("n", "d"), [(150, 12), (60, 40), (25, 40), (12, 60)])
def test_multilabel_reaches_the_minimum_found_by_scipy(n, d):
    x = features(n, d)
    y = binary_labels(x, labels=3)
    lambdas = LAMBDAS[::3]
    path, mean, scale = fit(x, y, lambdas=lambdas)
    assert path.converged.all()
    assert path.notes == ()
    for p, penalty in enumerate(lambdas):
        for label in range(3):
            least, logits = sigmoid_minimum(x, y[:, label], mean, scale, penalty)
            weights, intercept = path.weights[0, p, label], path.intercepts[0, p, label]
            value = sigmoid_objective(x, y[:, label], scale, penalty, weights, intercept)
            assert value <= least * (1 + GAP)
            assert path.objective[0, p, label] == pytest.approx(value, rel=1e-9)
            assert path.newton_decrement[0, p, label] <= 1e-8 * value
            assert path.duality_gap[0, p, label] >= value - least - 1e-12
            seen = np.isfinite(y[:, label])
            ours = roc_auc_score(y[seen, label], path.logits(x[seen], 0, p)[:, label])
            assert ours == pytest.approx(roc_auc_score(y[seen, label], logits[seen]), abs=1e-4)


@pytest.mark.usefixtures("either_phase")
@pytest.mark.parametrize(("n", "d", "k"), [(200, 10, 3), (50, 70, 4), (20, 70, 5)])
def test_multiclass_reaches_the_minimum_found_by_scikit_learn(n, d, k):
    x = features(n, d, seed=3)
    y = classes(x, k)
    lambdas = LAMBDAS[1::4]
    path, mean, scale = fit(x, y, lambdas=lambdas)
    standardised = (x.astype(np.float64) - mean) / scale
    assert path.converged.all()
    assert path.objective.shape == (1, len(lambdas), 1)
    for p, penalty in enumerate(lambdas):
        reference = LogisticRegression(C=1 / (penalty * n), solver="newton-cholesky", tol=1e-10, max_iter=1000)
        reference.fit(standardised, y)
        folded = reference.coef_ / scale
        least = softmax_objective(x, y, scale, penalty, folded, reference.intercept_ - folded @ mean)
        value = softmax_objective(x, y, scale, penalty, path.weights[0, p], path.intercepts[0, p])
        assert value <= least * (1 + GAP)
        assert path.objective[0, p, 0] == pytest.approx(value, rel=1e-9)
        logits, other = path.logits(x, 0, p), reference.decision_function(standardised)
        for label in range(k):
            ours = roc_auc_score(y == label, (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))[:, label])
            theirs = (other - np.logaddexp.reduce(other, axis=1, keepdims=True))[:, label]
            assert ours == pytest.approx(roc_auc_score(y == label, theirs), abs=1e-4)


def test_many_features_rank_new_rows_as_the_optimum_does():
    # The optimum lies in the span of the rows, so scipy may look for it in their 120 coordinates there.
    x = features(2120, 2048)
    y = binary_labels(x, labels=2)
    rows, new = np.arange(120), np.arange(120, 2120)
    lambdas = [1e-4, 1e-1]
    path, mean, scale = fit(x, y, rows=rows, lambdas=lambdas)
    assert path.converged.all()
    z = (x.astype(np.float64) - mean) / scale
    coordinates = z @ np.linalg.svd(z[rows], full_matrices=False)[2].T
    nothing, unit = np.zeros(120), np.ones(120)
    for p, penalty in enumerate(lambdas):
        for label in range(2):
            seen = np.where(np.arange(len(x)) < 120, y[:, label], np.nan)
            least, logits = sigmoid_minimum(coordinates, seen, nothing, unit, penalty)
            value = sigmoid_objective(x, seen, scale, penalty, path.weights[0, p, label], path.intercepts[0, p, label])
            assert value <= least * (1 + GAP)
            judged = new[np.isfinite(y[new, label])]
            ours = roc_auc_score(y[judged, label], path.logits(x[judged], 0, p)[:, label])
            assert ours == pytest.approx(roc_auc_score(y[judged, label], logits[judged]), abs=1e-4)


@pytest.mark.usefixtures("either_phase")
def test_many_rows_of_few_features_reach_the_minimum():
    x = features(20_000, 6)
    y = binary_labels(x, labels=1)
    path, mean, scale = fit(x, y, lambdas=[1e-5, 1.0])
    assert path.converged.all()
    for p, penalty in enumerate([1e-5, 1.0]):
        least, _ = sigmoid_minimum(x, y[:, 0], mean, scale, penalty)
        value = sigmoid_objective(x, y[:, 0], scale, penalty, path.weights[0, p, 0], path.intercepts[0, p, 0])
        assert value <= least * (1 + GAP)


@pytest.mark.usefixtures("either_phase")
def test_separable_rows_at_the_smallest_penalty():
    x = features(80, 20)
    y = (x[:, :1] > np.median(x[:, 0])).astype(np.float64)
    path, mean, scale = fit(x, y, lambdas=[1e-5])
    least, _ = sigmoid_minimum(x, y[:, 0], mean, scale, 1e-5)
    assert path.converged.all()
    assert sigmoid_objective(x, y[:, 0], scale, 1e-5, path.weights[0, 0, 0], path.intercepts[0, 0, 0]) <= least * (
        1 + GAP
    )


@pytest.mark.usefixtures("either_phase")
def test_streamed_rows_reach_the_same_minimum(monkeypatch):
    from crs_assets.science.probes import design

    x = features(3000, 30)
    y = np.column_stack([binary_labels(x, labels=2), x[:, 0] > np.median(x[:, 0])])
    resident, _, scale = fit(x, y)
    monkeypatch.setattr(design, "_RESIDENT_CELLS", 0)
    monkeypatch.setattr(design, "_DOUBLE_CELLS", 0)
    streamed, _, _ = fit(x, y)
    assert streamed.converged.all()
    for p, penalty in enumerate(LAMBDAS):
        for label in range(3):
            values = [
                sigmoid_objective(x, y[:, label], scale, penalty, f.weights[0, p, label], f.intercepts[0, p, label])
                for f in (resident, streamed)
            ]
            assert values[1] == pytest.approx(values[0], rel=GAP)


@pytest.mark.usefixtures("either_phase")
def test_streamed_softmax_reaches_the_same_minimum(monkeypatch):
    from crs_assets.science.probes import design

    x = features(2500, 20)
    y = classes(x, 3)
    resident, _, _ = fit(x, y)
    monkeypatch.setattr(design, "_RESIDENT_CELLS", 0)
    monkeypatch.setattr(design, "_DOUBLE_CELLS", 0)
    streamed, _, _ = fit(x, y)
    assert streamed.converged.all()
    np.testing.assert_allclose(streamed.objective, resident.objective, rtol=GAP)


@pytest.mark.parametrize("cells", [0, 10**6])
def test_factored_systems_reach_the_same_minimum(monkeypatch, cells):
    from crs_assets.science.probes import design, preconditioning, solver

    monkeypatch.setattr(solver, "_QUASI_NEWTON_PASSES", 10)
    x = features(300, 30)
    separable = np.column_stack([binary_labels(x, labels=1), x[:, 0] > np.median(x[:, 0])])
    for y in (separable, classes(x, 4)):
        with monkeypatch.context() as patch:
            patch.setattr(preconditioning, "_FACTOR_CELLS", 0)
            plain, _, _ = fit(x, y)
        with monkeypatch.context() as patch:
            patch.setattr(preconditioning.FactoredPreconditioner, "cost", staticmethod(lambda *_: 1))
            patch.setattr(design, "_RESIDENT_CELLS", cells)
            factored, _, _ = fit(x, y)
        assert factored.converged.all()
        np.testing.assert_allclose(factored.objective, plain.objective, rtol=GAP)
        assert factored.passes[0, 0].max() < plain.passes[0, 0].max()


def test_the_two_backends_agree():
    x = features(60, 9)
    for y in (classes(x, 3), classes(x, 2), binary_labels(x, labels=2)):
        ours, _, _ = fit(x, y)
        theirs, _, _ = fit(x, y, backend="sklearn")
        np.testing.assert_allclose(ours.objective, theirs.objective, rtol=GAP)
        np.testing.assert_allclose(ours.logits(x, 0, 6), theirs.logits(x, 0, 6), atol=2e-3)
        assert theirs.converged.all()


def test_constant_duplicated_and_zeroed_features():
    x = features(40, 10)
    x[:, 3], x[:, 4] = 7.0, x[:, 5]
    y = binary_labels(x[:, :3], labels=2)
    path, _, scale = fit(x, y)
    assert np.isinf(scale[3])
    assert path.converged.all()
    assert (path.weights[..., 3] == 0).all()
    np.testing.assert_allclose(path.weights[..., 4], path.weights[..., 5], rtol=1e-4, atol=1e-6)


def test_features_that_are_all_constant_leave_the_base_rate():
    x = np.full((10, 4), 2.0, np.float32)
    y = np.array([[1.0]] * 3 + [[0.0]] * 7)
    path, _, _ = fit(x, y)
    assert path.converged.all()
    np.testing.assert_allclose(path.logits(x, 0, 5), np.log(3 / 7), rtol=1e-6)  # 3 positives, 7 negatives


def test_one_positive():
    x = features(50, 8)
    y = np.zeros((50, 1))
    y[7] = 1
    path, mean, scale = fit(x, y)
    assert path.converged.all()
    least, _ = sigmoid_minimum(x, y[:, 0], mean, scale, LAMBDAS[6])
    assert path.objective[0, 6, 0] <= least * (1 + GAP)


def test_a_label_with_one_value_is_not_fitted_and_disturbs_no_other():
    x = features(40, 6)
    y = binary_labels(x, labels=3)
    alone, _, _ = fit(x, y[:, [0, 2]])
    y[:, 1] = np.where(np.isnan(y[:, 1]), np.nan, 0)
    path, _, _ = fit(x, y)
    assert np.isnan(path.weights[0, :, 1]).all()
    assert np.isnan(path.intercepts[0, :, 1]).all()
    assert not path.converged[0, :, 1].any()
    assert path.converged[0][:, [0, 2]].all()
    assert len(path.notes) == 1
    assert path.notes[0].startswith("sample set 0: label 1 has 0 positives")
    np.testing.assert_array_equal(path.weights[0][:, [0, 2]], alone.weights[0])


def test_a_class_without_rows_has_half_a_count_at_the_mean():
    x = features(60, 6)
    y = classes(x, 3)
    y[y == 1] = 3  # class 1 has no row in the sample set
    rows = np.arange(50)
    x[55], y[55] = x[0], 1
    path, _, _ = fit(x, y, rows=rows)
    assert path.converged.all()
    assert "classes [1]" in path.notes[0]
    assert (path.weights[0, :, 1] == 0).all()
    at_mean = path.logits(x[rows].mean(0, keepdims=True), 0, 4)[0].astype(np.float64)
    others = np.logaddexp.reduce(np.delete(at_mean, 1))
    assert at_mean[1] - others == pytest.approx(np.log(0.5 / 50), abs=1e-4)


def test_only_one_class_is_not_fitted():
    x = features(20, 4)
    y = np.arange(20) % 2
    path, _, _ = fit(x, y, rows=np.arange(0, 20, 2))
    assert np.isnan(path.weights).all()
    assert not path.converged.any()
    assert "only class [0]" in path.notes[0]


def test_row_order_changes_nothing_beyond_the_gap():
    x = features(60, 90)
    y = binary_labels(x, labels=2)
    forward, _, _ = fit(x, y)
    backward, _, _ = fit(x, y, rows=np.arange(60)[::-1])
    np.testing.assert_allclose(forward.objective, backward.objective, rtol=GAP)


def test_label_order_and_further_labels_change_nothing_beyond_the_gap():
    x = features(60, 20)
    y = binary_labels(x, labels=4)
    together, _, _ = fit(x, y)
    turned, _, _ = fit(x, y[:, ::-1])
    np.testing.assert_allclose(together.objective, turned.objective[..., ::-1], rtol=GAP)
    for label in range(4):
        alone, _, _ = fit(x, y[:, [label]])
        np.testing.assert_allclose(together.objective[..., label], alone.objective[..., 0], rtol=GAP)


def test_sample_sets_do_not_touch_each_other():
    x = features(90, 20)
    y = classes(x, 3)
    sets = [np.arange(30), np.arange(90)]
    mean, scale = standardisation(x, sets[1], std_floor=0.25, std_zero=1e-8)
    both = fit_linear_path(x, y, sets, LAMBDAS, kind="multiclass", mean=mean, scale=scale)
    for position, rows in enumerate(sets):
        alone = fit_linear_path(x, y, [rows], LAMBDAS, kind="multiclass", mean=mean, scale=scale)
        np.testing.assert_array_equal(both.weights[position], alone.weights[0])


def test_units_of_a_feature_do_not_matter():
    x = features(50, 8)
    y = binary_labels(x, labels=2)
    units = 2.0 ** np.arange(-4, 4)  # powers of two: float32 loses nothing
    a, _, _ = fit(x, y)
    b, _, _ = fit(
        (x * units).astype(np.float32),
        y,
        scale=standardisation(x, np.arange(50), std_floor=0.25, std_zero=1e-8)[1] * units,
    )
    np.testing.assert_allclose(a.weights, b.weights * units, rtol=1e-5, atol=1e-7)


def test_an_offset_of_a_feature_does_not_matter():
    x = features(50, 8)
    y = classes(x, 3)
    shifted, _, _ = fit(x + np.float32(16), y)
    plain, _, _ = fit(x, y)
    np.testing.assert_allclose(shifted.objective, plain.objective, rtol=1e-4)


def test_the_larger_penalty_has_the_smaller_norm_and_the_larger_loss():
    x = features(70, 15)
    path, _, scale = fit(x, classes(x, 3))
    norms = ((path.weights[0] * scale) ** 2).sum((1, 2))
    losses = path.objective[0, :, 0] - LAMBDAS / 2 * norms
    assert (np.diff(norms) < 0).all()
    assert (np.diff(losses) > -1e-9).all()


def test_deterministic():
    x = features(70, 90)
    y = binary_labels(x, labels=3)
    first, _, _ = fit(x, y)
    second, _, _ = fit(x, y)
    for field in fields(first):
        np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name))


def test_half_precision_and_memory_mapped_features(tmp_path):
    x = features(40, 12).astype(np.float16)
    y = classes(x.astype(np.float32), 3)
    np.save(tmp_path / "x.npy", x)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    a, _, _ = fit(mapped, y)
    b, _, _ = fit(x.astype(np.float32), y)
    np.testing.assert_array_equal(a.weights, b.weights)


def test_running_out_of_iterations_is_said():
    x = features(60, 20)
    path, _, _ = fit(x, binary_labels(x, labels=2), max_iterations=2)
    assert not path.converged[0, 0].any()
    assert path.converged[0, -1].all()
    assert np.isfinite(path.weights).all()


def test_logits_of_no_rows_and_of_many_blocks():
    x = features(5000, 3)
    weights, intercepts = np.eye(3)[:2], np.array([1.0, -1.0])
    assert predict_logits(x[:0], weights, intercepts).shape == (0, 2)
    np.testing.assert_allclose(predict_logits(x, weights, intercepts), x[:, :2] + np.float32([1, -1]), rtol=1e-6)


def test_importing_loads_no_solver():
    import subprocess

    code = "import sys, crs_assets.science.probes; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_refusal_is_listed():
    x = features(10, 3)
    x[2, 1] = np.nan
    y = np.full((10, 2), 2.0)
    with pytest.raises(ValueError, match="neither 0, 1 nor NaN") as error:
        fit_linear_path(x, y, [np.arange(10)], [0.0], kind="multilabel", mean=np.zeros(3), scale=np.zeros(3))
    for part in ("lambdas", "scale", "1 of 10 rows hold NaN or infinity, the first is row 2"):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.zeros((10, 2))}, "labels: shape"),
        ({"labels": np.zeros(10)}, "expected integer class indices"),
        ({"labels": np.full(10, -1)}, "negative class index"),
        ({"sample_sets": []}, "sample_sets: none given"),
        ({"sample_sets": [[10]]}, "row indices within 0..9"),
        ({"sample_sets": [[]]}, "at least one"),
        ({"kind": "regression"}, "expected 'multiclass' or 'multilabel'"),
        ({"features": np.zeros((10, 3), int)}, "expected float32 or float16"),
    ],
)
def test_refusals(change, message):
    call = {
        "features": features(10, 3),
        "labels": np.arange(10) % 2,
        "sample_sets": [np.arange(10)],
        "kind": "multiclass",
    }
    with pytest.raises(ValueError, match=message):
        fit_linear_path(**{**call, **change}, lambdas=[1.0], mean=np.zeros(3), scale=np.ones(3))
