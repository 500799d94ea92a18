"""What a change makes stale, and what it leaves alone. Stages are compared by name, partitions by key."""

import os
import re
import time

import pytest
from PIL import Image

from crs_assets.resources.artifact_store import StoreError
from crs_assets.science.panel import PanelError
from crs_assets.stages import stage as stage_module
from crs_assets.stages.data import DatasetIndex, Splits
from crs_assets.stages.encoders import DegradedFeatures, Features, read_features
from crs_assets.stages.probes import NullControls, ProbePredictions, RunMetrics
from crs_assets.stages.scores import Crs, freeze_panel
from crs_assets.stages.stage import RefusedError


def edit(path, pattern, replacement):
    text, count = re.subn(pattern, replacement, path.read_text(), count=1)
    assert count == 1, f"{pattern} not in {path.name}"
    path.write_text(text)


def protocol_file(bench):
    return bench.home.catalog / "protocols" / "tiny-v1.toml"


@pytest.fixture
def reopen(tiny, bench):
    """Read the suite of the private home anew, as another process would."""
    return lambda: tiny.open_bench(bench.home.path)


def test_nothing_is_stale_after_a_full_run(tiny, finished):
    assert tiny.stale(finished) == {}


def test_words_that_decide_no_number_make_nothing_stale(tiny, bench, reopen):
    home = bench.home
    (home.path / "README.md").write_text("changed")
    edit(home.catalog / "encoders" / "vit-a.toml", 'title = "vit-a"', 'title = "Another title"')
    edit(home.catalog / "encoders" / "vit-b.toml", 'licence = "none"', 'licence = "MIT"')
    edit(home.catalog / "datasets" / "tiny-skin.toml", 'title = "Drawn for tests"', 'title = "Other words"')
    edit(home.catalog / "suites" / "tiny.toml", 'title = "For tests"', 'title = "Other words"')
    edit(protocol_file(bench), 'title = "For tests"', 'title = "Other words"')
    assert tiny.stale(reopen()) == {}


@pytest.mark.slow
def test_a_changed_probe_setting_refits_and_encodes_nothing(tiny, bench, reopen):
    edit(protocol_file(bench), "lambda_count = 5", "lambda_count = 4")
    assert set(tiny.stale(reopen())) == {"probe_predictions", "null_controls"}
    made = tiny.remade(reopen())
    assert set(made) == {"probe_predictions", "run_metrics", "null_controls", "axis_profile", "crs"}
    assert len(made["probe_predictions"]) == len(list(ProbePredictions().partitions(bench)))


@pytest.mark.slow
def test_a_changed_metric_setting_refits_no_encoder(tiny, bench, reopen):
    edit(protocol_file(bench), "null_band_draws = 20", "null_band_draws = 21")
    assert set(tiny.stale(reopen())) == {"run_metrics", "null_controls", "axis_profile"}
    assert "probe_predictions" not in tiny.remade(reopen())


def test_a_rule_that_admits_other_classes_scores_anew_and_fits_nothing(tiny, bench, reopen):
    edit(protocol_file(bench), "test = 4", "test = 16")
    changed = reopen()
    assert set(tiny.stale(changed)) == {"splits", "run_metrics"}
    before = {parts: Splits().version(bench, *parts) for parts in Splits().partitions(bench)}
    for parts in Splits().partitions(changed):
        Splits().ensure(changed, *parts)
    # The fewest of a skin class in test are below 16, so K loses it.
    assert Splits().version(changed, "tiny-skin.s0") != before[("tiny-skin.s0",)]
    stale = tiny.stale(changed)
    assert not {"features", "degraded_features", "probe_predictions"} & set(stale)
    assert {part for part in stale["run_metrics"] if "skin" in part}


def test_a_rule_that_admits_the_same_classes_changes_nothing_below_splits(tiny, bench, reopen):
    edit(protocol_file(bench), "train = 3", "train = 4")
    changed = reopen()
    for parts in Splits().partitions(changed):
        Splits().ensure(changed, *parts)
    # The target's own classes follow from the rule directly, so its data set is scored anew.
    assert set(tiny.stale(changed)) == {"run_metrics"}
    assert all("tiny-chest" in part for part in tiny.stale(changed)["run_metrics"])


@pytest.mark.parametrize(
    ("pattern", "replacement", "stages"),
    [
        ("strengths = .0.75, 0.25.", "strengths = [0.75, 0.20]", {"degraded_features"}),
        (r"\[images\]", "[images]\nnoise_grid_short_side = 200", {"degraded_features"}),
        ("working_short_side = 64", "working_short_side = 60", {"features", "degraded_features"}),
        ("test_fraction = 0.3", "test_fraction = 0.35", {"dataset_index", "splits"}),
        ("fractions = .0.2", "fractions = [0.3", {"splits", "probe_predictions"}),
        (r"\[data\]", '[data]\nuncertain_labels = "u_zeros"', {"splits", "probe_predictions", "null_controls"}),
        ("replicates = 300", "replicates = 301", set()),
        (r"\[metrics\]", "[score]\ndominance = 0.5\ncloseness = 0.35\n[metrics]", {"crs"}),
        (r"\[metrics\]", "[axes.anchors]\ncalibration = { zero = 0.3, one = 0 }\n[metrics]", {"axis_profile"}),
    ],
)
def test_a_part_of_the_protocol_makes_stale_what_reads_it(tiny, bench, reopen, pattern, replacement, stages):
    edit(protocol_file(bench), pattern, replacement)
    assert set(tiny.stale(reopen())) == stages


def test_another_fitting_policy_splits_the_same_and_leaves_features_alone(tiny, bench, reopen):
    edit(protocol_file(bench), r"\[data\]", '[data]\nuncertain_labels = "u_zeros"')
    changed = reopen()
    before = Splits().version(bench, "tiny-chest.s0")
    Splits().ensure(changed, "tiny-chest.s0")
    assert Splits().version(changed, "tiny-chest.s0") == before


@pytest.mark.slow
def test_published_weights_that_changed_make_only_that_encoder_stale(tiny, bench, reopen):
    tiny.write_network(bench.home.path, "vit-b", seed=77)
    assert tiny.stale(reopen()) == {"encoder_weights": {"vit-b"}}
    made = tiny.remade(reopen())
    assert {part.split("|")[0] for stage, parts in made.items() for part in parts} == {"vit-b"}
    assert set(made) == {
        "encoder_weights", "features", "degraded_features", "probe_predictions", "run_metrics", "axis_profile", "crs",
    }  # fmt: skip
    assert len(made["features"]) == 3


@pytest.mark.slow
def test_a_changed_image_makes_only_its_image_set_stale(tiny, bench, reopen):
    path = bench.home.data / "tiny-chest-b" / "c003.png"
    image = Image.open(path).point(lambda value: 255 - value)
    image.save(path)
    assert tiny.stale(reopen()) == {"dataset_index": {"tiny-chest-b"}}
    made = tiny.remade(reopen(), tiny.UP_TO_PROFILE)
    assert made["dataset_index"] == {"tiny-chest-b"}
    assert all(part.endswith("|tiny-chest-b") for part in made["features"] | made["degraded_features"])
    # Probes of the source are applied to the target; nothing is fitted on skin.
    assert all("|tiny-chest.s" in part for part in made["probe_predictions"])
    assert "splits" not in made
    # The panel was made on the other images: no score is taken against it.
    with pytest.raises(PanelError, match=r"tiny-chest: target_index differ.*freeze another"):
        Crs().ensure(reopen(), "vit-a")
    assert Crs().ensure(reopen(), "vit-d").made is False


def test_an_image_that_was_only_touched_is_read_again_and_changes_nothing(tiny, bench, reopen):
    path = bench.home.data / "tiny-skin" / "images" / "s000.png"
    os.utime(path, ns=(time.time_ns(), time.time_ns()))
    assert tiny.remade(reopen()) == {"dataset_index": {"tiny-skin"}}


@pytest.mark.parametrize(
    ("library", "stages"),
    [
        ("simplejpeg", {"dataset_index", "features", "degraded_features"}),
        ("timm", {"features", "degraded_features"}),
        ("scipy", {"probe_predictions", "null_controls"}),
        ("polars", {"run_metrics"}),
        ("click", set()),
    ],
)
def test_another_version_of_a_library_makes_stale_what_it_computes(tiny, finished, monkeypatch, library, stages):
    installed = stage_module.library_versions
    monkeypatch.setattr(
        stage_module,
        "library_versions",
        lambda *names: {**installed(*names), **({library: "999"} if library in names else {})},
    )
    assert set(tiny.stale(finished)) == stages


def test_another_batch_size_is_another_numeric_mode(tiny, bench):
    other = tiny.open_bench(bench.home.path, batch_size=4)
    assert set(tiny.stale(other)) == {"features", "degraded_features"}
    more_workers = tiny.open_bench(bench.home.path, workers=2)
    assert tiny.stale(more_workers) == {}


def test_a_cell_declared_absent_completes_the_profile(tiny, bench, reopen):
    edit(bench.home.catalog / "encoders" / "vit-c.toml", r"\[absent\]", '[absent]\ntiny-chest = "withdrawn"')
    assert tiny.stale(reopen()) == {"axis_profile": {"vit-c"}}


def test_content_goes_back_without_being_made_where_it_was_kept(tiny, bench, reopen):
    edit(protocol_file(bench), "null_band_draws = 20", "null_band_draws = 21")
    first = reopen()
    assert RunMetrics().ensure(first, "vit-a", "tiny-skin.s0").made
    edit(protocol_file(bench), "null_band_draws = 21", "null_band_draws = 20")
    outcome = RunMetrics().ensure(reopen(), "vit-a", "tiny-skin.s0")
    assert not outcome.made
    assert outcome.manifest.recipe["inputs"]["protocol"]["metrics"]["null_band_draws"] == 20


def test_large_content_keeps_only_the_version_in_force_and_small_content_all(tiny, bench):
    key = bench.key("features", "vit-a", "tiny-skin")
    old = bench.store.peek(key).fingerprint
    other = tiny.open_bench(bench.home.path, batch_size=4)
    assert Features().ensure(other, "vit-a", "tiny-skin").made
    with pytest.raises(StoreError, match="not in the store"):
        bench.store.open(key, old)
    metrics = bench.key("run_metrics", "vit-a", "tiny-skin.s0")
    old = bench.store.peek(metrics).fingerprint
    ProbePredictions().ensure(other, "vit-a", "tiny-skin.s0")
    RunMetrics().ensure(other, "vit-a", "tiny-skin.s0")
    assert bench.store.peek(metrics).fingerprint != old
    assert bench.store.open(metrics, old).file("runs.parquet").exists()


def test_a_stage_whose_upstream_is_missing_refuses_and_says_so(tiny, make_home):
    empty = tiny.open_bench(make_home(bare=True))
    for stage, parts in (
        (Splits(), ("tiny-skin.s0",)),
        (Features(), ("vit-a", "tiny-skin")),
        (RunMetrics(), ("vit-a", "tiny-skin.s0")),
        (NullControls(), ("tiny-skin.s0",)),
    ):
        with pytest.raises(RefusedError, match=f"{stage.name} .*upstream partition is missing"):
            stage.ensure(empty, *parts)
    assert DatasetIndex().ensure(empty, "tiny-skin").made


def test_features_are_a_view_of_the_file_and_outlive_its_closing(finished):
    ids, features = read_features(finished, "vit-a", "tiny-skin")
    assert features.shape == (len(ids), 32)
    assert not features.flags.owndata
    assert not features.flags.writeable


def test_a_transfer_target_is_encoded_once_and_never_degraded(finished):
    parts = list(Features().partitions(finished))
    assert parts.count(("vit-a", "tiny-chest-b")) == 1
    assert ("vit-d", "tiny-chest") not in parts
    assert ("vit-d", "tiny-chest-b") not in parts
    manifest = finished.store.peek(finished.key(DegradedFeatures.name, "vit-a", "tiny-chest-b"))
    assert (manifest.summary["images"], dict(manifest.files)) == (0, {})


def test_a_panel_frozen_again_from_the_same_profiles_changes_nothing(tiny, bench, reopen):
    panel = freeze_panel(bench)
    assert tiny.stale(reopen()) == {}
    assert [path.stem for path in bench.home.panels.glob("*.json")] == [panel["name"]]
