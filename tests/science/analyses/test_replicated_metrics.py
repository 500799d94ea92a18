from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from crs_assets.science import evaluation
from crs_assets.science.analyses.replicated_metrics import ResampledRun, SeedReplicates, SeedRuns, lacking_labels
from crs_assets.science.evaluation import Scored, log_softmax, probabilities
from crs_assets.science.protocol import load_protocol

N, GROUPS, BINS = 240, 90, 15


def cases(seed=0):
    """Patients with one to several images: position of each row's patient."""
    rng = np.random.default_rng(seed)
    return np.sort(np.concatenate([np.arange(GROUPS), rng.integers(0, GROUPS, N - GROUPS)]))


def multilabel_run(noise, seed=0, classes=(0, 2)):
    rng = np.random.default_rng(seed)
    labels = (rng.random((N, 3)) < (0.3, 0.5, 0.6)).astype(np.float32)
    logits = (2 * labels - 1 + noise * np.random.default_rng(seed + 1).normal(size=labels.shape)).astype(np.float32)
    labels[rng.random(labels.shape) < 0.1] = np.nan
    # One decimal: many ties.
    return ResampledRun(Scored(labels, np.round(logits, 1), classes), "multilabel", cases())


def softmax_run(noise, seed=0, classes=(0, 1, 3)):
    labels = np.random.default_rng(seed).integers(0, 4, N)
    logits = (2 * np.eye(4)[labels] + noise * np.random.default_rng(seed + 1).normal(size=(N, 4))).astype(np.float32)
    return ResampledRun(Scored(labels, logits, classes), "multiclass", cases())


def seed_runs(make, **options):
    return SeedRuns(
        curve=tuple(make(noise, **options) for noise in (4.0, 2.0)),
        degraded=tuple(make(noise, **options) for noise in (3.0, 5.0, 2.5)),
        source=make(2.0, **options),
        target=make(3.5, seed=7),
    )


def drawn_counts(replicates, seed=3):
    rng = np.random.default_rng(seed)
    return [
        np.stack([np.bincount(rng.integers(0, GROUPS, GROUPS), minlength=GROUPS) for _ in range(replicates)], 1)
    ] * 2


def repeated(run, counts):
    """The run's table with each row as often as its patient was drawn."""
    rows = np.repeat(np.arange(N), counts[run.groups])
    return Scored(np.asarray(run.scored.labels)[rows], run.scored.logits[rows], run.scored.classes)


def macro_by_sklearn(run, counts):
    table = repeated(run, counts)
    scores = table.logits if run.task == "multilabel" else log_softmax(table.logits)
    found = []
    for k in table.classes:
        truth = table.labels[:, k] if run.task == "multilabel" else table.labels == k
        known = ~np.isnan(truth) if run.task == "multilabel" else np.ones(len(truth), bool)
        found.append(roc_auc_score(truth[known], scores[known, k]))
    return np.mean(found)


def ece_by_hand(run, counts):
    """sum over bins of n_b / n |mean p - mean correct|, one bin after the other."""
    table = repeated(run, counts)
    proba = probabilities(table.logits, run.task)
    if run.task == "multilabel":
        pairs = [(proba[:, k], table.labels[:, k].astype(float)) for k in table.classes]
    else:
        pairs = [(proba.max(axis=1), (proba.argmax(axis=1) == table.labels).astype(float))]
    errors = []
    for p, outcome in pairs:
        p, outcome = p[~np.isnan(outcome)], outcome[~np.isnan(outcome)]
        inside = [np.minimum((BINS * p).astype(int), BINS - 1) == b for b in range(BINS)]
        errors.append(sum(b.mean() * abs(p[b].mean() - outcome[b].mean()) for b in inside if b.any()))
    return np.mean(errors)


@pytest.mark.parametrize("make", [multilabel_run, softmax_run])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_weights_give_the_metrics_of_the_physically_resampled_tables(make, dtype):
    runs, counts = seed_runs(make), drawn_counts(6)
    found = SeedReplicates(runs, BINS, [GROUPS, GROUPS]).evaluate([each.astype(dtype) for each in counts])
    for at, column in enumerate(counts[0].T):
        assert found.curve[at].tolist() == pytest.approx(
            [macro_by_sklearn(run, column) for run in runs.curve], abs=1e-14
        )
        expected = [macro_by_sklearn(run, column) for run in runs.degraded]
        assert found.degraded[at].tolist() == pytest.approx(expected, abs=1e-14)
        expected = [macro_by_sklearn(run, column) for run in (runs.source, runs.target)]
        assert found.transfer[at].tolist() == pytest.approx(expected, abs=1e-14)
        assert found.ece[at] == pytest.approx(ece_by_hand(runs.curve[-1], column), abs=1e-14)


@pytest.mark.parametrize("make", [multilabel_run, softmax_run])
def test_weights_of_one_give_the_metrics_of_the_run(make):
    runs = seed_runs(make)
    found = SeedReplicates(runs, BINS, [GROUPS, GROUPS]).evaluate([np.ones((GROUPS, 1))] * 2)
    task, protocol = runs.curve[0].task, load_protocol("crs-v1")
    full = evaluation.score(runs.curve[-1].scored, task, protocol, "any")
    assert found.curve[0].tolist() == [evaluation.macro(run.scored, task) for run in runs.curve]
    assert found.degraded[0].tolist() == [evaluation.macro(run.scored, task) for run in runs.degraded]
    assert found.transfer[0].tolist() == [evaluation.macro(run.scored, task) for run in (runs.source, runs.target)]
    assert found.ece[0] == pytest.approx(full["ece"], abs=1e-15)


def test_the_target_has_draws_of_its_own():
    runs = seed_runs(multilabel_run)
    own, other = drawn_counts(4)[0], drawn_counts(4, seed=9)[0]
    found = SeedReplicates(runs, BINS, [GROUPS, GROUPS]).evaluate([own, other])
    assert found.transfer[2, 0] == pytest.approx(macro_by_sklearn(runs.source, own[:, 2]), abs=1e-14)
    assert found.transfer[2, 1] == pytest.approx(macro_by_sklearn(runs.target, other[:, 2]), abs=1e-14)


def test_neither_row_order_nor_threads_change_a_bit_of_auroc():
    runs, weights = seed_runs(multilabel_run), [each.astype(np.float32) for each in drawn_counts(5)]
    order = np.random.default_rng(5).permutation(N)

    def shuffled(run):
        scored = Scored(run.scored.labels[order], run.scored.logits[order], run.scored.classes)
        return ResampledRun(scored, run.task, run.groups[order])

    mixed = SeedRuns(
        curve=tuple(map(shuffled, runs.curve)),
        degraded=tuple(map(shuffled, runs.degraded)),
        source=shuffled(runs.source),
        target=shuffled(runs.target),
    )
    found = SeedReplicates(runs, BINS, [GROUPS, GROUPS]).evaluate(weights)
    again = SeedReplicates(mixed, BINS, [GROUPS, GROUPS]).evaluate(weights)
    with ThreadPoolExecutor(3) as pool:
        shared = SeedReplicates(runs, BINS, [GROUPS, GROUPS]).evaluate(weights, pool)
    for name in ("curve", "degraded", "transfer"):
        np.testing.assert_array_equal(getattr(found, name), getattr(again, name))
        np.testing.assert_array_equal(getattr(found, name), getattr(shared, name))
    np.testing.assert_allclose(again.ece, found.ece, rtol=0, atol=1e-15)
    np.testing.assert_array_equal(shared.ece, found.ece)


def test_a_label_that_was_not_fitted_is_left_out_and_a_softmax_altogether():
    run = multilabel_run(2.0)
    run.scored.logits[:, 0] = np.nan
    alone = multilabel_run(2.0, classes=(2,))
    ones = [np.ones((GROUPS, 1))]
    found = SeedReplicates(SeedRuns((run,), (run,)), BINS, [GROUPS]).evaluate(ones)
    expected = SeedReplicates(SeedRuns((alone,), (alone,)), BINS, [GROUPS]).evaluate(ones)
    assert (found.curve[0, 0], found.ece[0]) == (expected.curve[0, 0], expected.ece[0])
    broken = softmax_run(2.0)
    broken.scored.logits[:, 0] = np.nan
    found = SeedReplicates(SeedRuns((broken,), (broken,)), BINS, [GROUPS]).evaluate(ones)
    assert np.isnan([found.curve[0, 0], found.degraded[0, 0], found.ece[0]]).all()
    assert found.transfer.shape == (1, 0)


def test_classes_that_lack_a_sign_in_a_resample_are_named():
    # Patients a (rows 0, 1), b, c; label 0 is positive on b alone, label 1 unobserved on c.
    labels = np.array([[0, 1], [0, 0], [1, 0], [0, np.nan]])
    groups = np.array([0, 0, 1, 2])
    weights = np.array([[1, 3, 0, 0], [1, 0, 3, 1], [1, 0, 0, 2]])
    # Label 0 needs b and one of a, c; label 1 needs a, which has both signs.
    expected = [[False, True, True, False], [False, False, True, True]]
    np.testing.assert_array_equal(lacking_labels(labels, [0, 1], groups, weights), expected)
    # Class 1 of a softmax is positive on b alone.
    found = lacking_labels(np.array([0, 2, 1, 0]), [1], groups, weights)
    np.testing.assert_array_equal(found, [[False, True, True, False]])
