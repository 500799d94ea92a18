"""Degradations beside the score on the tiny suite: images by the protocol, the published probe applied as it is."""

import shutil

import numpy as np
import polars as pl
import pytest
from scipy.special import log_softmax
from sklearn.metrics import roc_auc_score

from crs_assets.science.encoders import prepare
from crs_assets.science.images import degrade, load_image, to_working_resolution
from crs_assets.stages.analyses.extra_degradations import (
    ExtraDegradationMetrics,
    ExtraDegradedFeatures,
    read_extra_degraded,
    read_extra_runs,
)
from crs_assets.stages.analyses.stored_probe import StoredProbe
from crs_assets.stages.data import read_classes, read_index
from crs_assets.stages.encoders import Features, read_features, usable_rows
from crs_assets.stages.probes import RUNS_FILE, read_clean_predictions, read_runs
from crs_assets.stages.stage import RefusedError

TASKS = ("tiny-skin.s0", "tiny-chest.s0")
CONDITIONS = [f"{name}-{severity}" for name in ("sensor_noise", "defocus", "exposure") for severity in (1, 2, 3)]


@pytest.fixture(scope="module")
def made(tiny, finished_home, tmp_path_factory):
    home = tmp_path_factory.mktemp("degraded") / "home"
    shutil.copytree(finished_home, home)
    bench = tiny.open_bench(home)
    for task in TASKS:
        assert ExtraDegradedFeatures().ensure(bench, "vit-a", task.removesuffix(".s0")).made
        assert ExtraDegradationMetrics().ensure(bench, "vit-a", task).made
    return bench


def test_features_are_those_of_the_degraded_test_images(made):
    index = usable_rows(read_index(made, "tiny-skin")).filter("is_test")
    stored = read_extra_degraded(made, "vit-a", "tiny-skin")
    assert list(stored) == CONDITIONS
    spec, root = made.suite.encoders["vit-a"], made.roots.path("tiny-skin")
    for condition in ("sensor_noise-3", "exposure-2"):
        ids, features = stored[condition]
        assert ids == index["image_id"].to_list()
        name, _, severity = condition.partition("-")
        batch = []
        for image_id, path in index.select("image_id", "path").head(8).iter_rows():
            image = to_working_resolution(load_image(root, path), 64)
            degraded = degrade(
                image,
                dataset="tiny-skin",
                image_id=image_id,
                perturbation=name,
                severity=int(severity),
                protocol=made.suite.protocol,
            )
            batch.append(prepare(degraded, spec.preprocessing))
        expected = made.load_encoder("vit-a").encode(np.stack(batch))
        np.testing.assert_allclose(features[:8], expected, rtol=0, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("task", TASKS)
def test_the_stored_probe_gives_the_published_logits_to_the_bit(made, task):
    dataset = task.removesuffix(".s0")
    ids, features = read_features(made, "vit-a", dataset)
    published = read_clean_predictions(made, "vit-a", task)
    rows = [ids.index(image) for image in published["image_id"]]
    logits = StoredProbe.open(made, "vit-a", task).logits(0, features[rows])
    np.testing.assert_array_equal(logits, published["logits"].to_numpy())


@pytest.mark.parametrize("task", TASKS)
def test_rows_are_runs_of_the_published_probe_beside_its_clean_run(made, task):
    runs, published = read_extra_runs(made, "vit-a", task), read_runs(made, "vit-a", task)
    assert runs["condition"].to_list() == CONDITIONS
    clean = published.filter((pl.col("condition") == "clean") & (pl.col("fraction") == 1.0)).row(0, named=True)
    same = ("n_fit", "n_val", "n_eval", "converged", "classes_scored", "weights", "index", "protocol", "encoder")
    for row in runs.iter_rows(named=True):
        assert {name: row[name] for name in same} == {name: clean[name] for name in same}
        assert row["auroc_drop"] == pytest.approx(clean["auroc"] - row["auroc"])
        assert row["ece_rise"] == pytest.approx(row["ece"] - clean["ece"])
    assert runs["auroc_drop"].abs().max() > 0


def test_auroc_is_that_of_scikit_learn_on_the_stored_weights(made):
    index = usable_rows(read_index(made, "tiny-skin"))
    labels = dict(index.select("image_id", "label").iter_rows())
    probe = StoredProbe.open(made, "vit-a", "tiny-skin.s0")
    classes = read_classes(made, "tiny-skin", 0).filter("eligible")["class"].to_list()
    names = list(made.suite.datasets["tiny-skin"].classes)
    runs = read_extra_runs(made, "vit-a", "tiny-skin.s0")
    for condition, (ids, features) in read_extra_degraded(made, "vit-a", "tiny-skin").items():
        logits = features.astype(np.float64) @ probe.weights.astype(np.float64).T + probe.intercepts
        scores, truth = log_softmax(logits, axis=1), np.array([labels[image] for image in ids])
        at = [names.index(name) for name in classes]
        expected = np.mean([roc_auc_score(truth == c, scores[:, c]) for c in at])
        (found,) = runs.filter(pl.col("condition") == condition)["auroc"]
        assert found == pytest.approx(expected, abs=1e-6)


def test_targets_have_no_partition_and_say_why(made):
    parts = set(ExtraDegradedFeatures().partitions(made))
    assert parts == {one for one in Features().partitions(made) if one[1] != "tiny-chest-b"}
    assert ExtraDegradedFeatures().left_out(made, "vit-a", "tiny-chest-b") == "a transfer target is not degraded"
    assert ("pixels-1", "tiny-skin") in parts


def test_a_missing_upstream_is_refused(made):
    with pytest.raises(RefusedError, match=r"extra_degradation_metrics .*upstream partition is missing"):
        ExtraDegradationMetrics().ensure(made, "vit-b", "tiny-skin.s0")


def test_a_second_call_makes_nothing_and_a_second_home_the_same_bytes(tiny, made, make_home):
    assert not ExtraDegradationMetrics().ensure(made, "vit-a", "tiny-skin.s0").made
    other = tiny.open_bench(make_home(), workers=2)
    again = ExtraDegradedFeatures().ensure(other, "vit-a", "tiny-skin").manifest
    assert again.files == made.store.open(made.key("extra_degraded_features", "vit-a", "tiny-skin")).manifest.files
    ExtraDegradationMetrics().ensure(other, "vit-a", "tiny-skin.s0")
    key = ("extra_degradation_metrics", "vit-a", "tiny-skin.s0")
    files = [bench.store.open(bench.key(*key)).file(RUNS_FILE).read_bytes() for bench in (made, other)]
    assert files[0] == files[1]


def test_strengths_beside_the_score_are_nobody_elses(tiny, made, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(made.home.path, home)
    protocol = home / "catalog" / "protocols" / "tiny-v1.toml"
    milder = '\n[[analyses.perturbations]]\nid = "defocus"\nseverities = [1]\nstrengths = [0.01]\n'
    protocol.write_text(protocol.read_text() + milder)
    changed = tiny.open_bench(home)
    assert tiny.stale(changed) == {}
    assert not ExtraDegradedFeatures().is_current(changed, "vit-a", "tiny-skin")
    assert not ExtraDegradationMetrics().is_current(changed, "vit-a", "tiny-skin.s0")
    assert ExtraDegradedFeatures().is_current(made, "vit-a", "tiny-skin")
