"""Rankings side by side, from cells that are written in the test."""

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr

from crs_assets.science.analyses.agreement import COMMON, EXISTING, ONE, rank_agreements
from crs_assets.science.protocol import AXES, load_protocol

RAW, SKILL = load_protocol("crs-v1"), load_protocol("crs-v1-skill")
PUBLISHED_CRS_RANKS = [3, 2, 4, 1, 11, 9, 6, 7, 8, 10, 5, 12, 15, 14, 13]
"""CRS ranks of the fifteen encoders of the preprint CRS-Bench, in the order of their AUROC ranks 1..15."""


def cell(encoder, dataset, crs, reading="crs-v1", **axes):
    return {"reading": reading, "encoder": encoder, "dataset": dataset, "crs": crs, **dict.fromkeys(AXES, 0.5), **axes}


def agree(cells, *, common=("d",), rankable=("d",), readings=(RAW,), top_k=3, control_axes=None):
    return rank_agreements(
        pl.DataFrame(cells), readings, common=common, rankable=rankable, top_k=top_k, control_axes=control_axes
    )


def row(found, **key):
    return found.table.filter(pl.all_horizontal(pl.col(name) == value for name, value in key.items())).row(
        0, named=True
    )


def test_published_ranks_give_the_published_agreement():
    cells = [
        cell(f"e{auroc:02d}", "d", (16 - crs) / 20, discrimination=(16 - auroc) / 20)
        for auroc, crs in enumerate(PUBLISHED_CRS_RANKS, start=1)
    ]
    found = agree(cells)
    headline = row(found, scope=COMMON, a="discrimination", b="crs")
    assert (round(headline["kendall_tau"], 3), round(headline["spearman_rho"], 3)) == (0.600, 0.811)
    assert (headline["reversed_pairs"], headline["tied_pairs"], headline["pairs"], headline["n"]) == (21, 0, 105, 15)
    assert (round(headline["mean_displacement"], 2), round(headline["top_k_overlap"], 3)) == (1.87, 0.667)
    moves = found.moves.filter((pl.col("scope") == COMMON) & (pl.col("a") == "discrimination"))
    # The preprint: 11th to 5th, 5th to 11th, 4th to 1st, 6th to 9th.
    by_encoder = {r["encoder"]: (r["rank_a"], r["rank_b"], r["move"]) for r in moves.iter_rows(named=True)}
    assert by_encoder["e11"] == (11, 5, 6)
    assert by_encoder["e05"] == (5, 11, -6)
    assert by_encoder["e04"] == (4, 1, 3)
    assert by_encoder["e06"] == (6, 9, -3)


def test_axes_of_which_less_is_better_rank_the_least_first():
    errors = {"a": 0.01, "b": 0.02, "c": 0.03}
    cells = [cell(n, "d", 1 - i / 10, calibration=e, robustness=e) for i, (n, e) in enumerate(errors.items())]
    found = agree(cells, top_k=2)
    for axis in ("calibration", "robustness"):
        assert row(found, scope=COMMON, a=axis, b="crs")["kendall_tau"] == 1
    assert found.moves.filter(pl.col("a") == "calibration")["move"].unique().to_list() == [0]


def test_scopes_rest_on_common_sets_existing_cells_and_each_set():
    cells = [
        cell("a", "d", 0.9, discrimination=0.6), cell("a", "e", 0.1, discrimination=0.9),
        cell("b", "d", 0.6, discrimination=0.7), cell("b", "e", 0.2, discrimination=0.8),
        cell("c", "d", 0.55, discrimination=0.8), {**cell("c", "e", None), "discrimination": None},
    ]  # fmt: skip
    found = agree(cells, common=("d",), rankable=("d", "e"))
    # On d: CRS a b c, AUROC c b a. Existing: CRS c .55, a .5, b .4; AUROC c .8, then a and b both at .75.
    assert row(found, scope=COMMON, a="discrimination")["kendall_tau"] == pytest.approx(-1)
    existing = row(found, scope=EXISTING, a="discrimination")
    assert (existing["n"], existing["reversed_pairs"], existing["tied_pairs"]) == (3, 0, 1)
    assert row(found, scope=ONE, dataset="e", a="discrimination")["n"] == 2


def test_readings_and_control_probes_are_compared_with_the_protocols_linear_probe():
    names = ("a", "b", "c")
    cells = [cell(n, "d", 0.9 - i / 10, discrimination=0.9 - i / 10, calibration=0.1) for i, n in enumerate(names)]
    cells += [cell(n, "d", 0.5 + i / 10, reading="crs-v1-skill") for i, n in enumerate(names)]
    control = pl.DataFrame(
        [
            {"encoder": n, "dataset": "d", "probe": probe, "axis": "discrimination", "value": value}
            for probe, values in (("mlp", (0.9, 0.8, 0.7)), ("knn", (0.7, 0.8, float("nan"))))
            for n, value in zip(names, values, strict=True)
        ]
    )
    found = agree(cells, readings=(RAW, SKILL), control_axes=control)
    assert row(found, scope=COMMON, a="crs", b="crs of crs-v1-skill")["kendall_tau"] == pytest.approx(-1)
    assert row(found, scope=COMMON, b="discrimination of mlp")["kendall_tau"] == pytest.approx(1)
    # c has no value under knn: two encoders are left, in the opposite order.
    knn = row(found, scope=COMMON, b="discrimination of knn")
    assert (knn["n"], knn["reversed_pairs"], knn["top_k"]) == (2, 1, 1)
    assert found.table.filter(pl.col("b") == "calibration of mlp").is_empty()
    constant = row(found, scope=COMMON, reading="crs-v1", a="calibration", b="crs")
    assert (constant["kendall_tau"], constant["reason"]) == (None, "one ranking is a single tie")


def test_one_encoder_has_no_ranking_and_says_so():
    found = agree([cell("a", "d", 0.5)])
    assert found.table["reason"].unique().to_list() == ["1 encoder(s) with both, two are needed"]
    assert found.table["kendall_tau"].null_count() == found.table.height


def test_control_axes_are_checked():
    with pytest.raises(ValueError, match=r"lacks \['probe', 'value'\]"):
        agree([cell("a", "d", 0.5)], control_axes=pl.DataFrame({"encoder": [], "dataset": [], "axis": []}))
    wrong = pl.DataFrame({"encoder": ["a"], "dataset": ["d"], "probe": ["mlp"], "axis": ["speed"], "value": [1.0]})
    with pytest.raises(ValueError, match=r"axes \['speed'\]"):
        agree([cell("a", "d", 0.5)], control_axes=wrong)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=8), st.randoms())
def test_matches_scipy_whatever_the_order_of_rows(pairs, random):
    cells = [cell(f"e{i}", "d", crs / 10, discrimination=auroc / 10) for i, (auroc, crs) in enumerate(pairs)]
    found = agree(cells)
    headline = row(found, scope=COMMON, a="discrimination")
    a, b = zip(*pairs, strict=True)
    if len(set(a)) > 1 and len(set(b)) > 1:
        assert headline["kendall_tau"] == pytest.approx(kendalltau(a, b).statistic, abs=1e-12)
        assert headline["spearman_rho"] == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)
    random.shuffle(cells)
    again = agree(cells)
    assert again.table.equals(found.table)
    assert again.moves.equals(found.moves)
