"""One row of metrics per run, against scikit-learn and by hand; classes outside K, labels without a fit."""

import numpy as np
import polars as pl
import pytest
from sklearn import metrics as sk

from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.evaluation import METRICS, Scored, align_target_labels, class_rows, macro, reliability, score
from crs_assets.science.protocol import load_protocol

PROTOCOL = load_protocol("demo-v1")
RNG = np.random.default_rng(3)
CLASSES = RNG.integers(0, 3, 80)
SOFT = (RNG.normal(size=(80, 3)) + 1.5 * np.eye(3)[CLASSES]).astype(np.float32)
LABELS = (RNG.random((80, 3)) < [0.5, 0.3, 0.4]).astype(np.float32)
LABELS[RNG.random((80, 3)) < 0.1] = np.nan
PER_LABEL = (RNG.normal(size=(80, 3)) + np.nan_to_num(LABELS)).astype(np.float32)


def space(name, classes, task="multilabel"):
    words = {"title": "t", "specialty": "chest", "label_source": "s", "licence": "l", "access": "open", "citation": "c"}
    return DatasetSpec(id=name, task=task, classes=classes, reader="manifest", group="image", **words)


def test_a_softmax_run_has_the_metrics_of_scikit_learn():
    row = score(Scored(CLASSES, SOFT, [0, 1, 2]), "ordinal", PROTOCOL, "set", 0)
    proba = np.exp(SOFT.astype(float))
    proba /= proba.sum(axis=1, keepdims=True)
    # Probabilities of a class and their log order rows alike only if rounding makes no ties, as here.
    assert row["auroc"] == pytest.approx(sk.roc_auc_score(CLASSES, proba, multi_class="ovr", average="macro"))
    assert row["log_loss"] == pytest.approx(sk.log_loss(CLASSES, proba))
    assert row["accuracy"] == pytest.approx(sk.accuracy_score(CLASSES, proba.argmax(axis=1)))
    kappa = sk.cohen_kappa_score(CLASSES, proba.argmax(axis=1), weights="quadratic")
    assert row["quadratic_weighted_kappa"] == pytest.approx(kappa)
    assert tuple(row) == METRICS


def test_a_multilabel_run_averages_over_the_scored_labels_and_masks_what_is_not_observed():
    row = score(Scored(LABELS, PER_LABEL, [0, 2]), "multilabel", PROTOCOL, "set", 0)
    seen = [~np.isnan(LABELS[:, c]) for c in range(3)]
    aurocs = [sk.roc_auc_score(LABELS[seen[c], c], PER_LABEL[seen[c], c]) for c in (0, 2)]
    assert row["auroc"] == pytest.approx(np.mean(aurocs))
    proba = 1 / (1 + np.exp(-PER_LABEL.astype(float)))
    losses = [sk.log_loss(LABELS[seen[c], c], proba[seen[c], c]) for c in (0, 2)]
    assert row["log_loss"] == pytest.approx(np.mean(losses))
    assert np.isnan(row["accuracy"])
    assert tuple(row) == METRICS


def test_a_label_without_a_fit_disturbs_no_other():
    broken = PER_LABEL.copy()
    broken[:, 1] = np.nan
    run, whole = Scored(LABELS, broken, [0, 2]), Scored(LABELS, PER_LABEL, [0, 2])
    assert score(run, "multilabel", PROTOCOL, "set", 0) == pytest.approx(
        score(whole, "multilabel", PROTOCOL, "set", 0), nan_ok=True
    )
    rows = class_rows(run, space("set", ("a", "b", "c")))
    assert np.isnan(rows[1]["auroc"])
    assert [row["scored"] for row in rows] == [True, False, True]
    assert reliability(run, "multilabel", n_bins=15).equals(reliability(whole, "multilabel", n_bins=15))


@pytest.mark.parametrize(
    ("run", "task"),
    [
        (Scored(LABELS, PER_LABEL, []), "multilabel"),
        (Scored(LABELS, np.full_like(PER_LABEL, np.nan), [0, 1]), "multilabel"),
        (Scored(CLASSES, np.full_like(SOFT, np.nan), [0, 1]), "multiclass"),
        (Scored(CLASSES, SOFT, []), "multiclass"),
    ],
)
def test_where_nothing_can_be_scored_every_metric_is_unknown(run, task):
    row = score(run, task, PROTOCOL, "set", 0)
    assert tuple(row) == METRICS
    assert all(np.isnan(value) for value in row.values())
    assert reliability(run, task, n_bins=15).height == 0


def test_the_null_band_follows_from_the_runs_name_and_the_probabilities():
    run = Scored(CLASSES, SOFT, [0, 1, 2])
    bands = [score(run, "multiclass", PROTOCOL, *name)["ece_null"] for name in (("a", 0), ("a", 0), ("a", 1))]
    assert bands[0] == bands[1] != bands[2]


def test_macro_of_a_class_with_one_side_leaves_it_out():
    # Class 2 never occurs; of the others class 0 is ranked perfectly and class 1 its mirror.
    logits = np.array([[2, 0, 0], [1, 0, 0], [0, 1, 0], [0, 2, 0]], np.float32)
    assert macro(Scored(np.array([0, 0, 1, 1]), logits, [0, 1, 2]), "multiclass") == 1.0


def test_target_labels_are_matched_by_name():
    source, target = space("s", ("a", "b", "c")), space("t", ("c", "other", "a"))
    aligned = align_target_labels(np.array([[1, 0, 0], [0, 1, np.nan]], np.float32), target, source)
    np.testing.assert_array_equal(aligned, [[0, np.nan, 1], [np.nan, np.nan, 0]])
    soft, grades = space("s", ("a", "b", "c"), "multiclass"), space("t", ("c", "a"), "multiclass")
    np.testing.assert_array_equal(align_target_labels(np.array([0, 1, 0]), grades, soft), [2, 0, 2])
    with pytest.raises(ValueError, match=r"has the classes \['z'\], which its source s lacks"):
        align_target_labels(np.array([0]), space("t", ("a", "z"), "multiclass"), soft)
    with pytest.raises(ValueError, match="they must agree"):
        align_target_labels(np.array([0]), grades, source)


def test_reliability_bins_hold_every_observed_cell_once():
    table = reliability(Scored(LABELS, PER_LABEL, [0, 2]), "multilabel", n_bins=15)
    assert table["count"].sum() == (~np.isnan(LABELS[:, [0, 2]])).sum()
    assert table.filter(pl.col("count") == 0).height == 0
    total = (table["count"] * table["frequency"]).sum()
    assert total == pytest.approx(np.nansum(LABELS[:, [0, 2]]))
