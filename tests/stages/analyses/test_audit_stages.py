"""Analyses of stored profiles, runs and scores on the finished tiny suite."""

import json
import shutil

import numpy as np
import polars as pl
import pytest
from scipy.stats import kendalltau, spearmanr

from crs_assets.science.analyses.agreement import AGREEMENT_SCHEMA, COMMON, MOVES_SCHEMA
from crs_assets.science.analyses.external_validity import AUROC_PREDICTORS, CRS_PREDICTORS
from crs_assets.science.analyses.invariance import COHORT, FROZEN
from crs_assets.science.protocol import AXES
from crs_assets.stages.analyses.axis_replicates import AxisReplicates
from crs_assets.stages.analyses.control_probes import ControlProbes, read_control_runs
from crs_assets.stages.analyses.external_validity import FAMILIES, PREDICTORS, ExternalValidity
from crs_assets.stages.analyses.penalty_axes import PenaltyAxes, read_penalty_axes
from crs_assets.stages.analyses.rank_agreement import AGREEMENT, MOVES, RankAgreementAnalysis
from crs_assets.stages.analyses.reference_invariance import DISPLACEMENT, TRIALS, ReferenceInvariance
from crs_assets.stages.analyses.run_audits import (
    CELLS,
    CONDITIONS,
    CORRELATIONS,
    CURVES,
    REACH,
    LabelEfficiencyAudit,
    PerturbationAudit,
)
from crs_assets.stages.analyses.score_sensitivity import VARIANT_TABLE, WEIGHTINGS, ScoreSensitivity
from crs_assets.stages.analyses.suite_analysis import KEY_FIGURES_FILE, read_table
from crs_assets.stages.probes import read_runs
from crs_assets.stages.scores import read_profile, read_score
from crs_assets.stages.stage import RefusedError

STAGES = {
    RankAgreementAnalysis(): (AGREEMENT, MOVES),
    ExternalValidity(): (PREDICTORS, FAMILIES),
    LabelEfficiencyAudit(): (CURVES, CORRELATIONS, REACH),
    PerturbationAudit(): (CONDITIONS, CELLS),
    ReferenceInvariance(): (TRIALS, DISPLACEMENT),
    ScoreSensitivity(): (VARIANT_TABLE, WEIGHTINGS),
}
TRAINED, EVERYWHERE = ("vit-a", "vit-b", "vit-c", "vit-d"), ("vit-a", "vit-b", "vit-c")
SKIN, CHEST = "tiny-skin", "tiny-chest"


@pytest.fixture(scope="module")
def made(tiny, finished_home, tmp_path_factory):
    home = tmp_path_factory.mktemp("audits") / "home"
    shutil.copytree(finished_home, home)
    bench = tiny.open_bench(home)
    tiny.ensure_all(bench, (PenaltyAxes(), AxisReplicates()))
    for stage in STAGES:
        assert stage.ensure(bench).made
    return bench


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_tables_and_key_figures_are_stored_once_and_hold_no_nan(made, stage):
    artifact = made.store.open(made.key(stage.name))
    assert set(artifact.manifest.files) == {KEY_FIGURES_FILE, *(f"{name}.parquet" for name in STAGES[stage])}
    assert json.loads(artifact.file(KEY_FIGURES_FILE).read_text()) == artifact.manifest.summary
    for name in STAGES[stage]:
        table = read_table(made, stage.name, name)
        assert table.height
        floats = table.select(pl.col(pl.Float64))
        assert not any(column.is_nan().any() for column in floats)
        assert "pixels-1" not in table.get_column("encoder", default=pl.Series([], dtype=pl.Utf8)).to_list()
    assert not stage.ensure(made).made


def test_agreement_is_that_of_the_published_scores_on_what_all_encoders_have(made):
    table = read_table(made, "rank_agreement", AGREEMENT)
    assert (dict(table.schema), dict(read_table(made, "rank_agreement", MOVES).schema)) == (
        AGREEMENT_SCHEMA,
        MOVES_SCHEMA,
    )
    for reading in ("tiny-v1", "tiny-v1-skill"):
        found = table.filter(
            (pl.col("scope") == COMMON) & (pl.col("reading") == reading) & (pl.col("a") == "calibration")
        ).row(0, named=True)
        cells = {name: read_score(made, name)["readings"][reading]["datasets"].get(SKIN) for name in TRAINED}
        scores = {name: cell["crs"] for name, cell in cells.items() if cell}
        errors = [-read_profile(made, name)["datasets"][SKIN][reading]["raw"]["calibration"] for name in scores]
        assert found["kendall_tau"] == pytest.approx(kendalltau(errors, list(scores.values())).statistic)
        # Above chance, an encoder near chance has no score and is not ranked.
        assert found["n"] == len(scores) >= 3


def test_control_probes_are_compared_with_the_linear_one_on_every_axis(bench):
    for name in TRAINED:
        for seed in (0, 1):
            ControlProbes().ensure(bench, name, f"{SKIN}.s{seed}")
    RankAgreementAnalysis().ensure(bench)
    table = read_table(bench, "rank_agreement", AGREEMENT).filter(pl.col("scope") == COMMON)

    def of_control(probe):
        means = []
        for name in TRAINED:
            runs = pl.concat(read_control_runs(bench, name, f"{SKIN}.s{seed}") for seed in (0, 1))
            clean = (pl.col("condition") == "clean") & (pl.col("fraction") == 1.0) & (pl.col("probe") == probe)
            means.append(runs.filter(clean)["auroc"].mean())
        return means

    linear = [read_profile(bench, name)["datasets"][SKIN]["tiny-v1"]["raw"]["discrimination"] for name in TRAINED]
    for probe in ("mlp", "knn"):
        row = table.filter(pl.col("b") == f"discrimination of {probe}").row(0, named=True)
        assert (row["a"], row["n"]) == ("discrimination", 4)
        assert row["kendall_tau"] == pytest.approx(kendalltau(linear, of_control(probe)).statistic)
        known = dict(table.filter(pl.col("b").str.ends_with(f" of {probe}")).select("a", "n").iter_rows())
        # Of nearest neighbours no calibration: k votes are too few levels for the bins.
        assert known == {axis: 0 if (probe, axis) == ("knn", "calibration") else 4 for axis in AXES}
    moves = read_table(bench, "rank_agreement", MOVES).filter(pl.col("b") == "robustness of mlp")
    assert sorted(moves.filter(pl.col("scope") == COMMON)["encoder"]) == list(TRAINED)


def test_predictors_of_the_target_are_published_scores_and_stored_runs(made):
    table = read_table(made, "external_validity", PREDICTORS).filter(pl.col("reading") == "tiny-v1")
    found = {row["predictor"]: row for row in table.iter_rows(named=True)}

    def target_auroc(name):
        runs = pl.concat(read_runs(made, name, f"{CHEST}.s{seed}") for seed in (0, 1))
        return runs.filter((pl.col("condition") == "transfer") & (pl.col("fraction") == 1.0))["auroc"].mean()

    y = [target_auroc(name) for name in EVERYWHERE]
    scores = [read_score(made, n)["readings"]["tiny-v1"]["datasets"][CHEST]["crs_without_transfer"] for n in EVERYWHERE]
    aurocs = [read_profile(made, n)["datasets"][CHEST]["tiny-v1"]["raw"]["discrimination"] for n in EVERYWHERE]
    for name, x in ((CRS_PREDICTORS[0], scores), (AUROC_PREDICTORS[0], aurocs)):
        assert found[name]["n"] == 3
        assert found[name]["rho"] == pytest.approx(spearmanr(x, y).statistic)
    families = read_table(made, "external_validity", FAMILIES)
    assert families["reason"].to_list() == ["0 against 3 encoders, needs 2 on both sides"] * 3
    summary = made.store.peek(made.key("external_validity")).summary
    assert "At tiny-chest-b (n = 3), CRS of tiny-chest without its transfer term" in summary["verdict"]
    assert (summary["transfers"], summary["held_out"]) == (1, 2)


def test_curves_end_at_the_discrimination_of_the_profile(made):
    curves = read_table(made, "label_efficiency_audit", CURVES)
    assert curves.height == 7 * 3  # seven cells, three fractions
    full = curves.filter(pl.col("fraction") == 1.0)
    for row in full.iter_rows(named=True):
        raw = read_profile(made, row["encoder"])["datasets"][row["dataset"]]["tiny-v1"]["raw"]
        assert row["auroc"] == pytest.approx(raw["discrimination"])
    correlations = read_table(made, "label_efficiency_audit", CORRELATIONS)
    assert correlations.filter(pl.col("measure") == "aulc")["n"].to_list() == [7, 4]


def test_losses_are_the_profiles_drops(made):
    cells = read_table(made, "perturbation_audit", CELLS)
    assert cells.height == 7
    for row in cells.iter_rows(named=True):
        profile = read_profile(made, row["encoder"])["datasets"][row["dataset"]]["tiny-v1"]
        assert row["auroc_loss_mean"] == pytest.approx(profile["components"]["mean_drop"])
        assert row["ece_clean"] == pytest.approx(profile["raw"]["calibration"])
    assert made.store.peek(made.key("perturbation_audit")).summary["cells"] == 7


def test_the_frozen_panel_moves_no_score(made):
    table = read_table(made, "reference_invariance", DISPLACEMENT)
    for reading in ("tiny-v1", "tiny-v1-skill"):
        rows = {row["rule"]: row for row in table.filter(pl.col("reading") == reading).iter_rows(named=True)}
        assert rows[FROZEN]["max_displacement"] == rows[FROZEN]["mean_displacement"] == 0.0
        assert rows[COHORT]["max_displacement"] > 0
        assert (rows[COHORT]["panel"], rows[COHORT]["arriving"], rows[COHORT]["draws"]) == (3, 1, 30)
    assert "by construction" in made.store.peek(made.key("reference_invariance")).summary["frozen_note"]


def test_runs_read_as_published_give_the_published_scores(made):
    table = read_table(made, "score_sensitivity", VARIANT_TABLE)
    as_published = table.filter(pl.col("variant") == "as published")
    assert as_published.select("kind", "quantity").rows() == [
        ("axis", "crs"),
        *(("penalty", quantity) for quantity in ("crs", *AXES)),
    ]
    for row in as_published.iter_rows(named=True):
        assert row["max_change"] == pytest.approx(0, abs=1e-9)
        assert (row["kendall_tau"], row["reversed_pairs"], row["n"]) == (pytest.approx(1), 0, 4)
    assert table.filter(pl.col("kind") == "anchor").height == 16
    readings = table.filter(pl.col("kind") == "reading")
    assert readings.select("variant", "quantity").rows() == [
        ("tiny-v1-skill", quantity) for quantity in ("crs", "label_efficiency", "robustness")
    ]
    weightings = read_table(made, "score_sensitivity", WEIGHTINGS)
    for (_,), shares in weightings.group_by("reading"):
        assert shares["share_first"].sum() == pytest.approx(1)
        assert shares["weightings"].unique().to_list() == [231]


def test_axes_above_chance_are_compared_with_the_published_forms(made):
    table = read_table(made, "score_sensitivity", VARIANT_TABLE)
    row = table.filter((pl.col("kind") == "reading") & (pl.col("quantity") == "robustness")).row(0, named=True)
    pairs = [
        [read_profile(made, name)["datasets"][SKIN][reading]["raw"]["robustness"] for name in TRAINED]
        for reading in ("tiny-v1", "tiny-v1-skill")
    ]
    known = [(a, b) for a, b in zip(*pairs, strict=True) if b is not None]
    assert row["n"] == len(known) >= 3
    assert row["kendall_tau"] == pytest.approx(kendalltau(*zip(*known, strict=True)).statistic)


def test_a_margin_of_dominance_is_that_of_the_resampled_axes(made):
    """Intervals by numpy, dominance by loops over peers and axes."""
    reading, level = made.suite.protocol, (0.025, 0.975)

    def resampled(name):
        path = made.store.open(made.key("axis_replicates", name, SKIN)).file("replicates.parquet")
        rows = pl.read_parquet(path).filter((pl.col("kind") == "case") & (pl.col("reading") == "tiny-v1"))
        ends = [(reading.axes.anchors[axis].zero, reading.axes.anchors[axis].one) for axis in AXES]
        published = read_profile(made, name)["datasets"][SKIN]["tiny-v1"]["raw"]
        drawn = rows.sort("replicate").select(AXES).to_numpy()
        raw = drawn - np.nanmean(drawn, axis=0) + [published[axis] for axis in AXES]
        return np.stack(
            [((x - a) / (b - a)).clip(0, 1).round(6) for x, (a, b) in zip(raw.T, ends, strict=True)], axis=1
        )

    z, members = {name: resampled(name) for name in TRAINED}, ("vit-a", "vit-b", "vit-c")
    scores, published = {}, {}
    for name in TRAINED:
        cell = read_score(made, name)["readings"]["tiny-v1"]["datasets"][SKIN]
        beaten = []
        for peer in members:
            if peer != name:
                low, high = np.quantile(z[name] - z[peer], level, axis=0)
                beaten.append((high >= 0).all() and (low > 0).any())
        scores[name] = 0.6 * np.mean(beaten) + 0.25 * cell["closeness"] + 0.15 * cell["worst_axis"]
        published[name] = cell["crs"]
    table = read_table(made, "score_sensitivity", VARIANT_TABLE)
    row = table.filter(pl.col("kind") == "dominance").row(0, named=True)
    changes = [abs(scores[name] - published[name]) for name in TRAINED]
    assert (row["n"], row["max_change"]) == (4, pytest.approx(max(changes), abs=1e-9))
    assert row["kendall_tau"] == pytest.approx(kendalltau(list(published.values()), list(scores.values())).statistic)
    summary = made.store.peek(made.key("score_sensitivity")).summary
    assert [found["max_change"] for found in summary["with_dominance_margin"]] == [row["max_change"]]


def test_rankings_under_other_penalties_are_those_of_their_axes(made):
    table = read_table(made, "score_sensitivity", VARIANT_TABLE).filter(pl.col("kind") == "penalty")
    lambdas = [f"lambda {value:.3g}" for value in made.suite.protocol.probe.lambdas]
    assert table["variant"].unique(maintain_order=True).to_list() == [
        "as published", "chosen on all of validation", *lambdas
    ]  # fmt: skip
    assert table.height == 7 * 5
    for name in ("chosen on all of validation", lambdas[0]):
        means = []
        for encoder in TRAINED:
            seeds = pl.concat(read_penalty_axes(made, encoder, f"{SKIN}.s{seed}") for seed in (0, 1))
            means.append(
                seeds.filter((pl.col("penalty") == name) & (pl.col("reading") == "tiny-v1"))["calibration"].mean()
            )
        errors = [read_profile(made, n)["datasets"][SKIN]["tiny-v1"]["raw"]["calibration"] for n in TRAINED]
        row = table.filter((pl.col("variant") == name) & (pl.col("quantity") == "calibration")).row(0, named=True)
        assert (row["n"], row["kendall_tau"]) == (4, pytest.approx(kendalltau(errors, means).statistic))
        assert row["max_change"] == pytest.approx(np.abs(np.subtract(errors, means)).max())
    assert made.store.peek(made.key("score_sensitivity")).summary["penalties"] == 6


def test_a_setting_makes_its_own_analysis_stale_and_no_other(tiny, made, tmp_path):
    assert "runs" not in ReferenceInvariance().inputs(made)
    assert "panel" not in PerturbationAudit().inputs(made)
    home = tmp_path / "home"
    shutil.copytree(made.home.path, home)
    protocol = home / "catalog" / "protocols" / "tiny-v1.toml"
    protocol.write_text(protocol.read_text() + "[analyses.invariance]\ndraws = 5\n")
    changed = tiny.open_bench(home)
    assert [stage.name for stage in STAGES if not stage.is_current(changed)] == ["reference_invariance"]
    assert not tiny.stale(changed)


def test_without_a_panel_or_runs_an_analysis_waits(tiny, make_home):
    bench = tiny.open_bench(make_home(bare=True))
    for stage in STAGES:
        assert stage.inputs(bench) is None
        with pytest.raises(RefusedError, match="an upstream partition is missing"):
            stage.ensure(bench)


def test_one_ranked_encoder_is_refused_with_the_cure(bench):
    for name in TRAINED[1:]:
        shutil.rmtree(bench.store.root / bench.key("crs", name).path)
    with pytest.raises(
        RefusedError, match=r"1 encoder\(s\) of suite tiny are ranked, 2 are needed.*crs run --suite tiny"
    ):
        RankAgreementAnalysis().ensure(bench)


def test_variants_need_the_runs_of_the_panels_members(bench):
    shutil.rmtree(bench.store.root / bench.key("run_metrics", "vit-b", f"{SKIN}.s1").path)
    ScoreSensitivity().ensure(bench)
    table = read_table(bench, "score_sensitivity", VARIANT_TABLE)
    axes = table.filter(pl.col("kind") == "axis")
    assert axes["kendall_tau"].null_count() == axes.height > 0
    assert all("vit-b/tiny-skin; run them: crs run --suite tiny" in reason for reason in axes["reason"])
    assert table.filter(pl.col("kind") == "anchor")["kendall_tau"].null_count() == 0
    # Neither penalties nor resampled axes have been made here.
    reasons = dict(table.filter(pl.col("kind").is_in(["penalty", "dominance"])).select("kind", "reason").iter_rows())
    assert "lacks penalty_axes of panel members: vit-a/tiny-chest" in reasons["penalty"]
    assert "no resampled axes" in reasons["dominance"]
    assert all("crs report --suite tiny" in reason for reason in reasons.values())
