import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science.analyses.uncertainty import (
    QUANTITIES,
    Draws,
    aggregate,
    centred,
    difference_rows,
    dominance_rows,
    interval_rows,
    normalized,
    panel_peers,
    quantities,
    rank_rows,
    score_terms,
    verdict,
)
from crs_assets.science.analyses.uncertainty_tables import SCHEMAS, Setting, uncertainty_tables
from crs_assets.science.protocol import load_protocol
from crs_assets.science.scoring import normalize, reliability_score

PROTOCOL = load_protocol("crs-v1")
CRS = QUANTITIES.index("crs")


def scored(scores, **quantity):
    """Draws of one encoder whose score, and other quantities, are given replicate by replicate."""
    values = np.full((len(scores), len(QUANTITIES)), 0.5)
    values[:, CRS] = scores
    for name, column in quantity.items():
        values[:, QUANTITIES.index(name)] = column
    return Draws(values[0], values, np.zeros(len(scores), dtype=bool))


def random_z(rng, *shape):
    # A coarse grid, so that profiles tie and dominate often.
    return rng.integers(0, 5, (*shape, 4)) / 4


@given(seed=st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_terms_are_those_of_the_score_one_replicate_at_a_time(seed):
    rng = np.random.default_rng(seed)
    z, fixed, joint = random_z(rng, 6), random_z(rng, 3), random_z(rng, 6, 3)
    for peers in (fixed, joint):
        for at, row in enumerate(score_terms(z, peers, PROTOCOL.score)):
            score = reliability_score(z[at], peers if peers is fixed else peers[at], weights=PROTOCOL.score)
            expected = [score.dominance, score.closeness, score.worst_axis, score.crs]
            np.testing.assert_allclose(row, expected, rtol=0, atol=1e-15)


def test_what_cannot_be_estimated_stays_unknown():
    raw = np.array([[0.8, 0.05, np.nan, 0.1], [0.8, 0.05, 0.9, 0.1]])
    peers = np.full((2, 4), 0.1)
    found = quantities(raw, peers, PROTOCOL)
    assert (
        np.isnan(found[0]).tolist()
        == [name in ("label_efficiency", "z_label_efficiency") for name in QUANTITIES[:8]] + [True] * 4
    )
    assert np.isfinite(found[1]).all()
    np.testing.assert_array_equal(normalized(raw, PROTOCOL)[1], normalize(raw[1], PROTOCOL.axes.anchors))
    # A peer without a value under the second draw: the score under that draw is unknown, under the first it is not.
    unknown = np.full((2, 1, 4), 0.1)
    unknown[1, 0, 3] = np.nan
    z = np.full((2, 4), 0.5)
    assert np.isnan(score_terms(z, unknown, PROTOCOL.score)).all(axis=1).tolist() == [False, True]


def test_an_interval_leaves_out_what_is_unknown_and_counts_it():
    draws = scored(np.append(np.arange(101) / 100, np.nan))
    draws.lacking[:7] = True
    (row,) = [row for row in interval_rows(draws, level=0.9) if row["quantity"] == "crs"]
    # Quantiles 5 and 95 % of 0, .01, ..., 1.
    assert (row["low"], row["high"]) == pytest.approx((0.05, 0.95), abs=1e-12)
    assert (row["replicates"], row["n_undefined"], row["n_degenerate"], row["value"]) == (101, 1, 7, 0.0)
    # Their mean is .5, the value itself 0.
    assert row["bias"] == pytest.approx(0.5)
    nothing = interval_rows(scored(np.full(3, np.nan)), level=0.9)[CRS]
    assert [nothing[name] for name in ("value", "low", "high", "bias", "replicates")] == [None, None, None, None, 0]


def test_the_aggregate_is_the_mean_of_the_data_sets_replicate_by_replicate():
    one, other = scored(np.array([0.2, 0.4, 0.6])), scored(np.array([0.4, np.nan, 0.2]))
    other.lacking[2] = True
    both = aggregate([one, other])
    np.testing.assert_allclose(both.of("crs"), [0.3, np.nan, 0.4], rtol=0, atol=1e-15)
    assert both.lacking.tolist() == [False, False, True]
    assert both.point[CRS] == pytest.approx(0.3)


def test_dominance_is_told_as_the_steps_it_takes():
    steps = scored(np.zeros(8), dominance=[1 / 3, 0, 1 / 3, 2 / 3, 1 / 3, 1 / 3, 0, np.nan])
    # Of seven known: twice 0, four times 1/3, once 2/3.
    assert dominance_rows(steps) == [
        {"dominance": 0.0, "probability": pytest.approx(2 / 7)},
        {"dominance": pytest.approx(1 / 3, abs=1e-12), "probability": pytest.approx(4 / 7)},
        {"dominance": pytest.approx(2 / 3, abs=1e-12), "probability": pytest.approx(1 / 7)},
    ]


def test_tied_encoders_share_their_ranks():
    draws = {"a": scored([0.9, 0.9, 0.5, 0.7]), "b": scored([0.8, 0.9, 0.6, 0.7]), "c": scored([0.1, 0.9, 0.7, 0.7])}
    found = {(row["encoder"], row["rank"]): row["probability"] for row in rank_rows(draws)}
    # Replicate 0: a b c; 1 and 3: all tied, a third each; 2: c b a.
    third = 2 / 3 / 4
    expected = {
        ("a", 1): 0.25 + third, ("a", 2): third, ("a", 3): 0.25 + third,
        ("b", 1): third, ("b", 2): 0.5 + third, ("b", 3): third,
        ("c", 1): 0.25 + third, ("c", 2): third, ("c", 3): 0.25 + third,
    }  # fmt: skip
    assert found == {key: pytest.approx(value) for key, value in expected.items()}


def test_differences_are_paired():
    noise = np.random.default_rng(0).normal(size=500)
    draws = {"a": scored(0.6 + noise, auroc=0.8 + noise), "b": scored(0.5 + noise, auroc=0.8 + 2 * noise)}
    found = {row["quantity"]: row for row in difference_rows(draws, level=0.95)}
    # The draws' noise is common to both: their scores differ by .1, always.
    crs = found["crs"]
    assert (crs["difference"], crs["low"], crs["high"]) == pytest.approx((0.1, 0.1, 0.1), abs=1e-12)
    low, high = np.quantile(-noise, (0.025, 0.975))
    assert (found["auroc"]["low"], found["auroc"]["high"]) == pytest.approx((low, high), abs=1e-12)
    assert (crs["encoder"], crs["other"], crs["replicates"]) == ("a", "b", 500)


def test_a_winner_has_to_stand_apart_from_everyone():
    options = {"level": 0.95, "top_k": 2, "threshold": 0.95}
    noise = np.random.default_rng(1).normal(size=400) / 10
    clear = {"b": scored(0.5 + noise), "a": scored(0.7 + noise), "c": scored(0.1 + noise)}
    found = verdict(clear, **options)
    assert (found.leader, found.winner, found.inseparable, found.tier) == ("a", "a", (), ("b", "a"))
    assert found.top == {"b": 1.0, "a": 1.0, "c": 0.0}
    # It still leads on average, but b is ahead of it in a fifth of the replicates; every tenth is unknown.
    close = np.where(np.arange(400) % 5 == 0, 0.4, 0.8) + noise
    close[::10] = np.nan
    found = verdict({**clear, "a": scored(close)}, **options)
    assert (found.leader, found.winner, found.inseparable) == ("a", None, ("b",))
    assert (found.replicates, found.n_undefined) == (360, 40)
    assert verdict({"a": clear["a"]}, **options) is None
    assert verdict({"a": clear["a"], "b": scored(np.full(400, np.nan))}, **options) is None


def test_peers_are_other_encoders_with_other_weights():
    z = dict(zip(PROTOCOL.axes.anchors, (0.1, 0.2, 0.3, 0.4), strict=True))
    entry = {"skin": {"crs-v1": {"z": z}}}
    panel = {
        "encoders": {
            "own": {"weights": "w1", "datasets": entry},
            "copy": {"weights": "w1", "datasets": entry},
            "peer": {"weights": "w2", "datasets": entry},
            "elsewhere": {"weights": "w3", "datasets": {"chest": {}}},
        }
    }
    found = panel_peers(panel, "crs-v1", encoder="own", weights="w1", dataset="skin")
    assert {name: values.tolist() for name, values in found.items()} == {"peer": [0.1, 0.2, 0.3, 0.4]}


@pytest.mark.parametrize("peers", ["panel-fixed", "joint"])
def test_tables_hold_each_setting_once(peers):
    draws = {name: scored(np.random.default_rng(at).random(50)) for at, name in enumerate("abc")}
    lonely = {"b": draws["b"], "a": draws["a"]}
    setting = Setting("crs-v1", "case", peers, {"skin": draws, "chest": lonely}, ["a", "b"], ("skin", "chest"))
    tables, found = uncertainty_tables(setting, level=0.95, ranking=PROTOCOL.analyses.ranking)
    assert {name: dict(table.schema) for name, table in tables.items()} == SCHEMAS
    intervals = tables["intervals"]
    # c lacks chest: no aggregate. Places: a, b, c on skin; a, b on chest; a, b together.
    assert intervals.select("dataset", "encoder").n_unique() == 7
    assert set(intervals["quantity"]) == (set(QUANTITIES) if peers == "panel-fixed" else {"dominance", "crs"})
    has_peers = intervals["peers"].is_not_null()
    assert set(intervals.filter(has_peers)["quantity"]) == {"dominance", "crs"}
    assert intervals.select("dataset", "encoder", "quantity").is_duplicated().sum() == 0
    assert tables["ranks"]["encoder"].unique().sort().to_list() == ["a", "b"]
    assert tables["ranks"]["probability"].sum() == pytest.approx(2)
    # Pairs: 3 on skin, 1 on chest, 1 together.
    compared = tables["differences"].filter(tables["differences"]["quantity"] == "crs")
    assert compared.height == 5
    assert set(found.top) == {"a", "b"}


def test_centred_replicates_keep_their_scatter_and_get_the_published_mean():
    raw = np.array([[0.8, 0.3, 0.9, 0.1], [0.9, 0.5, np.nan, 0.3], [0.7, 0.4, 0.7, 0.2]])
    found = centred(raw, np.array([0.85, 0.05, 0.6, -0.1]))
    np.testing.assert_allclose(found[:, 0], [0.85, 0.95, 0.75])
    # 0.3 - 0.4 + 0.05 would be negative, which no calibration error is.
    np.testing.assert_allclose(found[:, 1], [0.0, 0.15, 0.05])
    np.testing.assert_allclose(found[:, 2], [0.7, np.nan, 0.5])
    np.testing.assert_allclose(found[:, 3], [-0.2, 0.0, -0.1], atol=1e-15)
