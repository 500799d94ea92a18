"""What the first page says of the ranking: every branch, on tables small enough to read."""

import polars as pl
import pytest

from crs_assets.report.findings import (
    auroc_choice,
    gains_and_losses,
    leading_tier,
    not_to_conclude,
    paired,
    rivals,
)

MINUS = "\N{MINUS SIGN}"


def decided(**changes):
    verdict = {
        "top": {"a": 0.99, "b": 0.96, "c": 0.6, "d": 0.45},
        "tier": ["a", "b"],
        "leader": "a",
        "winner": None,
        "inseparable": ["b", "c"],
    }
    return verdict | changes


def told(verdict, top_k=3):
    return " ".join(leading_tier(verdict, threshold=0.95, top_k=top_k))


def test_tier_is_named_with_its_probabilities_and_no_winner_where_an_interval_holds_0():
    text = told(decided())
    assert "Among the first 3 with a probability of at least 95 %: a (99 %) and b (96 %)." in text
    assert "No winner is named: a has the highest mean CRS over the resamples" in text
    assert "its paired interval against b and c holds 0." in text


def test_winner_is_named_only_where_the_verdict_has_one():
    text = told(decided(winner="a", inseparable=[]))
    assert "a is separable as the winner: its paired interval against every other excludes 0." in text
    assert "No winner" not in text


def test_empty_tier_names_the_highest_probability_and_no_member():
    text = told(decided(tier=[], top={"a": 0.8, "b": 0.9, "c": 0.7, "d": 0.6}))
    assert "there is no leading tier" in text
    assert "the highest is that of b (90 %)" in text


def test_tier_of_all_that_are_ranked_tells_nothing():
    text = told(decided(top={"a": 1.0, "b": 1.0, "c": 1.0}, tier=["a", "b", "c"]))
    assert "Only 3 encoders are ranked, so each is among the first 3: the tier tells nothing." in text
    assert "at least 95 %" not in text


def test_nothing_resampled_nothing_said():
    assert "there is no leading tier to speak of" in told(None)


def ranked(*rows):
    names = ("encoder", "rank", "rank_auroc", "discrimination")
    return [dict(zip(names, row, strict=True)) for row in rows]


def test_auroc_chooses_another_encoder_than_crs():
    rows = ranked(("a", 1.0, 2.0, 0.88), ("b", 2.0, 3.0, 0.85), ("c", 3.0, 1.0, 0.91))
    (text,) = auroc_choice(rows)
    assert text == "c (AUROC 0.910, rank 3 by CRS); CRS puts a (rank 2 by AUROC) first. Both are point estimates."
    assert rivals(rows) == ("a", "c")


def test_auroc_chooses_the_same_and_the_rival_is_then_the_second():
    rows = ranked(("a", 1.0, 1.0, 0.91), ("b", 2.0, 3.0, 0.85), ("c", 3.0, 2.0, 0.88))
    assert auroc_choice(rows) == ("The same as CRS puts first: a.",)
    assert rivals(rows) == ("a", "b")


def test_ties_at_the_top_are_all_named_and_the_rivals_are_two():
    rows = ranked(("b", 1.5, 2.0, 0.88), ("a", 1.5, 2.0, 0.88), ("c", 3.0, 2.0, 0.88))
    (text,) = auroc_choice(rows)
    assert text.startswith("a (AUROC 0.880, rank 1.5 by CRS), b (AUROC 0.880, rank 1.5 by CRS) and c")
    assert "CRS puts a (rank 2 by AUROC) and b (rank 2 by AUROC) first" in text
    assert rivals(rows) == ("a", "b")


def test_one_encoder_leaves_nothing_to_choose():
    rows = ranked(("a", 1.0, 1.0, 0.9))
    assert "nothing to choose" in auroc_choice(rows)[0]
    assert rivals(rows) is None
    assert rivals([]) is None


def differences(*rows):
    columns = ("encoder", "other", "quantity", "difference", "low", "high")
    return pl.DataFrame(rows, schema=columns, orient="row")


PAIRS = differences(
    ("a", "b", "auroc", -0.02, -0.03, -0.01),
    ("a", "b", "ece", -0.05, -0.07, -0.02),
    ("a", "b", "label_efficiency", 0.01, -0.01, 0.03),
    ("a", "b", "robustness", 0.04, 0.01, 0.06),
)


def test_gains_and_losses_follow_each_axis_direction_and_what_holds_0_is_open():
    text = " ".join(gains_and_losses(PAIRS, "a", "b"))
    assert f"Against b, a gains ECE {MINUS}0.050 [{MINUS}0.070, {MINUS}0.020]." in text
    assert f"a loses AUROC {MINUS}0.020 [{MINUS}0.030, {MINUS}0.010] and AUROC drop +0.040 [+0.010, +0.060]." in text
    assert f"not told apart: label efficiency +0.010 [{MINUS}0.010, +0.030]." in text


def test_a_pair_stored_the_other_way_round_is_turned():
    assert paired(PAIRS, "b", "a", "auroc") == (0.02, 0.01, 0.03)
    text = " ".join(gains_and_losses(PAIRS, "b", "a"))
    assert "Against a, b gains AUROC +0.020 [+0.010, +0.030]" in text
    assert "loses ECE +0.050 [+0.020, +0.070]." in text


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.02), (-0.02, 0.0), (-0.05, -0.01)])
def test_no_gain_is_told_where_the_interval_touches_0_or_lies_on_the_other_side(low, high):
    (text,) = gains_and_losses(differences(("a", "b", "auroc", 0.01, low, high)), "a", "b")
    assert "not told apart" in text
    assert "gains" not in text


def test_missing_pairs_and_missing_intervals_are_said_to_be_missing():
    nothing = differences(("a", "c", "auroc", 0.1, 0.05, 0.2))
    assert gains_and_losses(nothing, "a", "b") == ("a and b have no paired difference.",)
    unknown = pl.DataFrame(
        {"encoder": ["a"], "other": ["b"], "quantity": ["auroc"], "difference": [0.1], "low": [None], "high": [None]},
        schema_overrides={"low": pl.Float64, "high": pl.Float64},
    )
    assert paired(unknown, "a", "b", "auroc") is None


def test_limits_name_phantoms_unrankable_sets_and_cells_at_null_where_there_are_any():
    text = not_to_conclude(
        verdict="CRS is no predictor.",
        unrankable=["Fundus"],
        at_null=["a on skin", "b on skin"],
        phantom_warning="Phantoms.",
        limits=("For ever.",),
    )
    assert text[0] == "Phantoms."
    assert "Fundus cannot rank encoders" in text[1]
    assert text[2].endswith("a on skin and b on skin.")
    assert text[3:] == ("CRS is no predictor.", "For ever.")


def test_limits_without_any_of_it_say_what_was_not_analysed():
    text = not_to_conclude(verdict="", unrankable=[], at_null=[], phantom_warning="", limits=())
    assert text == ("Whether CRS tells how encoders fare elsewhere was not analysed for this panel.",)
