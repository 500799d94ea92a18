"""The depth sweep on the tiny suite: one pass, own features to the bit, the choice without the test set."""

import shutil

import numpy as np
import polars as pl
import pytest

from crs_assets.resources import bench as bench_module
from crs_assets.resources.artifact_store import Staging
from crs_assets.stages.analyses import depth as depth_module
from crs_assets.stages.analyses.depth import DepthFeatures, DepthSweep, read_depth_features, read_depth_sweep
from crs_assets.stages.data import read_index
from crs_assets.stages.encoders import FEATURES_FILE, Features, read_features, usable_rows
from crs_assets.stages.feature_files import open_features, write_chunk
from crs_assets.stages.probes import FITS_FILE, RUNS_FILE, read_runs
from crs_assets.stages.stage import RefusedError

TASKS = ("tiny-skin.s0", "tiny-chest.s0")


@pytest.fixture(scope="module")
def made(tiny, finished_home, tmp_path_factory):
    home = tmp_path_factory.mktemp("depths") / "home"
    shutil.copytree(finished_home, home)
    bench = tiny.open_bench(home)
    for dataset in ("tiny-skin", "tiny-chest"):
        assert DepthFeatures().ensure(bench, "vit-a", dataset).made
    for task in TASKS:
        assert DepthSweep().ensure(bench, "vit-a", task).made
    return bench


def test_all_blocks_are_the_published_features_to_the_bit(made):
    for dataset in ("tiny-skin", "tiny-chest"):
        stored = read_depth_features(made, "vit-a", dataset)
        # Two blocks: a quarter and a half of them are the first.
        assert [(depth.share, depth.block) for depth, _ in stored] == [(0.25, 1), (1.0, 2)]
        ids, own = read_features(made, "vit-a", dataset)
        np.testing.assert_array_equal(stored[-1][1], own)
        assert not np.array_equal(stored[0][1], own)
        folder = made.store.open(made.key("depth_features", "vit-a", dataset))
        published = made.store.open(made.key("features", "vit-a", dataset)).file(FEATURES_FILE)
        assert folder.file("depth-1.arrow").read_bytes() == published.read_bytes()
        assert open_features(folder.file("depth-0.25.arrow"))[0] == ids


def test_an_encoder_is_run_once_per_image_for_all_depths(tiny, make_home, monkeypatch):
    bench, encoded = tiny.open_bench(make_home()), []
    load = bench_module.load_encoder

    def counting(*arguments, **options):
        encoder = load(*arguments, **options)
        encode = encoder.encode
        encoder.encode = lambda batch: encoded.append(len(batch)) or encode(batch)
        return encoder

    monkeypatch.setattr(bench_module, "load_encoder", counting)
    outcome = DepthFeatures().ensure(bench, "vit-b", "tiny-skin")
    assert sum(encoded) == outcome.manifest.summary["images"] == usable_rows(read_index(bench, "tiny-skin")).height


def test_an_interrupted_pass_is_resumed_at_a_chunk_and_no_bit_tells(tiny, made, make_home, monkeypatch):
    bench = tiny.open_bench(make_home())
    written = 0

    def failing(folder, index, features):
        nonlocal written
        if index == 3:
            raise KeyboardInterrupt
        written += 1
        write_chunk(folder, index, features)

    with monkeypatch.context() as patch:
        patch.setattr("crs_assets.stages.encoders.write_chunk", failing)
        with pytest.raises(KeyboardInterrupt):
            DepthFeatures().ensure(bench, "vit-a", "tiny-skin")
    assert bench.store.peek(bench.key("depth_features", "vit-a", "tiny-skin")) is None
    resumed = DepthFeatures().ensure(bench, "vit-a", "tiny-skin")
    assert resumed.timing["resumed_chunks"] == written == 3
    whole = made.store.open(made.key("depth_features", "vit-a", "tiny-skin")).manifest
    assert resumed.manifest.fingerprint == whole.fingerprint
    assert resumed.manifest.files == whole.files


def test_what_was_written_before_the_commit_needs_no_encoder_to_be_divided(tiny, make_home, monkeypatch):
    bench = tiny.open_bench(make_home())

    def lost(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Staging, "commit", lost)
        with pytest.raises(KeyboardInterrupt):
            DepthFeatures().ensure(bench, "vit-a", "tiny-skin")
    resumed = DepthFeatures().ensure(bench, "vit-a", "tiny-skin")
    assert resumed.timing["images_per_second"] == 0
    _, own = read_features(bench, "vit-a", "tiny-skin")
    np.testing.assert_array_equal(read_depth_features(bench, "vit-a", "tiny-skin")[-1][1], own)


def test_what_has_no_depth_has_no_partition_and_says_why(made):
    features, sweep = list(DepthFeatures().partitions(made)), list(DepthSweep().partitions(made))
    targets = set(made.suite.targets)
    assert set(features) == {
        parts for parts in Features().partitions(made) if parts[0] != "pixels-1" and parts[1] not in targets
    }
    assert {parts[0] for parts in sweep} == {"vit-a", "vit-b", "vit-c", "vit-d"}
    assert not [parts for parts in sweep if parts[0] == "vit-d" and "chest" in parts[1]]
    assert DepthFeatures().left_out(made, "pixels-1", "tiny-skin") == "an encoder without blocks"
    assert "transfer target" in DepthFeatures().left_out(made, "vit-a", "tiny-chest-b")
    assert DepthSweep().left_out(made, "pixels-1", "tiny-skin.s0") == "an encoder without blocks"
    assert DepthSweep().left_out(made, "vit-a", "tiny-skin.s0") is None


@pytest.mark.parametrize("task", TASKS)
def test_the_row_of_all_blocks_is_the_published_run(made, task):
    table = read_depth_sweep(made, "vit-a", task)
    (own,) = table.filter(pl.col("share") == 1.0).to_dicts()
    published = read_runs(made, "vit-a", task).filter((pl.col("condition") == "clean") & (pl.col("fraction") == 1.0))
    (expected,) = published.to_dicts()
    for name in ("auroc", "ece", "log_loss", "brier"):
        assert own[name] == pytest.approx(expected[name], abs=1e-7)
    for name in ("n_fit", "n_val", "n_eval", "classes_scored", "converged", "lambda_at_edge", "weights", "index"):
        assert own[name] == expected[name]
    fits = pl.read_parquet(made.store.open(made.key("probe_predictions", "vit-a", task)).file(FITS_FILE))
    mine = pl.read_parquet(made.store.open(made.key("depth_sweep", "vit-a", task)).file(FITS_FILE))
    at_all = mine.filter(pl.col("share") == 1.0)
    assert at_all["lambda"].to_list() == fits.filter(pl.col("fraction") == 1.0)["lambda"].to_list()
    assert mine["validation_log_loss"].drop_nans().is_between(0, 5).all()


@pytest.mark.parametrize("task", TASKS)
def test_validation_chooses_one_depth(made, task):
    table = read_depth_sweep(made, "vit-a", task)
    assert table.select("block", "blocks", "pool", "dim").rows() == [(1, 2, "gap", 32), (2, 2, "cls", 32)]
    assert table["chosen"].sum() == 1
    (chosen,) = table.filter("chosen")["validation_log_loss"]
    assert chosen == table["validation_log_loss"].min()


def test_labels_of_the_test_split_do_not_choose(tiny, made, make_home, monkeypatch):
    """Test labels turned round: other metrics, the same choice with the same penalties."""
    bench = tiny.open_bench(make_home())
    DepthFeatures().ensure(bench, "vit-a", "tiny-skin")
    opened = depth_module.RunScorer.open

    def turned(*arguments):
        scorer = opened(*arguments)
        scorer.labels["tiny-skin"][:] = (scorer.labels["tiny-skin"] + 1) % 3
        return scorer

    monkeypatch.setattr(depth_module.RunScorer, "open", turned)
    DepthSweep().ensure(bench, "vit-a", "tiny-skin.s0")
    other, table = (read_depth_sweep(site, "vit-a", "tiny-skin.s0") for site in (bench, made))
    assert (other["auroc"] - table["auroc"]).abs().min() > 0.05
    same = ["share", "chosen", "lambda", "validation_log_loss"]
    assert other.select(same).equals(table.select(same))


def test_a_second_call_makes_nothing_and_a_second_home_the_same_bytes(tiny, made, make_home):
    assert not DepthSweep().ensure(made, "vit-a", "tiny-skin.s0").made
    other = tiny.open_bench(make_home())
    DepthFeatures().ensure(other, "vit-a", "tiny-skin")
    assert DepthSweep().ensure(other, "vit-a", "tiny-skin.s0").made
    for name in (RUNS_FILE, FITS_FILE):
        files = [b.store.open(b.key("depth_sweep", "vit-a", "tiny-skin.s0")).file(name) for b in (made, other)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_a_missing_upstream_is_refused(tiny, make_home):
    bench = tiny.open_bench(make_home())
    with pytest.raises(RefusedError, match=r"depth_sweep .*upstream partition is missing"):
        DepthSweep().ensure(bench, "vit-b", "tiny-skin.s0")


def test_shares_of_the_protocol_are_nobody_elses(tiny, made, tmp_path):
    home = tmp_path / "home"
    shutil.copytree(made.home.path, home)
    protocol = home / "catalog" / "protocols" / "tiny-v1.toml"
    protocol.write_text(f"{protocol.read_text()}\n[analyses.depth]\nshares = [0.5, 1.0]\n")
    changed = tiny.open_bench(home)
    assert tiny.stale(changed) == {}
    assert not DepthFeatures().is_current(changed, "vit-a", "tiny-skin")
    assert DepthFeatures().is_current(made, "vit-a", "tiny-skin")
