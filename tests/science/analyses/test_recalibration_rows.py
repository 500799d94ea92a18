"""Rows before and after: signs, what is meaningful, what is null and why."""

import hashlib

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import log_loss

from crs_assets.science.analyses.recalibration import (
    METRICS,
    Judged,
    case_curve,
    full_rows,
    judge,
    null_band_of,
)
from crs_assets.science.analyses.recalibration_cases import Cases
from crs_assets.science.analyses.recalibration_fits import Fit, fit_map
from crs_assets.science.evaluation import Scored, score
from crs_assets.science.protocol import load_protocol
from crs_assets.science.recalibration import PerLabelMap, TemperatureMap
from crs_assets.science.seeding import generator

PROTOCOL = load_protocol("demo-v1")


def drawn(task, n, factor, seed):
    """Labels drawn from what the logits say before they are multiplied by ``factor``."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 3)) * 1.5
    if task == "multilabel":
        labels = (rng.random(logits.shape) < expit(logits)).astype(np.float32)
        labels[rng.random(logits.shape) < 0.1] = np.nan
    else:
        labels = (rng.random((n, 1)) > softmax(logits, axis=1).cumsum(axis=1)).sum(axis=1).clip(0, 2)
    return labels, (factor * logits).astype(np.float32)


def cases_and_judged(task, factor, n_fit=400, n_eval=400, condition="clean"):
    labels, logits = drawn(task, n_fit, factor, seed=1)
    names = [f"i{row:04d}" for row in range(n_fit)]
    cases = Cases.of(names, names, labels, logits)
    labels, logits = drawn(task, n_eval, factor, seed=2)
    return cases, Judged(condition, labels, logits, [0, 1, 2], task, 15)


def band(judged):
    return null_band_of(judged, PROTOCOL.metrics, generator("salt", judged.condition))


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_before_is_the_published_row_of_the_same_predictions(task):
    _, judged = cases_and_judged(task, 2.0)
    published = score(Scored(judged.labels, judged.logits, [0, 1, 2]), task, PROTOCOL, "set", 0)
    assert judged.before == {name: published[name] for name in METRICS}
    rng = generator(PROTOCOL.salt, "null_band", "set", 0)
    assert null_band_of(judged, PROTOCOL.metrics, rng) == published["ece_null"]


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_overconfident_logits_are_repaired(task):
    cases, judged = cases_and_judged(task, 3.0)
    rows = pl.DataFrame(full_rows(cases, [0, 1, 2], task, [judged], {"clean": band(judged)}))
    assert rows["meaningful"].all()
    assert (rows["ece_reduction"] > 0.3).all()
    for name in ("ece", "log_loss", "brier"):
        # An isotonic curve states zeros, and a class that occurs all the same costs 36 nats.
        judged_rows = rows.filter(pl.col("method") != "isotonic") if name == "log_loss" else rows
        assert (judged_rows[f"{name}_difference"] < 0).all()
        assert (rows[f"{name}_difference"] == rows[f"{name}_after"] - rows[f"{name}_before"]).all()
    reduction = -rows["ece_difference"] / rows["ece_before"]
    assert rows["ece_reduction"].to_list() == pytest.approx(reduction.to_list())
    temperature = rows.row(by_predicate=pl.col("method") == "temperature", named=True)
    if task == "multilabel":
        assert temperature["auroc_difference"] == 0.0
    else:
        assert abs(temperature["auroc_difference"]) < 0.02


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_calibrated_predictions_have_no_meaningful_reduction(task):
    fit = Fit("temperature", None, "not fitted")
    rows = []
    for seed in range(30):
        labels, logits = drawn(task, 300, 1.0, seed)
        judged = Judged("clean", labels, logits, [0, 1, 2], task, 15)
        rows.append(judge(fit, judged, band(judged)))
    # The band holds 95 %: more than 5 of 30 outside have a chance of 0.3 %.
    assert sum(row["meaningful"] for row in rows) <= 5
    assert all(row["meaningful"] == (row["ece_before"] > row["ece_null_high"]) for row in rows)
    cases, judged = cases_and_judged(task, 3.0)
    row = judge(fit_map("temperature", cases, [0, 1, 2], task), judged, null_high=1.0)
    assert (row["meaningful"], row["ece_reduction"]) == (False, None)
    assert row["ece_difference"] < 0


def test_the_log_loss_after_is_that_of_the_stated_probabilities():
    cases, judged = cases_and_judged("multiclass", 3.0)
    for method in ("temperature", "vector", "dirichlet", "isotonic"):
        fit = fit_map(method, cases, [0, 1, 2], "multiclass")
        stated = fit.mapping.transform(judged.logits)
        row = judge(fit, judged, 0.0)
        assert row["log_loss_after"] == pytest.approx(log_loss(judged.labels, stated), rel=1e-9)
        truth = np.eye(3)[judged.labels]
        assert row["brier_after"] == pytest.approx(((stated - truth) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize(
    ("task", "mapping"),
    [("multiclass", TemperatureMap(1.0)), ("multilabel", PerLabelMap((TemperatureMap(1.0),) * 3, ()))],
)
def test_temperature_one_changes_nothing(task, mapping):
    _, judged = cases_and_judged(task, 2.0)
    row = judge(Fit("temperature", mapping), judged, 0.0)
    assert [row[f"{name}_difference"] for name in METRICS] == [0.0] * 4


def test_a_map_is_of_its_cases_alone_and_says_which():
    cases, judged = cases_and_judged("multilabel", 3.0)
    rng = np.random.default_rng(0)
    other = Judged("clean", judged.labels, rng.normal(size=judged.logits.shape), [0, 1, 2], "multilabel", 15)
    third = Judged("jpeg-3", judged.labels, judged.logits, [0, 1, 2], "multilabel", 15)
    nulls = {"clean": 0.0, "jpeg-3": 0.0}
    first, second = (full_rows(cases, [0, 1, 2], "multilabel", [one, third], nulls) for one in (judged, other))
    by_condition = [[row for row in rows if row["condition"] == "jpeg-3"] for rows in (first, second)]
    # The clean predictions were replaced, and what the maps do under the other condition is the same to the bit.
    assert by_condition[0] == by_condition[1]
    assert first != second
    expected = hashlib.sha256("".join(f"i{row:04d}\n" for row in range(400)).encode()).hexdigest()
    assert {row["fit_rows_sha256"] for row in first} == {expected}
    assert {(row["n_fit"], row["n_eval"], row["n_cases"], row["all_cases"]) for row in first} == {(400, 400, 400, True)}


def test_a_scored_label_without_a_map_makes_the_row_null_with_the_reason():
    cases, judged = cases_and_judged("multilabel", 3.0)
    labels = cases.labels.copy()
    labels[:, 1] = 0.0
    one_sided = Cases(cases.ids, cases.groups, labels, cases.logits)
    fit = fit_map("platt", one_sided, [0, 1, 2], "multilabel")
    row = judge(fit, judged, 0.0)
    assert row["reason"].startswith("1 of 3 scored labels have no map")
    assert row["ece_before"] == judged.before["ece"]
    assert [row[f"{name}_{part}"] for name in METRICS for part in ("after", "difference")] == [None] * 8
    assert (row["meaningful"], row["ece_reduction"]) == (True, None)
    # Where that label is not scored, it is in nobody's way.
    elsewhere = Judged("transfer", judged.labels, judged.logits, [0, 2], "multilabel", 15)
    row = judge(fit, elsewhere, 0.0)
    assert row["reason"] is None
    assert row["ece_after"] is not None


def test_where_nothing_is_scored_everything_is_null():
    cases, judged = cases_and_judged("multiclass", 3.0)
    none = Judged("clean", judged.labels, judged.logits, [], "multiclass", 15)
    empty = Judged("clean", judged.labels[:0], judged.logits[:0], [0, 1, 2], "multiclass", 15)
    fit = fit_map("temperature", cases, [0, 1, 2], "multiclass")
    for one in (none, empty):
        row = judge(fit, one, band(one))
        assert row["reason"] == "no class is scored here"
        assert [row[f"{name}_before"] for name in METRICS] == [None] * 4
        assert (row["meaningful"], row["ece_null_high"]) == (False, None)


def test_a_curve_has_a_row_per_method_and_count_and_says_where_cases_are_too_few():
    cases, judged = cases_and_judged("multiclass", 3.0, n_fit=120)
    rows = case_curve(cases, [0, 1, 2], "multiclass", judged, 0.0, counts=[50, 100, 200], order=["salt", "set", 0])
    assert [(row["n_cases"], row["n_fit"]) for row in rows] == [(50, 50)] * 4 + [(100, 100)] * 4 + [(200, 0)] * 4
    assert {row["reason"] for row in rows[8:]} == {"200 cases wanted, there are 120"}
    assert {row["fit_rows_sha256"] for row in rows[8:]} == {None}
    order = sorted(cases.ids, key=lambda name: hashlib.sha256(f"salt|set|0|{name}".encode()).hexdigest())
    expected = hashlib.sha256("".join(f"{name}\n" for name in sorted(order[:50])).encode()).hexdigest()
    assert {row["fit_rows_sha256"] for row in rows[:4]} == {expected}


def test_labels_read_from_a_softmax_are_judged_as_read():
    cases, judged = cases_and_judged("multiclass", 3.0)

    def read(logits):
        """Class 2 against the rest, and its contrary."""
        rest = np.logaddexp(logits[:, 0], logits[:, 1])
        return np.stack([logits[:, 2] - rest, rest - logits[:, 2]], axis=1)

    labels = np.stack([judged.labels == 2, judged.labels != 2], axis=1).astype(np.float32)
    one = Judged("transfer", labels, judged.logits, [0], "multiclass", 15, read)
    for method in ("vector", "isotonic"):
        fit = fit_map(method, cases, [0, 1, 2], "multiclass")
        stated = fit.mapping.transform(judged.logits)[:, 2]
        row = judge(fit, one, 0.0)
        assert row["log_loss_after"] == pytest.approx(log_loss(labels[:, 0], stated), rel=1e-6)
        assert row["brier_after"] == pytest.approx(((stated - labels[:, 0]) ** 2).mean())
    assert 0 < band(one) < 1
