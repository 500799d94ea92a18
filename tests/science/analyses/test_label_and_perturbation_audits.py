"""Audits of label efficiency and of calibration under perturbation, from run metrics written in the test."""

import numpy as np
import polars as pl
import pytest
from scipy.stats import pearsonr, spearmanr

from crs_assets.science.analyses.label_audit import (
    CELLS,
    ENCODERS,
    learning_curves,
    levels,
    measure_correlations,
    reach,
)
from crs_assets.science.analyses.perturbation_audit import cell_changes, condition_changes, loss_and_rise
from crs_assets.science.protocol import load_protocol

PROTOCOL = load_protocol("demo-v1")
FRACTIONS = PROTOCOL.data.fractions
CONDITIONS = [condition.name for condition in PROTOCOL.degradations()]


def run(encoder, seed, fraction=1.0, condition="clean", dataset="d", **values):
    return {
        "encoder": encoder, "dataset": dataset, "seed": seed, "fraction": fraction, "condition": condition,
        "auroc": 0.5, "ece": 0.1, "ece_null": 0.02, "converged": True, "n_fit": round(100 * fraction), "floor": False,
        **values,
    }  # fmt: skip


def curve(encoder, aurocs, spread=0.0, **values):
    """Three seeds, each ``spread`` apart, whose mean at each fraction is as given."""
    return [
        run(encoder, seed, fraction, auroc=auroc + (seed - 1) * spread, **values)
        for fraction, auroc in zip(FRACTIONS, aurocs, strict=True)
        for seed in (0, 1, 2)
    ]


def table(rows):
    return pl.DataFrame(rows, schema_overrides={"auroc": pl.Float64, "ece": pl.Float64})


def test_a_curve_is_the_mean_over_seeds_with_the_interval_of_resampled_seeds():
    curves = learning_curves(table(curve("a", (0.6, 0.7, 0.8), spread=0.05)), PROTOCOL)
    assert curves["fraction"].to_list() == list(FRACTIONS)
    assert curves["auroc"].to_list() == pytest.approx([0.6, 0.7, 0.8])
    assert curves["retention"].to_list() == pytest.approx([0.75, 0.875, 1.0])
    assert curves["n_fit"].to_list() == [5, 25, 100]
    # All three seeds the same has probability 1 / 27 > 2.5 %: the interval ends at the lowest and the highest seed.
    assert curves["lower"].to_list() == pytest.approx([0.55, 0.65, 0.75])
    assert curves["upper"].to_list() == pytest.approx([0.65, 0.75, 0.85])


def test_what_did_not_converge_or_cannot_be_estimated_has_no_auroc():
    rows = [run("a", 0, auroc=0.8), run("a", 1, auroc=0.9, converged=False), run("b", 0, auroc=float("nan"))]
    curves = learning_curves(table(rows), PROTOCOL)
    assert curves["auroc"].to_list() == [None, None]
    assert curves["retention"].to_list() == [None, None]


def test_one_seed_has_no_interval():
    curves = learning_curves(table([run("a", 0, auroc=0.8)]), PROTOCOL)
    assert curves.select("auroc", "lower", "upper").row(0) == (0.8, None, None)


def test_who_reaches_whom_by_the_mean_and_by_the_lower_bound():
    curves = learning_curves(
        table(
            [
                *curve("early", (0.70, 0.80, 0.90), spread=0.02),
                *curve("late", (0.50, 0.60, 0.69), spread=0.02),
                *curve("unknown", (0.50, 0.60, float("nan"))),
            ]
        ),
        PROTOCOL,
    )
    found = {(row["encoder"], row["reference"]): row for row in reach(curves).iter_rows(named=True)}
    assert len(found) == 6
    # .70 is above .69 at 5 %, its lower bound .68 is not: that takes 25 %.
    early = found["early", "late"]
    assert (early["reference_auroc"], early["fraction"], early["fraction_lower_bound"]) == (
        pytest.approx(0.69), 0.05, 0.25,
    )  # fmt: skip
    assert (found["late", "early"]["fraction"], found["late", "early"]["reason"]) == (
        None,
        "not reached with all labels",
    )
    assert found["late", "unknown"]["reason"] == "the reference's AUROC is not estimable"
    assert levels(curves, top_k=2) == {"d": {"early": pytest.approx(0.7), "late": pytest.approx(0.5)}}


def test_measures_are_correlated_with_full_auroc_over_cells_and_over_encoders():
    rng = np.random.default_rng(0)
    names = [(encoder, dataset) for encoder in "abcd" for dataset in ("d", "e")]
    cells = pl.DataFrame(
        {
            "encoder": [encoder for encoder, _ in names],
            "dataset": [dataset for _, dataset in names],
            "discrimination": rng.uniform(0.6, 0.9, 8),
            "aulc": [*rng.uniform(0.6, 0.9, 7), None],
        }
    )
    found = measure_correlations(cells, ["aulc"], ranked="abc", common=("d", "e"))
    over = {row["scope"]: (row["n"], row["rho"]) for row in found.iter_rows(named=True)}
    known = cells.head(7)
    means = known.head(6).group_by("encoder").agg(pl.col("discrimination", "aulc").mean())
    assert over[CELLS] == (7, pytest.approx(spearmanr(known["discrimination"], known["aulc"]).statistic))
    assert over[ENCODERS] == (3, pytest.approx(spearmanr(means["discrimination"], means["aulc"]).statistic))


def perturbed(encoder, loss, rise, peak=None, dataset="d"):
    """A clean run and one per condition, two seeds that lie .02 on either side of the mean."""
    rows = []
    for seed, shift in ((0, -0.02), (1, 0.02)):
        rows.append(run(encoder, seed, auroc=0.9 + shift, ece=0.1 + shift, dataset=dataset))
        for condition in CONDITIONS:
            change = rise if condition != peak else 10 * rise
            values = {"auroc": 0.9 + shift - loss, "ece": 0.1 + shift + change}
            rows.append(run(encoder, seed, condition=condition, dataset=dataset, **values))
    return rows


def test_rises_and_losses_are_means_over_seeds_and_conditions_with_the_peak_named():
    changes = condition_changes(table(perturbed("a", 0.05, 0.01, peak="jpeg-3")), PROTOCOL)
    assert changes["condition"].to_list() == ["clean", *CONDITIONS]
    assert changes.filter(pl.col("condition") == "jpeg-3").select("perturbation", "severity").row(0) == ("jpeg", 3)
    cell = cell_changes(changes).row(0, named=True)
    # Ten conditions: nine rises of .01 and one of .1.
    assert cell["ece_rise_mean"] == pytest.approx(0.019)
    assert (cell["ece_rise_peak"], cell["peak_condition"]) == (pytest.approx(0.1), "jpeg-3")
    assert (cell["auroc_loss_mean"], cell["auroc_loss_worst"]) == (pytest.approx(0.05), pytest.approx(0.05))
    assert (cell["auroc_clean"], cell["ece_clean"], cell["conditions"]) == (
        pytest.approx(0.9), pytest.approx(0.1), len(CONDITIONS),
    )  # fmt: skip


def test_a_gain_keeps_its_sign():
    cell = cell_changes(condition_changes(table(perturbed("a", -0.03, -0.01)), PROTOCOL)).row(0, named=True)
    assert (cell["auroc_loss_mean"], cell["ece_rise_mean"]) == (pytest.approx(-0.03), pytest.approx(-0.01))


def test_loss_and_rise_are_correlated_over_cells_and_cells_with_gaps_are_left_out():
    loss, rise = {"a": 0.01, "b": 0.05, "c": 0.02, "e": 0.09}, {"a": 0.02, "b": 0.01, "c": 0.05, "e": 0.06}
    rows = [row for name in loss for row in perturbed(name, loss[name], rise[name])]
    broken = perturbed("f", 0.5, 0.0)
    broken[-1]["converged"] = False
    cells = cell_changes(condition_changes(table([*rows, *broken]), PROTOCOL))
    found = loss_and_rise(cells)
    assert found.n == 4
    assert found.value == pytest.approx(pearsonr(list(loss.values()), list(rise.values())).statistic)
    gap = cells.filter(pl.col("encoder") == "f").row(0, named=True)
    assert (gap["ece_rise_mean"], gap["reason"]) == (None, "1 condition(s) not estimable")
