"""Maps of a task against scikit-learn, what they keep, and when there is none."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from crs_assets.science.analyses.recalibration_cases import Cases
from crs_assets.science.analyses.recalibration_fits import fit_map, methods, recalibrated
from crs_assets.science.metrics import macro_auroc, per_class_auroc
from crs_assets.science.recalibration import PerLabelMap, TemperatureMap


def cases_of(labels, logits, groups=None):
    names = [f"i{row:05d}" for row in range(len(labels))]
    return Cases.of(names, names if groups is None else groups, np.asarray(labels), np.asarray(logits))


def softmax_cases(n=600, k=4, factor=3.0, seed=0):
    """Labels drawn from the softmax of logits that are then multiplied by ``factor``."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, k)) * 1.5
    labels = (rng.random((n, 1)) > softmax(logits, axis=1).cumsum(axis=1)).sum(axis=1).clip(0, k - 1)
    return cases_of(labels, (factor * logits).astype(np.float32))


def label_cases(n=600, labels=3, factor=3.0, seed=0):
    """The same for independent labels; a tenth of the cells is not observed."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, labels)) * 1.5 - 0.5
    truth = (rng.random(logits.shape) < expit(logits)).astype(np.float32)
    truth[rng.random(logits.shape) < 0.1] = np.nan
    return cases_of(truth, (factor * logits).astype(np.float32))


def test_logits_scaled_by_three_are_repaired_by_a_temperature_of_three():
    assert fit_map("temperature", softmax_cases(20_000), range(4), "multiclass").mapping.temperature == pytest.approx(
        3, rel=0.03
    )
    fit = fit_map("temperature", label_cases(20_000), range(3), "multilabel")
    assert [one.temperature for one in fit.mapping.maps] == pytest.approx([3, 3, 3], rel=0.05)


def test_platt_is_the_logistic_regression_of_each_label_on_its_observed_cells():
    cases = label_cases()
    mapped = recalibrated(fit_map("platt", cases, range(3), "multilabel").mapping, cases.logits, "multilabel")
    for label in range(3):
        seen = ~np.isnan(cases.labels[:, label])
        x = cases.logits[:, [label]].astype(np.float64)
        reference = LogisticRegression(C=1e10, tol=1e-10, max_iter=1000).fit(x[seen], cases.labels[seen, label])
        np.testing.assert_allclose(mapped.probabilities[:, label], reference.predict_proba(x)[:, 1], atol=1e-4)


def test_isotonic_is_scikit_learns_of_each_label_and_of_each_class_renormalised():
    cases = label_cases()
    mapped = recalibrated(fit_map("isotonic", cases, range(3), "multilabel").mapping, cases.logits, "multilabel")
    stated = expit(cases.logits.astype(np.float64))
    for label in range(3):
        seen = ~np.isnan(cases.labels[:, label])
        curve = IsotonicRegression(out_of_bounds="clip").fit(stated[seen, label], cases.labels[seen, label])
        np.testing.assert_allclose(mapped.probabilities[:, label], curve.predict(stated[:, label]), atol=1e-12)
    cases = softmax_cases()
    mapped = recalibrated(fit_map("isotonic", cases, range(4), "multiclass").mapping, cases.logits, "multiclass")
    stated = softmax(cases.logits.astype(np.float64), axis=1)
    curves = np.stack(
        [
            IsotonicRegression(out_of_bounds="clip").fit(stated[:, k], cases.labels == k).predict(stated[:, k])
            for k in range(4)
        ],
        axis=1,
    )
    np.testing.assert_allclose(mapped.probabilities, curves / curves.sum(axis=1, keepdims=True), atol=1e-12)
    assert mapped.logits is None


def test_a_temperature_of_one_is_no_map_to_the_bit():
    for cases, task, one in (
        (softmax_cases(), "multiclass", TemperatureMap(1.0)),
        (label_cases(), "multilabel", PerLabelMap((TemperatureMap(1.0),) * 3, ())),
    ):
        plain, mapped = (recalibrated(mapping, cases.logits, task) for mapping in (None, one))
        for name in ("probabilities", "scores", "logits"):
            np.testing.assert_array_equal(getattr(mapped, name), getattr(plain, name))


def test_a_temperature_keeps_the_auroc_of_every_label_exactly():
    cases, other = label_cases(seed=1), label_cases(seed=2)
    mapping = fit_map("temperature", cases, range(3), "multilabel").mapping
    assert all(one.temperature != 1 for one in mapping.maps)
    plain, mapped = (recalibrated(each, other.logits, "multilabel") for each in (None, mapping))
    np.testing.assert_array_equal(
        per_class_auroc(other.labels, mapped.scores), per_class_auroc(other.labels, plain.scores)
    )


def test_of_a_softmax_a_temperature_keeps_the_top_label_but_may_reorder_images():
    # By hand: p(class 0) of (2, 2, -9) is 0.500 and of (1, 0, 0) it is e / (e + 2) = 0.576. Divided by 4, it is
    # 1 / (2 + e^-2.75) = 0.484 and e^0.25 / (e^0.25 + 2) = 0.391: the order of the two images turns.
    logits = np.array([[2, 2, -9], [1, 0, 0]], np.float32)
    labels = np.array([0, 1])
    aurocs = []
    for temperature in (1.0, 4.0):
        mapped = recalibrated(TemperatureMap(temperature), logits, "multiclass")
        aurocs.append(macro_auroc(labels, mapped.scores, classes=[0]))
        np.testing.assert_array_equal(mapped.probabilities.argmax(axis=1), logits.argmax(axis=1))
    assert aurocs == [0.0, 1.0]


def test_of_two_classes_a_temperature_keeps_the_auroc():
    cases = softmax_cases(k=2)
    aurocs = [
        macro_auroc(cases.labels, recalibrated(TemperatureMap(t), cases.logits, "multiclass").scores)
        for t in (1.0, 0.7, 7.0)
    ]
    assert aurocs[0] == pytest.approx(aurocs[1], abs=1e-12) == pytest.approx(aurocs[2], abs=1e-12)


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_maps_do_not_depend_on_the_order_of_rows(task):
    cases = softmax_cases(90) if task == "multiclass" else label_cases(90)
    order = np.random.default_rng(5).permutation(90)
    names = [cases.ids[row] for row in order]
    again = Cases.of(names, names, cases.labels[order], cases.logits[order])
    for method in methods(task):
        fits = [fit_map(method, one, range(3), task) for one in (cases, again)]
        mapped = [recalibrated(fit.mapping, cases.logits, task).probabilities for fit in fits]
        np.testing.assert_array_equal(*mapped)
        assert fits[0].rows_sha256 == fits[1].rows_sha256 == cases.sha256
        assert fits[0].n_fit == 90


def test_a_scored_class_without_a_case_leaves_only_a_temperature():
    cases = softmax_cases(200)
    kept = cases.take(np.flatnonzero(cases.labels != 2))
    reasons = {method: fit_map(method, kept, range(4), "multiclass").reason for method in methods("multiclass")}
    absent = "1 of 4 scored classes have no case"
    assert reasons == {"temperature": None, "vector": absent, "isotonic": absent, "dirichlet": absent}
    # A class that is not scored may be absent.
    assert fit_map("dirichlet", kept, [0, 1, 3], "multiclass").reason is None
    one = cases.take(np.flatnonzero(cases.labels == 1))
    fit = fit_map("temperature", one, range(4), "multiclass")
    assert (fit.mapping, fit.reason, fit.n_fit, fit.rows_sha256) == (None, "all cases are of one class", 0, None)


def test_a_label_of_one_sign_or_without_a_probe_goes_without_a_map_alone():
    cases = label_cases(200)
    labels, logits = cases.labels.copy(), cases.logits.copy()
    labels[:, 0] = np.where(np.isnan(labels[:, 0]), np.nan, 1.0)
    logits[:, 1] = np.nan
    broken = cases_of(labels, logits)
    for method in methods("multilabel"):
        assert fit_map(method, broken, range(3), "multilabel").unfitted == {0, 1}


def test_a_likelihood_without_a_maximum_gives_no_temperature():
    # Every case is on its right side, so that a lower temperature is always likelier.
    logits = np.array([[-2.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [2.0, -1.0]])
    fit = fit_map("temperature", cases_of([[0.0, 1], [0, 1], [1, 0], [1, 0]], logits), [0, 1], "multilabel")
    # The other label is ranked no better than by chance: the temperature is infinite, which is a map.
    assert fit.unfitted == {0}
    fit = fit_map("temperature", cases_of([0, 1], [[1.0, 0.0], [0.0, 1.0]]), [0, 1], "multiclass")
    assert "has no maximum" in fit.reason


def test_too_few_groups_and_no_cases_are_reasons():
    cases = softmax_cases(60)
    few = cases_of(cases.labels, cases.logits, groups=["a", "b"] * 30)
    assert "2 group(s)" in fit_map("dirichlet", few, range(4), "multiclass").reason
    none = cases.take(np.array([], dtype=np.int64))
    assert {fit_map(method, none, range(4), "multiclass").reason for method in methods("multiclass")} == {
        "there is no case"
    }
    unfitted = cases_of(cases.labels, np.full_like(cases.logits, np.nan))
    assert fit_map("vector", unfitted, range(4), "multiclass").reason == "the probe was not fitted"


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_float32_logits_are_worked_on_in_float64(task):
    cases = softmax_cases(120) if task == "multiclass" else label_cases(120)
    assert cases.logits.dtype == np.float32
    exact = Cases(cases.ids, cases.groups, cases.labels, cases.logits.astype(np.float64))
    for method in methods(task):
        found = [recalibrated(fit_map(method, one, range(3), task).mapping, one.logits, task) for one in (cases, exact)]
        assert {one.probabilities.dtype for one in found} == {np.dtype(np.float64)}
        np.testing.assert_array_equal(found[0].probabilities, found[1].probabilities)
