"""Control probes on the tiny suite: the grid of the linear probe's runs, neighbours by scikit-learn, nothing absent."""

import shutil

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

from crs_assets.science.analyses.control_axes import control_axes
from crs_assets.science.labels import evaluation_labels, fit_labels
from crs_assets.science.suite import parse_task
from crs_assets.stages.analyses.control_probes import ControlProbes, read_control_runs
from crs_assets.stages.data import read_classes, read_index, read_splits
from crs_assets.stages.encoders import read_degraded, read_features, usable_rows
from crs_assets.stages.probes import FITS_FILE, RUNS_FILE, ProbePredictions, read_runs
from crs_assets.stages.stage import RefusedError

TASKS = ("tiny-skin.s0", "tiny-chest.s0")
# Follow from data and splits alone, so they are those of the linear probe.
SHARED = ("dataset", "seed", "fraction", "condition", "n_fit", "n_val", "n_eval", "floor", "classes_scored")
CONSTANT = ("encoder", "protocol", "uncertain_labels", "weights", "index", "target_index")
BINNED = ("ece", "ece_null", "ece_equal_mass", "ece_classwise", "rms_calibration_debiased")


@pytest.fixture(scope="module")
def made(tiny, finished_home, tmp_path_factory):
    home = tmp_path_factory.mktemp("controls") / "home"
    shutil.copytree(finished_home, home)
    bench = tiny.open_bench(home)
    assert all(ControlProbes().ensure(bench, "vit-a", task).made for task in TASKS)
    return bench


@pytest.mark.parametrize("task", TASKS)
def test_rows_and_columns_are_those_of_the_linear_probes_runs(made, task):
    runs, linear = read_control_runs(made, "vit-a", task), read_runs(made, "vit-a", task)
    assert runs.schema == linear.schema
    assert set(runs["probe"]) == {"mlp", "knn"}
    for probe in ("mlp", "knn"):
        mine = runs.filter(pl.col("probe") == probe).select(*SHARED, *CONSTANT)
        assert mine.equals(linear.select(*SHARED, *CONSTANT))
    assert runs["converged"].all()
    assert runs["auroc"].is_between(0, 1).all()


@pytest.mark.parametrize("task", TASKS)
def test_only_the_perceptron_has_calibration_errors(made, task):
    runs = read_control_runs(made, "vit-a", task)
    votes, perceptron = (runs.filter(pl.col("probe") == probe) for probe in ("knn", "mlp"))
    assert all(votes[name].null_count() == votes.height for name in BINNED)
    assert perceptron.select(BINNED).null_count().sum_horizontal().item() == 0
    assert perceptron["ece"].is_between(0, 1).all()
    assert votes["log_loss"].is_finite().all()


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("condition", ["clean", "contrast-3"])
@pytest.mark.parametrize("fraction", [0.2, 1.0])
def test_neighbours_discriminate_as_those_of_scikit_learn(made, task, condition, fraction):
    dataset, seed = parse_task(task)
    spec = made.suite.datasets[dataset]
    index, splits = usable_rows(read_index(made, dataset)), read_splits(made, dataset, seed)
    _, features = read_features(made, "vit-a", dataset)
    role = splits["role"].to_numpy()
    whole = features[role == "train"].astype(np.float64)
    std = whole.std(axis=0)
    scale = np.maximum(std, 0.25 * np.median(std))
    train = np.flatnonzero((role == "train") & (splits["enters_at"].fill_null(9.0) <= fraction).to_numpy())
    z, test = (features - whole.mean(axis=0)) / scale, np.flatnonzero(role == "test")
    asked = z[test]
    if condition != "clean":
        _, degraded = read_degraded(made, "vit-a", dataset)[condition]
        asked = (degraded - whole.mean(axis=0)) / scale
    fitted = fit_labels(index, spec, made.suite.protocol.data.uncertain_labels)
    truth = evaluation_labels(index, spec)[test]
    classes = read_classes(made, dataset, seed).filter("eligible")["class"].to_list()
    aurocs = []
    for c in (list(spec.classes).index(name) for name in classes):
        of_class, seen = fitted[train] == c, np.ones(len(test), dtype=bool)
        voters, positive = train, truth == c
        if spec.task == "multilabel":
            known, seen = np.isfinite(fitted[train, c]), np.isfinite(truth[:, c])
            voters, of_class, positive = train[known], fitted[train, c][known] == 1, truth[:, c] == 1
        # Of a classifier's votes, the share that is positive.
        votes = KNeighborsClassifier(5, algorithm="brute").fit(z[voters], of_class).predict_proba(asked)[:, 1]
        aurocs.append(roc_auc_score(positive[seen], votes[seen]))
    row = read_control_runs(made, "vit-a", task).row(
        by_predicate=(pl.col("probe") == "knn") & (pl.col("fraction") == fraction) & (pl.col("condition") == condition),
        named=True,
    )
    assert row["auroc"] == pytest.approx(np.mean(aurocs), abs=1e-12)


def test_fits_say_how_long_and_with_which_decay_the_perceptron_was_trained(made):
    fits = pl.read_parquet(made.store.open(made.key(ControlProbes.name, "vit-a", "tiny-chest.s0")).file(FITS_FILE))
    settings = made.suite.protocol.analyses.control_probes
    perceptron = fits.filter(pl.col("probe") == "mlp")
    assert perceptron.height == 3 * 4  # label fractions, labels
    assert set(perceptron["weight_decay"]) <= set(settings.mlp_weight_decays)
    assert perceptron["epochs"].is_between(1, settings.mlp_epochs).all()
    assert fits.filter(pl.col("probe") == "knn")["weight_decay"].null_count() == 3 * 4


def test_absent_cells_have_no_partition(made):
    parts = list(ControlProbes().partitions(made))
    assert ("vit-d", "tiny-skin.s1") in parts
    assert not [part for part in parts if part[0] == "vit-d" and "chest" in part[1]]
    assert set(parts) == set(ProbePredictions().partitions(made))


def test_a_missing_upstream_is_refused(tiny, make_home):
    with pytest.raises(RefusedError, match=r"control_probes .*upstream partition is missing"):
        ControlProbes().ensure(tiny.open_bench(make_home(bare=True)), "vit-a", "tiny-skin.s0")


def test_a_second_call_makes_nothing_and_a_second_home_the_same_bytes(tiny, made, make_home):
    assert not ControlProbes().ensure(made, "vit-a", "tiny-skin.s0").made
    other = tiny.open_bench(make_home())
    outcome = ControlProbes().ensure(other, "vit-a", "tiny-skin.s0")
    files = [bench.store.open(bench.key("control_probes", "vit-a", "tiny-skin.s0")) for bench in (made, other)]
    assert outcome.made
    assert files[0].file(RUNS_FILE).read_bytes() == files[1].file(RUNS_FILE).read_bytes()


def test_settings_of_the_control_probes_are_nobody_elses(tiny, made, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(made.home.path, home)
    protocol = home / "catalog" / "protocols" / "tiny-v1.toml"
    added = "[analyses.control_probes]\nknn_neighbours = 3\n"
    protocol.write_text(protocol.read_text().replace("[analyses.control_probes]\n", added))
    changed = tiny.open_bench(home)
    assert tiny.stale(changed) == {}
    assert not ControlProbes().is_current(changed, "vit-a", "tiny-skin.s0")
    assert ControlProbes().is_current(made, "vit-a", "tiny-skin.s0")


def test_axes_follow_from_the_stored_runs(made):
    runs = read_control_runs(made, "vit-a", "tiny-chest.s0")
    table = control_axes(runs, made.suite.protocol, distinct_fractions={0: True})
    assert table.height == 2 * 4
    assert table.filter(pl.col("value").is_null()).select("probe", "axis").rows() == [("knn", "calibration")]
    clean = runs.filter((pl.col("condition") == "clean") & (pl.col("fraction") == 1.0))
    found = dict(table.filter(pl.col("axis") == "discrimination").select("probe", "value").iter_rows())
    assert found == dict(clean.select("probe", "auroc").iter_rows())
