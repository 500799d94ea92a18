"""The subgroup stage on the finished tiny suite."""

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from crs_assets.stages.analyses.subgroups import Subgroups, read_subgroup_gaps, read_subgroups
from crs_assets.stages.data import read_index
from crs_assets.stages.encoders import usable_rows
from crs_assets.stages.probes import read_clean_predictions, read_runs
from crs_assets.stages.progress import listening


def test_partitions_are_those_of_the_runs(finished):
    parts = set(Subgroups().partitions(finished))
    assert ("vit-a", "tiny-chest.s1") in parts
    assert ("vit-d", "tiny-chest.s0") not in parts


@pytest.fixture
def skin(bench):
    outcome = Subgroups().ensure(bench, "vit-a", "tiny-skin.s0")
    return bench, outcome, read_subgroups(bench, "vit-a", "tiny-skin.s0")


def test_a_group_is_judged_on_its_images_in_the_stored_predictions(skin):
    bench, outcome, table = skin
    assert outcome.manifest.summary["columns"] == ["site"]
    assert set(table["group"]) == {"arm", "back", "unknown"}
    assert table.select("encoder", "dataset", "seed", "protocol").unique().rows() == [
        ("vit-a", "tiny-skin", 0, "tiny-v1")
    ]
    frame = usable_rows(read_index(bench, "tiny-skin")).filter("is_test")
    frame = frame.join(read_clean_predictions(bench, "vit-a", "tiny-skin.s0"), on="image_id")
    arm = frame.filter(pl.col("sub:site") == "arm")
    shown = table.filter((pl.col("group") == "arm") & (pl.col("axis") == "discrimination")).row(0, named=True)
    assert shown["n_images"] == str(arm.height)
    assert shown["n_groups"] == str(arm["group_id"].n_unique())
    logits, labels = arm["logits"].to_numpy().astype(float), arm["label"].to_numpy()
    # Of a softmax the log-probability, whose normaliser differs between images.
    scores = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    minimum = bench.suite.protocol.data.eligibility.test
    judged = [k for k in range(3) if minimum <= (labels == k).sum() <= len(labels) - minimum]
    assert shown["classes"] == len(judged) > 0
    aurocs = [roc_auc_score(labels == k, scores[:, k]) for k in judged]
    assert shown["value"] == pytest.approx(sum(aurocs) / len(aurocs))


def test_gaps_lie_between_known_groups(skin):
    bench, outcome, table = skin
    gaps = read_subgroup_gaps(bench, "vit-a", "tiny-skin.s0")
    assert set(gaps["axis"]) == set(table["axis"])
    known = table.filter((pl.col("group") != "unknown") & (pl.col("axis") == "calibration"))["value"]
    calibration = gaps.filter(pl.col("axis") == "calibration").row(0, named=True)
    assert calibration["gap"] == pytest.approx(known.max() - known.min())
    assert outcome.manifest.summary["gaps"]["site"]["calibration"] == calibration["gap"]


def test_no_identifier_is_stored(skin):
    bench, _, table = skin
    index = read_index(bench, "tiny-skin")
    ids = {*index["image_id"], *index["group_id"], *index["path"]}
    for frame in (table, read_subgroup_gaps(bench, "vit-a", "tiny-skin.s0")):
        for column in frame.select(pl.col(pl.String)):
            assert not ids & set(column)


def test_a_second_call_makes_nothing_and_a_changed_setting_does(skin, tiny):
    bench, outcome, _ = skin
    assert not Subgroups().ensure(bench, *outcome.parts).made
    path = bench.home.path / "catalog" / "protocols" / "tiny-v1.toml"
    path.write_text(path.read_text() + "\n[analyses.subgroups]\nreplicates = 20\n")
    changed = tiny.open_bench(bench.home.path)
    assert not Subgroups().is_current(changed, *outcome.parts)
    # Fewer resamples move intervals and nothing else.
    before = read_subgroups(bench, *outcome.parts)
    Subgroups().ensure(changed, *outcome.parts)
    after = read_subgroups(changed, *outcome.parts)
    assert after.drop("low", "high").equals(before.drop("low", "high"))
    assert not after["low"].equals(before["low"])


def test_a_data_set_without_subgroups_completes_and_says_so(bench):
    outcome = Subgroups().ensure(bench, "vit-a", "tiny-chest.s0")
    assert outcome.manifest.summary["note"] == "tiny-chest has no subgroup column"
    assert read_subgroups(bench, "vit-a", "tiny-chest.s0").height == 0
    assert read_subgroup_gaps(bench, "vit-a", "tiny-chest.s0").height == 0
    assert read_runs(bench, "vit-a", "tiny-chest.s0").height > 0


def test_groups_done_are_told_while_they_are_measured(bench):
    seen = []
    with listening(seen.append):
        Subgroups().ensure(bench, "vit-a", "tiny-skin.s0")
    shown = bench.store.peek(bench.key("subgroups", "vit-a", "tiny-skin.s0")).summary["groups_shown"]
    assert [(each.done, each.total, each.unit) for each in seen] == [
        (done, shown, "groups") for done in range(1, shown + 1)
    ]
