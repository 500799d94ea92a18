"""Axes under other penalties on the tiny suite: the published ones among them, the others by scikit-learn."""

import shutil

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import load_file
from scipy.special import expit, log_softmax
from sklearn.metrics import log_loss, roc_auc_score

from crs_assets.science.labels import evaluation_labels, fit_labels
from crs_assets.science.protocol import AXES
from crs_assets.science.suite import parse_task
from crs_assets.stages.analyses.penalty_axes import AXES_FILE, PenaltyAxes, read_penalty_axes
from crs_assets.stages.data import read_classes, read_index, read_splits
from crs_assets.stages.encoders import read_features, usable_rows
from crs_assets.stages.probes import WEIGHTS_FILE, ProbePredictions, read_path
from crs_assets.stages.scores import read_profile
from crs_assets.stages.stage import RefusedError

TASKS = ("tiny-skin.s0", "tiny-chest.s1")


@pytest.fixture(scope="module")
def made(tiny, finished_home, tmp_path_factory):
    home = tmp_path_factory.mktemp("penalties") / "home"
    shutil.copytree(finished_home, home)
    bench = tiny.open_bench(home)
    assert all(PenaltyAxes().ensure(bench, "vit-a", task).made for task in TASKS)
    return bench


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("reading", ["tiny-v1", "tiny-v1-skill"])
def test_the_published_choice_gives_the_published_axes(made, task, reading):
    dataset, seed = parse_task(task)
    profile = read_profile(made, "vit-a")["datasets"][dataset][reading]
    (published,) = [entry for entry in profile["per_seed"] if entry["seed"] == seed]
    table = read_penalty_axes(made, "vit-a", task)
    row = table.row(by_predicate=(pl.col("reading") == reading) & (pl.col("penalty") == "as published"), named=True)
    # Five lambdas, and two ways to choose among them.
    assert table.height == 2 * 7
    for axis in AXES:
        assert row[axis] == (None if published[axis] is None else pytest.approx(published[axis], abs=1e-9))


def test_the_stored_path_is_whole(made):
    path = read_path(made, "vit-a", TASKS[1])
    summary = made.store.peek(made.key(ProbePredictions.name, "vit-a", TASKS[1])).summary
    assert int((~path.converged).sum()) == summary["fits_not_converged"]
    assert path.weights.shape[:2] == path.objective.shape[:2] == (3, 5)


def split_rows(made, dataset, seed, role):
    splits = read_splits(made, dataset, seed)
    return np.flatnonzero((splits["role"] == role).to_numpy())


@pytest.mark.parametrize("task", TASKS)
def test_discrimination_under_each_penalty_and_under_that_of_all_validation_is_scikit_learns(made, task):
    dataset, seed = parse_task(task)
    spec = made.suite.datasets[dataset]
    index = usable_rows(read_index(made, dataset))
    _, features = read_features(made, "vit-a", dataset)
    stored = load_file(made.store.open(made.key(ProbePredictions.name, "vit-a", task)).file(WEIGHTS_FILE))
    weights, intercepts = stored["weights"][-1].astype(float), stored["intercepts"][-1]
    logits = np.einsum("nd,pcd->pnc", features.astype(float), weights) + intercepts[:, None]
    names = read_classes(made, dataset, seed).filter("eligible")["class"].to_list()
    scored = [list(spec.classes).index(name) for name in names]
    test, validation = (split_rows(made, dataset, seed, role) for role in ("test", "validation"))
    truth, fitted = evaluation_labels(index, spec)[test], fit_labels(index, spec, "u_ignore")[validation]

    def auroc(of_class):
        values = []
        for c in scored:
            positive, seen = truth == c, np.ones(len(test), dtype=bool)
            score = log_softmax(of_class[c][test], axis=1)[:, c]
            if spec.task == "multilabel":
                positive, seen, score = truth[:, c] == 1, np.isfinite(truth[:, c]), of_class[c][test][:, c]
            values.append(roc_auc_score(positive[seen], score[seen]))
        return np.mean(values)

    found = dict(
        read_penalty_axes(made, "vit-a", task)
        .filter(pl.col("reading") == "tiny-v1")
        .select("penalty", "discrimination")
        .iter_rows()
    )
    for at, value in enumerate(stored["lambdas"]):
        assert found[f"lambda {value:.3g}"] == pytest.approx(auroc([logits[at]] * len(spec.classes)), abs=1e-6)
    if spec.task == "multilabel":
        chosen = []
        for c in range(len(spec.classes)):
            seen = np.isfinite(fitted[:, c])
            few = min((fitted[seen, c] == 1).sum(), (fitted[seen, c] == 0).sum()) < 3
            losses = [log_loss(fitted[seen, c], expit(each[validation][seen, c]), labels=[0, 1]) for each in logits]
            chosen.append(None if few else int(np.argmin(losses)))
        assert [chosen[c] for c in scored].count(None) == 0
        own = [logits[0 if at is None else at] for at in chosen]
    else:
        losses = [log_loss(fitted, np.exp(log_softmax(each[validation], axis=1)), labels=[0, 1, 2]) for each in logits]
        own = [logits[int(np.argmin(losses))]] * len(spec.classes)
    assert found["chosen on all of validation"] == pytest.approx(auroc(own), abs=1e-6)


def test_controls_have_no_partition_and_say_why(made):
    parts = set(PenaltyAxes().partitions(made))
    assert parts == {part for part in ProbePredictions().partitions(made) if part[0] != "pixels-1"}
    assert PenaltyAxes().left_out(made, "pixels-1", TASKS[0]) == "a control enters no ranking"
    assert PenaltyAxes().left_out(made, "vit-a", TASKS[0]) is None


def test_a_missing_upstream_is_refused(tiny, make_home):
    with pytest.raises(RefusedError, match=r"penalty_axes .*upstream partition is missing"):
        PenaltyAxes().ensure(tiny.open_bench(make_home(bare=True)), "vit-a", TASKS[0])


def test_a_second_call_makes_nothing_and_a_second_home_the_same_bytes(tiny, made, make_home):
    assert not PenaltyAxes().ensure(made, "vit-a", TASKS[0]).made
    other = tiny.open_bench(make_home())
    assert PenaltyAxes().ensure(other, "vit-a", TASKS[0]).made
    files = [bench.store.open(bench.key("penalty_axes", "vit-a", TASKS[0])).file(AXES_FILE) for bench in (made, other)]
    assert files[0].read_bytes() == files[1].read_bytes()
