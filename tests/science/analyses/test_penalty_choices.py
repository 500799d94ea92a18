"""Penalties chosen another way: which are chosen, what they predict, what follows for axes and profiles."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, log_softmax
from sklearn.metrics import log_loss

from crs_assets.science.analyses.penalty_choices import (
    ALL_VALIDATION,
    PUBLISHED,
    PenaltyChoices,
    calibration_error,
    choice_axes,
    choice_profiles,
    penalty_choices,
)
from crs_assets.science.analyses.replicated_metrics import SeedMetrics
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.evaluation import Scored, score
from crs_assets.science.probing import ProbeTask, fit_probe
from crs_assets.science.protocol import AXES, load_protocol
from crs_assets.science.scoring import normalize
from crs_assets.science.splits import TRAIN, VALIDATION

PROTOCOL = load_protocol("demo-v1")
SKILL = load_protocol("demo-v1-skill")
WORDS = {"title": "t", "specialty": "chest", "label_source": "s", "licence": "l", "access": "open", "citation": "c"}
FIT, KEPT = 90, 60
ENTERS = ([0.05] * 30 + [0.25] * 20 + [1.0] * 40) + ([0.05] * 12 + [0.25] * 18 + [1.0] * 30)


def make_task(kind, seed=3):
    """Weak signal, so that fractions and validation subsets choose differently."""
    rng = np.random.default_rng(seed)
    n = FIT + KEPT
    classes = rng.integers(0, 3, n)
    features = (rng.normal(size=(n, 8)) + 0.7 * np.eye(8)[classes]).astype(np.float32)
    ids = [f"set/{i:03d}" for i in range(n)]
    labels = {"label": classes}
    if kind == "multilabel":
        labels = {f"label:{name}": (classes == k).astype(int) for k, name in enumerate("abc")}
    splits = pl.DataFrame({"image_id": ids, "role": [TRAIN] * FIT + [VALIDATION] * KEPT, "enters_at": ENTERS})
    space = DatasetSpec(id="set", task=kind, classes=("a", "b", "c"), reader="manifest", group="image", **WORDS)
    return ProbeTask(features, pl.DataFrame({"image_id": ids, **labels}), splits, space), classes


@pytest.fixture(scope="module", params=["multiclass", "multilabel"])
def fitted(request):
    task, classes = make_task(request.param)
    probe = fit_probe(task, PROTOCOL)
    return task, classes, probe, penalty_choices(probe.path, task, PROTOCOL)


def losses(task, classes, path, position, rows):
    """Validation log loss by scikit-learn of every penalty, (P, L)."""
    found = []
    for weights, intercepts in zip(path.weights[position], path.intercepts[position], strict=True):
        logits = task.features[rows].astype(float) @ weights.astype(float).T + intercepts
        if task.space.task == "multilabel":
            found.append([log_loss(classes[rows] == k, expit(logits[:, k])) for k in range(3)])
        else:
            found.append([log_loss(classes[rows], np.exp(log_softmax(logits, axis=1)), labels=[0, 1, 2])])
    return np.array(found)


def test_published_choices_are_those_of_the_fit(fitted):
    _, _, probe, choices = fitted
    assert choices.names[:2] == (PUBLISHED, ALL_VALIDATION)
    np.testing.assert_array_equal(choices.index[0], [choice.index for choice in probe.choices])


def test_all_of_validation_chooses_by_its_own_log_loss_at_every_fraction(fitted):
    task, classes, probe, choices = fitted
    whole = np.arange(FIT, FIT + KEPT)
    for position in range(3):
        expected = losses(task, classes, probe.path, position, whole).argmin(axis=0)
        np.testing.assert_array_equal(choices.index[1, position], expected)
    # At all labels the subset is all of validation; at the smallest fraction a fifth of it chooses otherwise.
    np.testing.assert_array_equal(choices.index[0, -1], choices.index[1, -1])
    assert (choices.index[0, 0] != choices.index[1, 0]).any()


def test_each_penalty_of_the_grid_holds_throughout(fitted):
    _, _, probe, choices = fitted
    lambdas = PROTOCOL.probe.lambdas
    assert choices.names[2:] == tuple(f"lambda {value:.3g}" for value in lambdas)
    assert (choices.names[2], choices.names[-1]) == ("lambda 1e-05", "lambda 1e+03")
    for at in range(len(lambdas)):
        assert set(choices.index[2 + at].ravel()) == {at}
    assert choices.index.shape == (15, 3, probe.path.objective.shape[2])


def test_logits_are_those_of_the_chosen_weights(fitted):
    task, _, probe, choices = fitted
    for position in (0, 2):
        for index, logits in zip(
            choices.index[:, position], choices.logits(probe.path, task.features, position), strict=True
        ):
            per_class = np.broadcast_to(index, 3)
            expected = [
                task.features.astype(float) @ probe.path.weights[position, at, k].astype(float)
                + probe.path.intercepts[position, at, k]
                for k, at in enumerate(per_class)
            ]
            assert logits.dtype == np.float32
            np.testing.assert_allclose(logits, np.stack(expected, axis=1), rtol=0, atol=1e-5)


def test_converged_asks_every_fraction_of_the_scored_problems_alone(fitted):
    _, _, probe, _ = fitted
    flags = np.ones((2, 3, 2), dtype=bool)  # fractions, penalties, problems
    flags[1, 2, 0] = False
    path = replace(probe.path, converged=flags)
    choices = PenaltyChoices(("a", "b", "c"), np.array([[[0, 0], [2, 0]], [[2, 2], [1, 2]], [[0, 2], [2, 2]]]))
    assert choices.converged(path, [0, 1]).tolist() == [False, True, False]
    assert choices.converged(path, [1]).tolist() == [True, True, True]


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_the_calibration_error_is_the_published_one(task):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(80, 3)).astype(np.float32)
    labels = rng.integers(0, 3, 80) if task == "multiclass" else (rng.random((80, 3)) < 0.4).astype(np.float32)
    if task == "multilabel":
        labels[:20, 1] = np.nan
    run = Scored(labels, logits, [0, 2])
    assert calibration_error(run, task, 15) == score(run, task, PROTOCOL, "set", 0)["ece"]
    logits[:, 2] = np.nan
    assert np.isnan(calibration_error(Scored(labels, logits, [2]), task, 15))


def seed_metrics():
    """Two choices: clean .9 and .8, drops of .1 and .2 (all conditions alike), no target."""
    return SeedMetrics(
        curve=np.array([[0.72, 0.81, 0.9], [0.6, 0.7, 0.8]]),
        degraded=np.array([[0.8] * 4, [0.6] * 4]),
        ece=np.array([0.05, 0.1]),
        transfer=np.empty((2, 0)),
    )


def test_axes_of_each_reading_by_hand_and_none_where_a_fit_did_not_converge():
    table = choice_axes(seed_metrics(), ("x", "y"), np.array([True, True]), (PROTOCOL, SKILL), distinct_fractions=True)
    raw = table.filter(pl.col("reading") == PROTOCOL.id).select(AXES).rows()
    # Retention (.8 + .9) / 2 and (.75 + .875) / 2; mean and worst drop are equal.
    assert raw[0] == pytest.approx((0.9, 0.05, 0.85, 0.1))
    assert raw[1] == pytest.approx((0.8, 0.1, 0.8125, 0.2))
    # Above chance: (.22 + .31) / 2 / .4, and .1 / .4.
    skill = table.filter(pl.col("reading") == SKILL.id).select(AXES).row(0)
    assert skill == pytest.approx((0.9, 0.05, 0.6625, 0.25))
    failed = choice_axes(seed_metrics(), ("x", "y"), np.array([False, True]), (PROTOCOL,), distinct_fractions=False)
    assert failed.select(AXES).rows() == [(None,) * 4, (0.8, 0.1, None, pytest.approx(0.2))]
    assert failed["converged"].to_list() == [False, True]


def test_profiles_are_means_over_seeds_and_a_cell_that_lacks_an_axis_is_left_out():
    def rows(encoder, seed, *values, penalty="x"):
        key = {"reading": PROTOCOL.id, "penalty": penalty, "encoder": encoder, "dataset": "d", "seed": seed}
        return {**key, **dict(zip(AXES, values, strict=True))}

    table = pl.DataFrame(
        [
            rows("a", 1, 0.8, 0.1, 0.9, 0.1), rows("a", 0, 0.9, 0.2, 0.8, 0.0),
            rows("b", 0, 0.7, 0.1, 0.9, 0.1), rows("b", 1, 0.7, 0.1, None, 0.1),
            rows("b", 0, 0.7, 0.1, 0.9, 0.1, penalty="y"),
        ]
    )  # fmt: skip
    found = choice_profiles(table, {"a": "wa", "b": "wb"}, PROTOCOL)
    cell = found["x"]["a"]["datasets"]["d"][PROTOCOL.id]
    means = (0.85, 0.15, 0.85, 0.05)
    assert tuple(cell["raw"].values()) == pytest.approx(means)
    assert tuple(cell["z"].values()) == pytest.approx(normalize(means, PROTOCOL.axes.anchors).tolist(), abs=1e-6)
    assert found["x"]["b"] == {"weights": "wb", "datasets": {}}
    assert set(found["y"]["b"]["datasets"]) == {"d"}
    assert found["y"]["a"]["datasets"] == {}
