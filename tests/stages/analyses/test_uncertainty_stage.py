import json
import shutil

import numpy as np
import polars as pl
import pytest

from crs_assets.assets.analyses.uncertainty import WINNER_SEPARABLE, describe_replicates, describe_uncertainty
from crs_assets.science.analyses.uncertainty import normalized
from crs_assets.science.protocol import AXES
from crs_assets.stages.analyses.axis_replicates import AxisReplicates
from crs_assets.stages.analyses.uncertainty import Uncertainty
from crs_assets.stages.panel_in_force import active_panel
from crs_assets.stages.probes import ProbePredictions
from crs_assets.stages.progress import listening
from crs_assets.stages.scores import read_profile, read_score
from crs_assets.stages.stage import RefusedError

SKIN, CHEST = "tiny-skin", "tiny-chest"


@pytest.fixture(scope="module")
def home(finished_home, tmp_path_factory, tiny):
    """The finished suite with replicates and their tables, few enough for a test; never written to by one."""
    home = tmp_path_factory.mktemp("uncertain") / "home"
    shutil.copytree(finished_home, home)
    bench = tiny.open_bench(home)
    tiny.ensure_all(bench, (AxisReplicates(), Uncertainty()))
    return home


@pytest.fixture(scope="module")
def uncertain(home, tiny):
    return tiny.open_bench(home)


def replicates(bench, encoder, dataset, kind, reading="tiny-v1"):
    path = bench.store.open(bench.key("axis_replicates", encoder, dataset)).file("replicates.parquet")
    return pl.read_parquet(path).filter((pl.col("kind") == kind) & (pl.col("reading") == reading)).sort("replicate")


def table(bench, name):
    return pl.read_parquet(bench.store.open(bench.key("uncertainty")).file(f"{name}.parquet"))


def test_each_cell_has_its_replicates_under_each_reading(uncertain):
    assert len(list(AxisReplicates().partitions(uncertain))) == 9
    for reading in ("tiny-v1", "tiny-v1-skill"):
        assert replicates(uncertain, "vit-a", SKIN, "seed", reading).height == 300
        case = replicates(uncertain, "vit-a", SKIN, "case", reading)
        assert case["replicate"].to_list() == list(range(120))
        assert case.select(pl.col("discrimination").is_between(0, 1).all()).item()


def test_seed_replicates_are_means_of_the_published_seeds(uncertain):
    profile = read_profile(uncertain, "vit-b")["datasets"][CHEST]["tiny-v1"]
    first, second = (np.array([seed[axis] for axis in AXES]) for seed in profile["per_seed"])
    possible = np.stack([first, (first + second) / 2, second])
    drawn = replicates(uncertain, "vit-b", CHEST, "seed").select(AXES).to_numpy()
    distance = np.abs(drawn[:, None] - possible[None]).max(axis=2)
    assert distance.min(axis=1).max() < 1e-12
    # Two seeds: one multiset of each kind, the mixed one half of the time.
    share = np.bincount(distance.argmin(axis=1), minlength=3) / len(drawn)
    np.testing.assert_allclose(share, [0.25, 0.5, 0.25], atol=0.1)


def test_draws_are_shared_by_all_encoders(uncertain):
    first, second = (replicates(uncertain, name, SKIN, "case") for name in ("vit-a", "vit-b"))
    assert first["lacking"].equals(second["lacking"])

    def mixed(name):
        """Which seed replicates hold both seeds: neither the lowest nor the highest of three values."""
        values = replicates(uncertain, name, SKIN, "seed")["discrimination"].to_numpy().round(12)
        return (values != values.min()) & (values != values.max())

    np.testing.assert_array_equal(mixed("vit-a"), mixed("vit-b"))


def test_intervals_are_those_of_the_replicates_and_their_values_the_published_ones(uncertain):
    intervals = table(uncertain, "intervals")
    cell = intervals.filter(
        (pl.col("encoder") == "vit-a") & (pl.col("dataset") == CHEST) & (pl.col("reading") == "tiny-v1")
    )
    drawn = replicates(uncertain, "vit-a", CHEST, "case").select(AXES).to_numpy()
    row = cell.filter((pl.col("kind") == "case") & (pl.col("quantity") == "z_robustness")).row(0, named=True)
    z = normalized(drawn, uncertain.suite.protocol)[:, 3]
    assert (row["low"], row["high"]) == tuple(np.quantile(z, (0.025, 0.975)))
    published = read_score(uncertain, "vit-a")["readings"]["tiny-v1"]["datasets"][CHEST]
    for quantity in ("crs", "dominance", "closeness", "worst_axis"):
        values = cell.filter(pl.col("quantity") == quantity)["value"]
        assert values.to_list() == pytest.approx([published[quantity]] * len(values), abs=1e-12)
    assert intervals.filter(pl.col("low") > pl.col("high")).is_empty()


def test_centred_axes_scatter_as_the_resampled_ones_about_what_is_published(uncertain):
    intervals = table(uncertain, "intervals").filter(
        (pl.col("encoder") == "vit-a") & (pl.col("dataset") == CHEST) & (pl.col("reading") == "tiny-v1")
    )
    raw = replicates(uncertain, "vit-a", CHEST, "case")["discrimination"].to_numpy()
    rows = intervals.filter((pl.col("kind") == "case-centred") & (pl.col("quantity") == "auroc"))
    (row,) = rows.iter_rows(named=True)
    assert row["bias"] == pytest.approx(0, abs=1e-12)
    expected = np.quantile(raw, (0.025, 0.975)) - np.mean(raw) + row["value"]
    assert (row["low"], row["high"]) == pytest.approx(tuple(expected), abs=1e-12)


def test_the_joint_score_follows_the_peers_draws(uncertain):
    """CRS of one replicate by hand: the three terms from z, the peers under the same draw or as published."""
    protocol, panel = uncertain.suite.protocol, active_panel(uncertain)
    z = {name: normalized(replicates(uncertain, name, SKIN, "case").select(AXES).to_numpy(), protocol)
         for name in ("vit-d", *panel["encoders"])}  # fmt: skip
    fixed = {name: [entry["datasets"][SKIN]["tiny-v1"]["z"][axis] for axis in AXES]
             for name, entry in panel["encoders"].items()}  # fmt: skip

    def shares(peers_of):
        found = []
        for at, mine in enumerate(z["vit-d"]):
            peers = [peers_of(name, at) for name in fixed]
            found.append(np.mean([(mine >= peer).all() and (mine > peer).any() for peer in peers]))
        return found

    intervals = table(uncertain, "intervals").filter(
        (pl.col("encoder") == "vit-d") & (pl.col("dataset") == SKIN) & (pl.col("reading") == "tiny-v1")
        & (pl.col("kind") == "case") & (pl.col("quantity") == "dominance")
    )  # fmt: skip
    steps = table(uncertain, "dominance").filter(
        (pl.col("encoder") == "vit-d") & (pl.col("dataset") == SKIN) & (pl.col("reading") == "tiny-v1")
        & (pl.col("kind") == "case")
    )  # fmt: skip
    for kind, peers_of in (("panel-fixed", lambda name, _: fixed[name]), ("joint", lambda name, at: z[name][at])):
        expected = shares(peers_of)
        row = intervals.filter(pl.col("peers") == kind).row(0, named=True)
        assert (row["low"], row["high"]) == pytest.approx(tuple(np.quantile(expected, (0.025, 0.975))), abs=1e-12)
        of_kind = steps.filter(pl.col("peers") == kind)
        assert (of_kind["dominance"] * of_kind["probability"]).sum() == pytest.approx(np.mean(expected), abs=1e-12)


def test_ranks_differences_and_tier_agree(uncertain):
    ranks = table(uncertain, "ranks")
    for _, group in ranks.group_by("reading", "kind", "peers"):
        matrix = group.pivot("rank", index="encoder", values="probability").drop("encoder").to_numpy()
        np.testing.assert_allclose(matrix.sum(axis=0), 1, atol=1e-12)
        np.testing.assert_allclose(matrix.sum(axis=1), 1, atol=1e-12)
    document = json.loads(uncertain.store.open(uncertain.key("uncertainty")).file("leading_tier.json").read_text())
    assert len(document["verdicts"]) == 12
    (primary,) = [
        entry
        for entry in document["verdicts"]
        if (entry["reading"], entry["kind"], entry["peers"]) == ("tiny-v1", "case-centred", "panel-fixed")
    ]
    assert (document["tier"], document["winner"], document["threshold"]) == (primary["tier"], primary["winner"], 0.95)
    differences = table(uncertain, "differences").filter(
        (pl.col("reading") == "tiny-v1") & (pl.col("kind") == "case-centred") & (pl.col("dataset") == "aggregate")
        & (pl.col("quantity") == "crs") & (pl.col("peers") == "panel-fixed")
    )  # fmt: skip
    beaten = [
        row["other"] if row["encoder"] == primary["leader"] else row["encoder"]
        for row in differences.iter_rows(named=True)
        if primary["leader"] in (row["encoder"], row["other"])
        and (row["low"] > 0 if row["encoder"] == primary["leader"] else row["high"] < 0)
    ]
    ranked = set(ranks["encoder"])
    assert set(primary["inseparable"]) == ranked - set(beaten) - {primary["leader"]}
    assert (primary["winner"] is None) == bool(primary["inseparable"])


def test_delong_stands_beside_where_patients_have_one_image(uncertain):
    found = table(uncertain, "delong")
    # Every third patient of skin has two images; of chest each has one.
    assert found["dataset"].unique().to_list() == [CHEST]
    runs = uncertain.store.open(uncertain.key("run_metrics", "vit-a", f"{CHEST}.s1")).file("class_runs.parquet")
    clean = pl.read_parquet(runs).filter(
        (pl.col("fraction") == 1) & (pl.col("condition") == "clean") & pl.col("scored")
    )
    rows = found.filter((pl.col("encoder") == "vit-a") & (pl.col("seed") == 1))
    expected = dict(clean.select("class", "auroc").iter_rows())
    assert dict(rows.select("class", "auroc").iter_rows()) == pytest.approx(expected, abs=1e-12)
    assert rows.select((pl.col("low") <= pl.col("auroc")).all() & (pl.col("auroc") <= pl.col("high")).all()).item()


def test_resamples_done_are_told_while_they_are_made(home, tiny, tmp_path):
    private = tmp_path / "home"
    shutil.copytree(home, private)
    bench, seen = tiny.open_bench(private), []
    shutil.rmtree(private / "artifacts" / "tiny" / "axis_replicates" / "vit-c" / SKIN)
    with listening(seen.append):
        AxisReplicates().ensure(bench, "vit-c", SKIN)
    done = [(each.done, each.total, each.unit) for each in seen if each.stage == "axis_replicates"]
    # Two seeds of 120 resamples.
    assert done == sorted(done)
    assert done[-1] == (240, 240, "resamples")
    assert (120, 240, "resamples") in done
    assert all(each.rate > 0 for each in seen)


def test_a_new_encoder_recomputes_its_own_replicates_and_the_tables(home, tiny, tmp_path):
    private = tmp_path / "home"
    shutil.copytree(home, private)
    bench = tiny.open_bench(private)
    assert tiny.stale(bench, (AxisReplicates(), Uncertainty())) == {}
    shutil.rmtree(private / "artifacts" / "tiny" / "axis_replicates" / "vit-c" / SKIN)
    assert tiny.remade(bench, (AxisReplicates(),)) == {"axis_replicates": {f"vit-c|{SKIN}"}}
    # Made again it is the same, so the tables stay in force.
    assert tiny.stale(bench, (Uncertainty(),)) == {}
    again = replicates(bench, "vit-c", SKIN, "case")
    assert again.equals(replicates(tiny.open_bench(home), "vit-c", SKIN, "case"))


def test_the_tables_wait_for_the_replicates_of_every_cell(home, tiny, tmp_path):
    private = tmp_path / "home"
    shutil.copytree(home, private)
    shutil.rmtree(private / "artifacts" / "tiny" / "axis_replicates" / "vit-c" / SKIN)
    assert Uncertainty().inputs(tiny.open_bench(private)) is None


def test_predictions_that_do_not_give_the_published_axes_are_refused(home, tiny, tmp_path, monkeypatch):
    private = tmp_path / "home"
    shutil.copytree(home, private)
    bench = tiny.open_bench(private)
    shutil.rmtree(private / "artifacts" / "tiny" / "axis_replicates" / "vit-a" / SKIN)
    key = type(bench).key

    def of_another(self, asset, *parts):
        return key(self, asset, *(("vit-b", parts[1]) if asset == ProbePredictions.name else parts))

    monkeypatch.setattr(type(bench), "key", of_another)
    with pytest.raises(RefusedError, match="vit-a on tiny-skin, seed 0: the stored predictions give other axes"):
        AxisReplicates().ensure(bench, "vit-a", SKIN)


def test_metadata_shows_figures_and_no_counts_of_people(uncertain):
    cell = AxisReplicates().ensure(uncertain, "vit-a", CHEST)
    shown = describe_replicates(uncertain, cell)
    assert shown["case_replicates"] == 120
    assert isinstance(shown["classes_left_out_of_some"], str)
    outcome = Uncertainty().ensure(uncertain)
    shown = describe_uncertainty(uncertain, outcome)
    assert "vit-a" in shown["crs"].value
    finding = WINNER_SEPARABLE.finding(uncertain, uncertain.key("uncertainty"), outcome.manifest)
    assert (finding is None) == (shown["winner"] != "none")
