"""Newcomers and published scores: what moves under the cohort rule, and that nothing does under the frozen panel."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science.analyses.invariance import (
    COHORT,
    FROZEN,
    arriving,
    displacement,
    draw_newcomers,
    invariance_trials,
)
from crs_assets.science.analysis_protocol import InvarianceProtocol
from crs_assets.science.protocol import AXES, load_protocol
from crs_assets.science.scoring import normalize, reliability_score

RAW = load_protocol("crs-v1")
SETTINGS = InvarianceProtocol(draws=6, panel_per_new=5)


def member(name, *raws, datasets=("d", "e")):
    """An encoder with its raw axes on each data set, z by the protocol's anchors."""
    cells = {}
    for dataset, raw in zip(datasets, raws, strict=False):
        z = normalize(raw, RAW.axes.anchors)
        profile = {"raw": dict(zip(AXES, raw, strict=True)), "z": dict(zip(AXES, z.tolist(), strict=True))}
        cells[dataset] = {RAW.id: profile}
    return {"weights": f"w-{name}", "datasets": cells}


def panel(n, seed=0):
    rng = np.random.default_rng(seed)
    low, high = (0.55, 0.01, 0.7, 0.01), (0.95, 0.2, 0.99, 0.2)
    return {f"e{i:02d}": member(f"e{i:02d}", rng.uniform(low, high), rng.uniform(low, high)) for i in range(n)}


def trials(members, protocol=SETTINGS, datasets=("d", "e")):
    return invariance_trials(members, RAW, datasets=datasets, settings=protocol, salt="salt")


def test_three_arrive_at_twelve_in_thirty_draws_as_in_the_preprint():
    shipped = RAW.analyses.invariance
    found = trials(panel(15), shipped)
    assert (arriving(15, shipped), shipped.draws) == (3, 30)
    assert found.group_by("draw", "rule").len()["len"].unique().to_list() == [12]
    assert found["draw"].n_unique() == 30
    assert [arriving(n, shipped) for n in (3, 5, 8, 12)] == [1, 1, 2, 2]


@settings(deadline=None, max_examples=15)
@given(st.integers(3, 9), st.integers(0, 1000))
def test_under_the_frozen_panel_nothing_moves_at_all(n, seed):
    found = trials(panel(n, seed))
    frozen = found.filter(pl.col("rule") == FROZEN)
    assert frozen["displacement"].to_list() == [0.0] * frozen.height
    assert frozen.height == SETTINGS.draws * (n - arriving(n, SETTINGS))
    assert frozen["before"].is_between(0, 1).all()


def test_a_newcomer_that_beats_everyone_moves_the_cohort_by_hand():
    # Axes all alike: a, b and new at AUROC .6, .8 and 1; the other three axes are equal throughout.
    def at(name, auroc):
        return member(name, (auroc, 0.1, 0.8, 0.1), datasets=("d",))

    members = {"a": at("a", 0.6), "b": at("b", 0.8), "new": at("new", 1.0)}
    found = trials(members, InvarianceProtocol(draws=20, panel_per_new=5), datasets=("d",))
    draws = draw_newcomers(list(members), InvarianceProtocol(draws=20, panel_per_new=5), "salt")
    draw = draws.index(("new",))
    rows = {
        (row["rule"], row["encoder"]): (row["before"], row["after"])
        for row in found.filter(pl.col("draw") == draw).iter_rows(named=True)
    }
    # Cohort of two: z of a is (0, 1, 1, 1), of b (1, 1, 1, 1). b dominates its one peer: .6 + .25 + .15.
    assert rows[COHORT, "b"][0] == pytest.approx(1.0)
    # a: D = 0, I = 1 - 1 / 2, W = 0. Cohort of three: a stays at 0, b falls to z = .5 and dominates one of two.
    assert rows[COHORT, "a"] == (pytest.approx(0.125), pytest.approx(0.125))
    assert rows[COHORT, "b"][1] == pytest.approx(0.6 * 0.5 + 0.25 * (1 - 0.5 / 2) + 0.15 * 0.5)
    # Frozen: b's z is (.6, .6, .6, .6) by the protocol's anchors, its only peer a.
    assert rows[FROZEN, "b"] == (pytest.approx(0.6 + 0.25 * 0.6 + 0.15 * 0.6),) * 2


def test_frozen_scores_are_those_of_the_published_formula():
    members = panel(4)
    found = trials(members, datasets=("d",)).filter((pl.col("rule") == FROZEN) & (pl.col("draw") == 0))
    present = found["encoder"].to_list()
    z = {name: [members[name]["datasets"]["d"][RAW.id]["z"][axis] for axis in AXES] for name in present}
    for row in found.iter_rows(named=True):
        peers = np.array([z[name] for name in present if name != row["encoder"]])
        assert row["before"] == reliability_score(z[row["encoder"]], peers, weights=RAW.score).crs


def test_means_and_maxima_are_over_draws_and_encoders():
    members = panel(5)
    found = trials(members)
    table = displacement(found, list(members), SETTINGS, "salt")
    moved = found.filter(pl.col("rule") == COHORT)["displacement"].to_list()
    cohort, frozen = table.filter(pl.col("rule") == COHORT).row(0, named=True), table.filter(pl.col("rule") == FROZEN)
    assert cohort["mean_displacement"] == pytest.approx(sum(moved) / len(moved))
    assert cohort["max_displacement"] == max(moved) > 0
    assert (cohort["panel"], cohort["arriving"], cohort["draws"], cohort["scores"]) == (5, 1, 6, 24)
    assert 1 <= cohort["distinct_draws"] <= 5
    assert frozen.select("mean_displacement", "max_displacement").row(0) == (0.0, 0.0)


def test_draws_do_not_depend_on_the_order_of_the_panel():
    assert draw_newcomers(["b", "a", "c"], SETTINGS, "salt") == draw_newcomers(["c", "b", "a"], SETTINGS, "salt")
    assert draw_newcomers(["a", "b", "c"], SETTINGS, "salt") != draw_newcomers(["a", "b", "c"], SETTINGS, "other")


def test_a_data_set_with_one_encoder_left_is_passed_over_in_that_draw():
    members = {**panel(3), "only-d": member("only-d", (0.9, 0.1, 0.9, 0.1), datasets=("d",))}
    for name in ("e01", "e02"):
        del members[name]["datasets"]["e"]
    found = trials(members)
    assert found.filter(pl.col("rule") == FROZEN)["displacement"].unique().to_list() == [0.0]


def test_two_encoders_are_no_panel_for_a_trial():
    with pytest.raises(ValueError, match=r"has 2 encoder\(s\), a trial needs 3"):
        trials(panel(2))
