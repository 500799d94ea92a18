"""Fitting one cell and seed: which rows are used, which penalty is chosen, what is predicted where."""

import numpy as np
import polars as pl
import pytest

from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.probing import ProbeTask, fit_probe, prediction_frame
from crs_assets.science.protocol import load_protocol
from crs_assets.science.splits import CALIBRATION, TEST, TRAIN, VALIDATION

PROTOCOL = load_protocol("demo-v1")
WORDS = {"title": "t", "specialty": "chest", "label_source": "s", "licence": "l", "access": "open", "citation": "c"}
ROLES = (TRAIN,) * 80 + (VALIDATION,) * 40 + (CALIBRATION,) * 10 + (TEST,) * 30


def space(task):
    return DatasetSpec(id="set", task=task, classes=("a", "b", "c"), reader="manifest", group="image", **WORDS)


def make_task(task="multiclass", seed=0):
    rng = np.random.default_rng(seed)
    n = len(ROLES)
    classes = rng.integers(0, 3, n)
    features = (rng.normal(size=(n, 6)) + 1.2 * np.eye(6)[classes]).astype(np.float32)
    ids = [f"set/{i:03d}" for i in range(n)]
    if task == "multilabel":
        labels = {f"label:{name}": (classes == k).astype(int) for k, name in enumerate("abc")}
        labels["label:b"] = np.where(rng.random(n) < 0.2, -1, labels["label:b"])
    else:
        labels = {"label": classes}
    order = rng.permutation(n)
    enters = np.full(n, np.nan)
    for role in (TRAIN, VALIDATION):
        rows = np.flatnonzero(np.array(ROLES)[np.argsort(order)] == role)
        enters[rows] = np.repeat([0.05, 0.25, 1.0], [len(rows) // 4, len(rows) // 4, len(rows) - len(rows) // 2])
    roles = np.array(ROLES)[np.argsort(order)].tolist()
    splits = pl.DataFrame({"image_id": ids, "role": roles, "enters_at": pl.Series(enters).fill_nan(None)})
    return ProbeTask(features, pl.DataFrame({"image_id": ids, **labels}), splits, space(task))


def test_a_fraction_holds_every_smaller_one_and_other_roles_have_no_fraction():
    task = make_task()
    sizes = [len(task.rows(TRAIN, fraction)) for fraction in PROTOCOL.data.fractions]
    assert sizes == [20, 40, 80]
    assert set(task.rows(TRAIN, 0.05)) < set(task.rows(TRAIN, 0.25)) < set(task.rows(TRAIN))
    assert len(task.rows(TEST, 0.05)) == len(task.rows(TEST)) == 30


def test_the_chosen_penalty_has_the_least_validation_loss_of_its_own_fraction():
    task = make_task()
    probe = fit_probe(task, PROTOCOL)
    assert (probe.n_fit, probe.n_val) == ((20, 40, 80), (10, 20, 40))
    y = task.index["label"].to_numpy()
    for position, fraction in enumerate(PROTOCOL.data.fractions):
        rows = task.rows(VALIDATION, fraction)
        losses = []
        for k in range(len(PROTOCOL.probe.lambdas)):
            logits = task.features[rows].astype(float) @ probe.path.weights[position, k].astype(float).T
            logits += probe.path.intercepts[position, k]
            losses.append(np.mean(np.logaddexp.reduce(logits, axis=1) - logits[range(len(rows)), y[rows]]))
        assert probe.choices[position].index.tolist() == [int(np.argmin(losses))]


@pytest.mark.parametrize("kind", ["multiclass", "multilabel"])
def test_labels_of_test_and_calibration_are_never_looked_at(kind):
    task = make_task(kind)
    hidden = task.rows(TEST).tolist() + task.rows(CALIBRATION).tolist()
    columns = [name for name in task.index.columns if name.startswith("label")]
    blind = task.index.with_row_index().with_columns(
        pl.when(pl.col("index").is_in(hidden)).then(0).otherwise(pl.col(name)).alias(name) for name in columns
    )
    one = fit_probe(task, PROTOCOL)
    other = fit_probe(ProbeTask(task.features, blind.drop("index"), task.splits, task.space), PROTOCOL)
    np.testing.assert_array_equal(one.path.weights, other.path.weights)
    assert [c.index.tolist() for c in one.choices] == [c.index.tolist() for c in other.choices]


def test_predictions_are_the_chosen_probe_on_each_set_of_images():
    task = make_task("multilabel")
    probe = fit_probe(task, PROTOCOL, fractions=[0.25, 1.0])
    rows = task.rows(TEST)
    ids = [f"set/{i:03d}" for i in rows]
    frame = prediction_frame(
        probe, {(TEST, "clean"): (ids, task.features[rows]), (TEST, "jpeg-3"): (ids[:2], task.features[:2])}
    )
    assert frame.columns == ["fraction", "role", "condition", "image_id", "logits"]
    assert frame.group_by("fraction", "condition").len().sort("fraction", "condition")["len"].to_list() == [
        30,
        2,
        30,
        2,
    ]
    weights, intercepts = probe.chosen(1)
    mine = frame.filter((pl.col("fraction") == 1.0) & (pl.col("condition") == "clean"))
    assert mine["image_id"].to_list() == ids
    expected = task.features[rows].astype(float) @ weights.astype(float).T + intercepts
    np.testing.assert_allclose(mine["logits"].to_numpy(), expected, rtol=1e-5, atol=1e-5)
    # Each label has its own penalty: its weights are those of its own place on the path.
    for label, k in enumerate(probe.choices[1].index):
        np.testing.assert_array_equal(weights[label], probe.path.weights[1, k, label])


def test_given_labels_are_fitted_instead_of_the_indexs_own():
    task = make_task()
    constant_on_train = np.roll(task.index["label"].to_numpy(), 1)
    assert not np.array_equal(
        fit_probe(task, PROTOCOL, labels=constant_on_train).path.weights, fit_probe(task, PROTOCOL).path.weights
    )


def test_features_index_and_splits_that_disagree_are_refused():
    task = make_task()
    for features, index in ((task.features[1:], task.index), (task.features, task.index.reverse())):
        with pytest.raises(ValueError, match="do not list the same images; materialize features and splits again"):
            ProbeTask(features, index, task.splits, task.space)
