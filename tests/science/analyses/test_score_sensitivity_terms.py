"""Anchors moved, weights over their simplex, axes measured another way."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science.analyses.axis_variants import VARIANTS, variant_profiles
from crs_assets.science.analyses.rescoring import mean_scores, with_anchors
from crs_assets.science.analyses.sensitivity import (
    moved_anchors,
    scores_with_anchors,
    weight_simplex,
    weighting_sensitivity,
)
from crs_assets.science.profiles import seed_axes
from crs_assets.science.protocol import AXES, Anchor, ScoreWeights, load_protocol
from crs_assets.science.scoring import normalize, reliability_score

RAW, SKILL = load_protocol("demo-v1"), load_protocol("demo-v1-skill")
WEIGHTS = ScoreWeights(dominance=0.6, closeness=0.25, worst_axis=0.15)


def member(name, raw, dataset="d"):
    z = normalize(raw, RAW.axes.anchors)
    profile = {"raw": dict(zip(AXES, raw, strict=True)), "z": dict(zip(AXES, z.tolist(), strict=True))}
    return {"weights": f"w-{name}", "datasets": {dataset: {RAW.id: profile}}}


MEMBERS = {
    "a": member("a", (0.9, 0.05, 0.95, 0.05)),
    "b": member("b", (0.8, 0.10, 0.90, 0.10)),
    "c": member("c", (0.7, 0.02, 0.80, 0.15)),
}


def test_one_end_of_one_axis_moves_by_a_share_of_the_distance():
    moved = {(name, axis): anchors for name, axis, anchors in moved_anchors(RAW.axes.anchors, 0.2)}
    assert len(moved) == 16
    # Discrimination spans .5 to 1: a fifth is .1. Calibration runs from .25 down to 0: a fifth is -.05.
    assert moved["zero +20%", "discrimination"]["discrimination"] == Anchor(zero=0.6, one=1.0)
    assert moved["one -20%", "discrimination"]["discrimination"] == Anchor(zero=0.5, one=0.9)
    assert moved["zero +20%", "calibration"]["calibration"] == Anchor(zero=0.2, one=0.0)
    for (_, axis), anchors in moved.items():
        assert {name for name in AXES if anchors[name] != RAW.axes.anchors[name]} == {axis}


def test_the_protocols_own_anchors_give_the_published_scores_and_others_hold_for_the_panel_too():
    published = mean_scores(MEMBERS, MEMBERS, RAW, ["d"])
    assert scores_with_anchors(MEMBERS, MEMBERS, RAW, RAW.axes.anchors, ["d"]) == published
    anchors = {**RAW.axes.anchors, "discrimination": Anchor(zero=0.6, one=1.0)}
    found = scores_with_anchors(MEMBERS, MEMBERS, RAW, anchors, ["d"])
    z = {
        name: normalize([entry["datasets"]["d"][RAW.id]["raw"][x] for x in AXES], anchors)
        for name, entry in MEMBERS.items()
    }
    expected = reliability_score(z["c"], np.array([z["a"], z["b"]]), weights=RAW.score).crs
    assert found["c"] == expected != published["c"]


@given(st.floats(0.5, 4), st.sampled_from(AXES))
def test_scaling_an_axis_with_its_anchors_changes_nothing(factor, axis):
    anchor = RAW.axes.anchors[axis]
    scaled = {**RAW.axes.anchors, axis: Anchor(zero=anchor.zero * factor, one=anchor.one * factor)}
    members = {
        name: member(name, [v * factor if x == axis else v for x, v in entry["datasets"]["d"][RAW.id]["raw"].items()])
        for name, entry in MEMBERS.items()
    }
    z = {name: entry["datasets"]["d"][RAW.id]["z"] for name, entry in with_anchors(members, RAW, scaled).items()}
    for name, entry in MEMBERS.items():
        assert z[name] == pytest.approx(entry["datasets"]["d"][RAW.id]["z"], abs=2e-6)


def test_an_encoder_without_a_data_set_has_no_mean_unless_existing_cells_count():
    two = {**MEMBERS, "x": {**member("x", (0.9, 0.1, 0.9, 0.1))}}
    for name in ("a", "b", "c"):
        two[name] = {
            **two[name],
            "datasets": {**two[name]["datasets"], **member(name, (0.7, 0.1, 0.8, 0.1), "e")["datasets"]},
        }
    assert set(mean_scores(two, two, RAW, ["d", "e"])) == {"a", "b", "c"}
    assert set(mean_scores(two, two, RAW, ["d", "e"], existing=True)) == {"a", "b", "c", "x"}


def test_the_grid_covers_the_simplex():
    grid = weight_simplex(0.05)
    assert len(grid) == 231  # 22 choose 2
    assert len(np.unique(grid, axis=0)) == 231
    np.testing.assert_allclose(grid.sum(axis=1), 1, atol=1e-12)
    assert grid.min() == 0
    np.testing.assert_array_equal(weight_simplex(0.5)[[0, -1]], [[0, 0, 1], [1, 0, 0]])
    with pytest.raises(ValueError, match=r"1 is no multiple of the weight step 0\.3"):
        weight_simplex(0.3)


def terms(**values):
    rows = [(name, *three) for name, three in values.items()]
    return pl.DataFrame(rows, schema=["encoder", "dominance", "closeness", "worst_axis"], orient="row")


def test_ranks_over_a_coarse_grid_by_hand():
    # Weightings (0,0,1) (0,.5,.5) (0,1,0) (.5,0,.5) (.5,.5,0) (1,0,0).
    # a: .2 .3 .4 .6 .7 1; b: .8 .7 .6 .4 .3 0; first: b b b a a a.
    found = weighting_sensitivity(terms(a=(1.0, 0.4, 0.2), b=(0.0, 0.6, 0.8)), WEIGHTS, step=0.5)
    rows = {row["encoder"]: row for row in found.iter_rows(named=True)}
    assert (rows["a"]["share_first"], rows["b"]["share_first"]) == (0.5, 0.5)
    assert (rows["a"]["rank_best"], rows["a"]["rank_worst"], rows["a"]["rank_published"]) == (1, 2, 1)
    assert rows["a"]["weightings"] == 6


def test_equal_encoders_share_the_first_place():
    found = weighting_sensitivity(terms(a=(0.5, 0.4, 0.2), b=(0.5, 0.4, 0.2), c=(0.1, 0.1, 0.1)), WEIGHTS, step=0.1)
    assert found.sort("encoder")["share_first"].to_list() == pytest.approx([0.5, 0.5, 0])
    assert found.sort("encoder")["rank_best"].to_list() == [1.5, 1.5, 3]


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=1, max_size=6))
def test_shares_sum_to_one_and_the_published_rank_lies_within_the_range(values):
    found = weighting_sensitivity(terms(**{f"e{i}": three for i, three in enumerate(values)}), WEIGHTS, step=0.05)
    assert found["share_first"].sum() == pytest.approx(1)
    assert (found["rank_best"] <= found["rank_published"]).all()
    assert (found["rank_published"] <= found["rank_worst"]).all()


def runs(drops, encoder="a", seed=0, clean=0.9):
    """Rows of one cell and seed: a drop of AUROC per perturbation and severity, at every fraction."""
    rows = []
    for fraction, n_fit in zip(RAW.data.fractions, (5, 25, 100), strict=True):
        base = {
            "encoder": encoder, "dataset": "d", "seed": seed, "fraction": fraction, "n_fit": n_fit, "converged": True,
            "auroc_source": None, "ece": 0.05, "ece_equal_mass": 0.04, "rms_calibration_debiased": 0.08,
        }  # fmt: skip
        rows.append({**base, "condition": "clean", "auroc": clean})
        rows += [
            {**base, "condition": condition.name, "auroc": clean - drops.get(condition.name, 0.0)}
            for condition in RAW.degradations()
        ]
    return pl.DataFrame(rows, schema_overrides={"auroc_source": pl.Float64})


def of(variant_name, table, reading=RAW):
    variant = next(variant for variant in VARIANTS if variant.name.startswith(variant_name))
    return variant_profiles(table, {"a": "w"}, reading, variant)["a"]["datasets"]["d"][reading.id]


def test_as_published_is_the_published_profile():
    table = runs({"jpeg-3": 0.2, "rician-1": 0.1})
    assert of("as published", table)["raw"] == pytest.approx(seed_axes(table, RAW, distinct_fractions=True).raw)


@pytest.mark.parametrize(("reading", "divided_by"), [(RAW, 1.0), (SKILL, 0.4)])
def test_the_worst_family_takes_the_place_of_the_worst_condition(reading, divided_by):
    # Ten conditions, five families of two: jpeg loses .2 and .02, rician .1 and .1.
    table = runs({"jpeg-3": 0.20, "jpeg-1": 0.02, "rician-1": 0.10, "rician-3": 0.10})
    # Mean .42 / 10. Worst condition .2; worst family jpeg's mean .11.
    assert of("as published", table, reading)["raw"]["robustness"] == pytest.approx((0.042 + 0.20) / 2 / divided_by)
    assert of("worst family", table, reading)["raw"]["robustness"] == pytest.approx((0.042 + 0.11) / 2 / divided_by)


def test_other_calibration_errors_take_the_place_of_the_published_one_alone():
    table = runs({"jpeg-3": 0.2})
    published = of("as published", table)["raw"]
    for name, value in (("equal-mass", 0.04), ("debiased", 0.08)):
        assert of(name, table)["raw"] == {**published, "calibration": value}


def test_a_cell_that_is_not_estimable_is_left_out():
    table = runs({}).with_columns(rms_calibration_debiased=pl.lit(float("nan")))
    variant = next(variant for variant in VARIANTS if variant.name.startswith("debiased"))
    assert variant_profiles(table, {"a": "w"}, RAW, variant) == {"a": {"weights": "w", "datasets": {}}}
