"""Who is ranked, over what, and what stands beside it. Every mean and rank is worked out in the test."""

import polars as pl
import pytest

from crs_assets.science.leaderboard import Entry, build_board
from crs_assets.science.protocol import AXES

READINGS = ("raw", "skill")


def entry(name, crs, *, control=False, expected=None, at_null=(), auroc=None, skill=None, coverage=None):
    """An encoder with these scores per data set; None is a cell without axes under that reading."""

    def cells(values):
        terms = {"dominance": 0.0, "closeness": 0.5, "worst_axis": 0.5, "dominated": 0, "peers": 2}
        return {d: {"crs": v, "crs_without_transfer": v, **terms} for d, v in values.items() if v is not None}

    expected = len(crs) if expected is None else expected
    complete = len(crs) == expected
    aurocs = auroc or crs
    readings = {}
    for reading, values in (("raw", crs), ("skill", skill or crs)):
        known = [v for v in values.values() if v is not None]
        whole = complete and len(known) == len(crs)
        readings[reading] = {
            "datasets": cells(values),
            "aggregate": {"crs": sum(known) / len(known), "datasets": list(values)} if whole else None,
        }
    states = dict.fromkeys(crs, "complete") | (coverage or {})
    score = {
        "readings": readings, "complete": complete, "covered": len(crs), "expected": expected,
        "weights": f"w-{name}", "coverage": states,
    }  # fmt: skip
    raw = {d: {r: {"raw": dict.fromkeys(AXES, 0.5) | {"discrimination": aurocs[d]}} for r in READINGS} for d in crs}
    profile = {"datasets": raw, "coverage": states}
    return Entry(
        name, name.title(), "control" if control else "generalist", control, score, profile, frozenset(at_null)
    )


def board(*entries, datasets=("a", "b"), rankable=None):
    return build_board(entries, datasets, READINGS, rankable or dict.fromkeys(datasets, True))


def rows(board, reading="raw"):
    return {row["encoder"]: row for row in board.rows.filter(pl.col("reading") == reading).iter_rows(named=True)}


def test_complete_encoders_are_ranked_by_their_mean_and_ties_share_a_rank():
    table = board(
        entry("low", {"a": 0.2, "b": 0.3}), entry("tie1", {"a": 0.4, "b": 0.6}), entry("tie2", {"a": 0.6, "b": 0.4}),
        entry("high", {"a": 0.9, "b": 0.7}),
    )  # fmt: skip
    assert {name: (row["rank"], row["crs"]) for name, row in rows(table).items()} == {
        "high": (1.0, pytest.approx(0.8)), "tie1": (2.5, 0.5), "tie2": (2.5, 0.5), "low": (4.0, 0.25),
    }  # fmt: skip
    assert table.rows.filter(pl.col("reading") == "raw")["encoder"].to_list() == ["high", "tie1", "tie2", "low"]


def test_a_missing_cell_means_no_aggregate_and_no_rank_and_nothing_imputed():
    gap = entry("gap", {"a": 1.0}, expected=2, coverage={"b": "missing: not run"})
    table = board(entry("whole", {"a": 0.5, "b": 0.5}), entry("other", {"a": 0.4, "b": 0.4}), gap)
    row = rows(table)["gap"]
    assert (row["section"], row["rank"], row["crs"], row["crs_existing"]) == ("incomplete", None, None, None)
    assert (row["covered"], row["expected"], row["status"]) == (1, 2, "b: missing: not run")
    assert table.common == ("a", "b")
    cells = {
        (c["encoder"], c["dataset"]): c for c in table.cells.filter(pl.col("reading") == "raw").iter_rows(named=True)
    }
    assert cells["gap", "b"]["state"] == "missing: not run"
    assert [cells["gap", "b"][field] for field in ("crs", "discrimination", "at_null")] == [None, None, None]
    assert cells["gap", "a"]["crs"] == 1.0


def test_the_headline_rests_on_what_all_ranked_encoders_have_and_the_existing_cells_stand_beside():
    absent = entry("absent", {"a": 0.5}, coverage={"b": "absent: no such weights"})
    table = board(entry("both", {"a": 0.4, "b": 0.9}), absent)
    assert table.common == ("a",)
    both, one = rows(table)["both"], rows(table)["absent"]
    assert (both["rank"], both["crs"], both["rank_existing"], both["crs_existing"]) == (2.0, 0.4, 1.0, 0.65)
    assert (one["rank"], one["crs"], one["rank_existing"], one["status"]) == (
        1.0,
        0.5,
        2.0,
        "b: absent: no such weights",
    )


def test_a_data_set_that_cannot_rank_is_named_and_left_out():
    table = board(entry("x", {"a": 0.4, "b": 0.9}), entry("y", {"a": 0.5, "b": 0.1}), rankable={"a": True, "b": False})
    assert (table.common, table.unrankable) == (("a",), ("b",))
    assert rows(table)["y"]["rank"] == 1.0
    nothing = board(
        entry("x", {"a": 0.4, "b": 0.9}), entry("y", {"a": 0.5, "b": 0.1}), rankable={"a": False, "b": False}
    )
    assert {row["rank"] for row in rows(nothing).values()} == {None}
    assert nothing.agreement == {}


def test_controls_stand_below_the_line_whatever_they_score():
    table = board(
        entry("real", {"a": 0.1, "b": 0.1}),
        entry("real2", {"a": 0.2, "b": 0.1}),
        entry("pixels", {"a": 0.9, "b": 0.9}, control=True),
    )
    assert table.rows["encoder"].to_list()[:3] == ["real2", "real", "pixels"]
    row = rows(table)["pixels"]
    assert (row["section"], row["rank"], row["crs"]) == ("control", None, 0.9)
    assert rows(table)["real"]["rank"] == 2.0


def test_an_encoder_at_its_null_is_marked_in_its_cell_and_its_status():
    table = board(entry("x", {"a": 0.4, "b": 0.9}, at_null={"b"}), entry("y", {"a": 0.5, "b": 0.1}))
    assert rows(table)["x"]["status"] == "at null on b"
    assert table.cells.filter(pl.col("at_null"))["dataset"].unique().to_list() == ["b"]


def test_a_reading_that_an_encoder_has_no_axes_under_does_not_rank_it_there():
    near_chance = entry("chance", {"a": 0.3, "b": 0.2}, skill={"a": 0.3, "b": None})
    table = board(near_chance, entry("x", {"a": 0.4, "b": 0.9}), entry("y", {"a": 0.5, "b": 0.1}))
    assert rows(table)["chance"]["rank"] == 3.0
    skill = rows(table, "skill")
    assert (skill["chance"]["section"], skill["chance"]["rank"], skill["chance"]["crs"]) == ("incomplete", None, None)
    assert [skill[name]["rank"] for name in ("x", "y")] == [1.0, 2.0]


def test_agreement_of_auroc_and_score_is_that_of_the_ranked_encoders():
    aurocs = {"x": 0.9, "y": 0.8, "z": 0.7}
    scores = {"x": 0.2, "y": 0.5, "z": 0.4}
    table = board(*(entry(n, {"a": scores[n]}, auroc={"a": aurocs[n]}) for n in aurocs), datasets=("a",))
    found = table.agreement["AUROC against CRS (raw)"]
    # Ranks 1 2 3 against 3 1 2: the pairs xy and xz are reversed, moves are 2, 1 and 1.
    assert (found.reversed_pairs, found.pairs) == (2, 3)
    assert found.mean_displacement == pytest.approx(4 / 3)
    assert table.agreement["CRS raw against skill"].reversed_pairs == 0
