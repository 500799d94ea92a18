"""What is published: scores against a frozen panel, who is ranked, and what is refused."""

import json
import shutil

import pytest

from crs_assets.science import panel as panels
from crs_assets.science.panel import PanelError
from crs_assets.stages.nulls import null_comparisons, rankable_datasets
from crs_assets.stages.panel import PANEL_FILE, ReferencePanel
from crs_assets.stages.panel_in_force import active_panel, panel_path
from crs_assets.stages.probes import RunMetrics
from crs_assets.stages.scores import (
    SCORE_FILE,
    AxisProfile,
    Crs,
    freeze_panel,
    read_profile,
    read_score,
    rederive_panel,
    score_encoder,
)

DROPIN = "vit-z"


def score_bytes(bench, encoder):
    return bench.store.open(bench.key("crs", encoder)).file(SCORE_FILE).read_bytes()


def add_encoder(tiny, bench, seed=40):
    folder = bench.home.dropins("tiny")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{DROPIN}.toml").write_text(tiny.network_entry(DROPIN))
    tiny.write_network(bench.home.path, DROPIN, seed)
    return tiny.open_bench(bench.home.path)


@pytest.mark.slow
def test_a_new_encoder_moves_no_published_byte(tiny, bench):
    before = {name: score_bytes(bench, name) for name in bench.suite.encoders}
    panel = active_panel(bench)
    more = add_encoder(tiny, bench)
    assert {part.split("|")[0] for parts in tiny.stale(more).values() for part in parts} == {DROPIN}
    made = tiny.remade(more)
    assert {part.split("|")[0] for parts in made.values() for part in parts} == {DROPIN}
    assert read_score(more, DROPIN)["complete"]
    assert active_panel(more) == panel
    assert {name: score_bytes(more, name) for name in before} == before


def test_a_member_is_no_peer_of_itself_and_others_have_the_whole_panel(finished):
    for name in finished.suite.encoders:
        peers = {cell["peers"] for cell in read_score(finished, name)["readings"]["tiny-v1"]["datasets"].values()}
        assert peers == {2 if name in finished.suite.spec.panel_members else 3}


def test_an_entry_with_the_same_weights_is_no_peer(tiny, bench):
    twin = add_encoder(tiny, bench)
    shutil.copytree(bench.home.mirror / "tests" / "vit-a", bench.home.mirror / "tests" / DROPIN, dirs_exist_ok=True)
    tiny.ensure_all(twin, only=DROPIN)
    Crs().ensure(twin, DROPIN)
    mine, original = read_score(twin, DROPIN), read_score(twin, "vit-a")
    assert mine["weights"] == original["weights"]
    assert mine["readings"] == original["readings"]


def test_an_absent_cell_is_explained_and_completes_the_encoder(finished):
    profile, score = read_profile(finished, "vit-d"), read_score(finished, "vit-d")
    assert profile["coverage"] == {"tiny-skin": "complete", "tiny-chest": "absent: drawn without a chest"}
    assert (score["complete"], score["covered"], score["expected"]) == (True, 1, 1)
    (cell,) = score["readings"]["tiny-v1"]["datasets"].values()
    assert score["readings"]["tiny-v1"]["aggregate"] == {"crs": cell["crs"], "datasets": ["tiny-skin"]}


def test_a_missing_cell_gives_axes_of_the_others_and_no_aggregate(tiny, bench):
    shutil.rmtree(bench.store.root / bench.key(RunMetrics.name, "vit-b", "tiny-chest.s1").path)
    AxisProfile().ensure(bench, "vit-b")
    Crs().ensure(bench, "vit-b")
    profile, score = read_profile(bench, "vit-b"), read_score(bench, "vit-b")
    assert profile["coverage"] == {"tiny-skin": "complete", "tiny-chest": "missing: not run"}
    assert set(profile["datasets"]) == {"tiny-skin"}
    assert (score["complete"], score["covered"], score["expected"]) == (False, 1, 2)
    for reading in score["readings"].values():
        assert reading["aggregate"] is None
        assert "tiny-chest" not in reading["datasets"]
    before = read_score(tiny.open_bench(bench.home.path), "vit-a")
    assert before["complete"]


def test_freezing_again_gives_the_same_panel_and_the_profiles_rederive_it(bench):
    panel = active_panel(bench)
    assert panel["name"] == f"tiny-local-{panel['sha256'][:8]}"
    assert freeze_panel(bench) == panel
    assert [path.name for path in bench.home.panels.glob("*.json")] == [f"{panel['name']}.json"]
    assert rederive_panel(bench, panel) == []
    other = json.loads(json.dumps(panel))
    other["encoders"]["vit-a"]["datasets"]["tiny-skin"]["tiny-v1"]["z"]["calibration"] = 0.0
    assert len(rederive_panel(bench, other)) == 1


def test_a_panel_is_not_frozen_before_its_members_and_nulls_are_there(bench):
    shutil.rmtree(bench.store.root / bench.key("axis_profile", "vit-c").path)
    shutil.rmtree(bench.store.root / bench.key("null_controls", "tiny-skin.s1").path)
    with pytest.raises(
        PanelError, match=r"profiles \(vit-c\), null controls \(tiny-skin\); make them first: crs run --suite tiny$"
    ):
        freeze_panel(bench)


def test_a_panel_is_not_frozen_of_a_member_with_a_missing_cell(bench):
    shutil.rmtree(bench.store.root / bench.key(RunMetrics.name, "vit-b", "tiny-chest.s1").path)
    AxisProfile().ensure(bench, "vit-b")
    with pytest.raises(
        PanelError, match=r"no up-to-date runs \(vit-b on tiny-chest\); make them first: crs run --suite tiny$"
    ):
        freeze_panel(bench)


def test_the_store_holds_the_panel_that_scores_were_taken_against(finished):
    stored = finished.store.open(finished.key(ReferencePanel.name)).file(PANEL_FILE)
    assert stored.read_bytes() == panel_path(finished).read_bytes()
    assert read_score(finished, "vit-a")["panel_sha256"] == json.loads(stored.read_text())["sha256"]


def test_an_altered_panel_scores_nobody(bench):
    path = panel_path(bench)
    path.write_text(path.read_text().replace('"protocol": "tiny-v1"', '"protocol": "tiny-v2"'))
    with pytest.raises(PanelError, match="altered after it was frozen"):
        Crs().ensure(bench, "vit-a")


def test_another_panel_adds_a_version_and_the_old_score_stays_readable(bench):
    key = bench.key("crs", "vit-d")
    old = bench.store.peek(key)
    panel = {k: v for k, v in active_panel(bench).items() if k not in ("sha256", "name", "scores")}
    profiles = {name: entry for name, entry in panel["encoders"].items() if name != "vit-c"}
    other = panels.freeze("tiny", list(bench.suite.readings), panel["datasets"], profiles)
    panels.write(other, bench.home.panels)
    (bench.home.panels / "tiny.active").write_text(other["name"])
    assert Crs().ensure(bench, "vit-d").made
    assert read_score(bench, "vit-d")["panel"] == other["name"]
    assert bench.store.open(key, old.fingerprint).manifest == old


def test_a_data_set_that_the_panel_lacks_has_axes_and_the_cure_instead_of_a_score(finished):
    panel = json.loads(json.dumps(active_panel(finished)))
    del panel["datasets"]["tiny-chest"]
    score = score_encoder(finished, panel, read_profile(finished, "vit-a"))
    assert set(score["readings"]["tiny-v1"]["datasets"]) == {"tiny-skin"}
    assert "crs panel freeze --suite tiny" in score["coverage"]["tiny-chest"]
    assert not score["complete"]
    assert score["readings"]["tiny-v1"]["aggregate"] is None


def test_a_data_set_that_cannot_rank_is_left_out_of_the_aggregate(finished):
    panel = json.loads(json.dumps(active_panel(finished)))
    panel["datasets"]["tiny-chest"]["rankable"] = False
    score = score_encoder(finished, panel, read_profile(finished, "vit-a"))["readings"]["tiny-v1"]
    assert set(score["datasets"]) == {"tiny-skin", "tiny-chest"}
    assert score["aggregate"] == {"crs": score["datasets"]["tiny-skin"]["crs"], "datasets": ["tiny-skin"]}


def test_both_readings_stand_side_by_side_and_differ(finished):
    readings = read_score(finished, "vit-a")["readings"]
    assert set(readings) == {"tiny-v1", "tiny-v1-skill"}
    first, second = (readings[name]["datasets"]["tiny-chest"]["z"] for name in ("tiny-v1", "tiny-v1-skill"))
    assert first["discrimination"] == second["discrimination"]
    assert first["robustness"] != second["robustness"]


def test_every_encoder_is_compared_with_every_null_of_its_data_set_once(finished):
    compared = null_comparisons(finished, "tiny-skin", ["vit-a", "pixels-1"])
    pairs = [(item.encoder, item.null) for item in compared]
    nulls = {"pixels-1", "metadata-only", "shuffled-labels"}
    assert sorted(pairs) == sorted(
        [("vit-a", null) for null in nulls] + [("pixels-1", null) for null in nulls - {"pixels-1"}]
    )
    # Chest has no metadata, so no metadata-only control.
    assert {item.null for item in null_comparisons(finished, "tiny-chest", ["vit-a"])} == {
        "pixels-1",
        "shuffled-labels",
    }
    for item in compared:
        assert item.lower <= item.upper
        assert item.above == (item.lower > 0)


def test_the_mean_difference_to_a_null_is_that_of_the_stored_runs(finished):
    import polars as pl

    from crs_assets.stages.probes import read_runs

    def mean_auroc(encoder):
        if encoder in finished.suite.encoders:
            runs = [read_runs(finished, encoder, f"tiny-skin.s{seed}") for seed in (0, 1)]
        else:
            paths = [finished.store.open(finished.key("null_controls", f"tiny-skin.s{seed}")) for seed in (0, 1)]
            runs = [pl.read_parquet(path.file("runs.parquet")).filter(pl.col("encoder") == encoder) for path in paths]
        clean = (pl.col("condition") == "clean") & (pl.col("fraction") == 1.0)
        return sum(run.filter(clean)["auroc"].item() for run in runs) / 2

    for item in null_comparisons(finished, "tiny-skin", ["vit-a"]):
        assert item.difference == pytest.approx(mean_auroc("vit-a") - mean_auroc(item.null), abs=1e-12)


def test_controls_alone_make_no_data_set_rankable(finished):
    assert rankable_datasets(finished, finished.suite.spec.panel_members) == {"tiny-skin": True, "tiny-chest": True}
    # One encoder that is its own null: nothing stands above anything.
    assert rankable_datasets(finished, ["pixels-1"])["tiny-skin"] is False
