"""Predictors of AUROC elsewhere, families, and the verdict in words; every number is worked out in the test."""

import polars as pl
import pytest
from scipy.stats import spearmanr, ttest_ind

from crs_assets.science.analyses.external_validity import (
    AUROC_PREDICTORS,
    CRS_PREDICTORS,
    HELD_OUT_PREDICTORS,
    MATCHED,
    MEDICAL,
    UNMATCHED,
    compare_families,
    leave_one_out,
    no_target,
    predict_transfer,
    transfer_auroc,
)
from crs_assets.science.analyses.verdict import CLOSING, verdict
from crs_assets.science.protocol import load_protocol

PROTOCOL = load_protocol("demo-v1")
SOURCE, TARGET = "chest", "chest-b"
AUROC = {"a": (0.90, 0.70), "b": (0.85, 0.90), "c": (0.80, 0.80), "d": (0.75, 0.60)}
SCORE = {"a": (0.20, 0.30), "b": (0.50, 0.10), "c": (0.40, 0.40), "d": (0.10, 0.20)}
AT_TARGET = {"a": 0.80, "b": 0.75, "c": 0.70, "d": 0.72}


def cells(names="abcd"):
    return pl.DataFrame(
        [
            {
                "encoder": name,
                "dataset": dataset,
                "crs": SCORE[name][i] + 0.01,
                "crs_without_transfer": SCORE[name][i],
                "discrimination": AUROC[name][i],
            }
            for name in names
            for i, dataset in enumerate((SOURCE, "skin"))
        ]
    )


def transfer(values=AT_TARGET):
    return pl.DataFrame(
        [{"dataset": SOURCE, "encoder": name, "target_auroc": value} for name, value in values.items()],
        schema={"dataset": pl.Utf8, "encoder": pl.Utf8, "target_auroc": pl.Float64},
    )


def predicted(names="abcd", values=AT_TARGET):
    table = predict_transfer(
        cells(names), transfer(values), source=SOURCE, target=TARGET, common=(SOURCE, "skin"), protocol=PROTOCOL
    )
    return {row["predictor"]: row for row in table.iter_rows(named=True)}


def test_four_predictors_of_the_target():
    found = predicted()
    y = [AT_TARGET[name] for name in "abcd"]
    expected = {
        CRS_PREDICTORS[0]: [SCORE[name][0] for name in "abcd"],
        CRS_PREDICTORS[1]: [sum(SCORE[name]) / 2 for name in "abcd"],
        AUROC_PREDICTORS[0]: [AUROC[name][0] for name in "abcd"],
        AUROC_PREDICTORS[1]: [sum(AUROC[name]) / 2 for name in "abcd"],
    }
    assert {name: row["rho"] for name, row in found.items()} == {
        name: pytest.approx(spearmanr(x, y).statistic) for name, x in expected.items()
    }
    assert {row["n"] for row in found.values()} == {4}
    # By AUROC of the source a comes first, and is first at the target; by CRS of the source b does.
    assert found[AUROC_PREDICTORS[0]]["winner_recovered"] is True
    assert found[CRS_PREDICTORS[0]]["winner_recovered"] is False
    for row in found.values():
        assert -1 <= row["lower"] <= row["upper"] <= 1
        assert 0 < row["replicates"] <= PROTOCOL.statistics.replicates


def test_too_few_encoders_give_no_number_and_the_reason():
    for found in (predicted("ab"), predicted(values={"a": 0.8, "b": None, "c": 0.7}), predicted(values={})):
        for row in found.values():
            assert (row["rho"], row["lower"], row["winner_recovered"]) == (None, None, None)
            assert row["reason"] == f"n = {row['n']}, needs 3"


def test_no_target_is_rows_with_nothing_but_the_reason():
    table = no_target()
    assert table["rho"].null_count() == table.height == 4
    assert table["reason"].unique().to_list() == ["no data set of the suite has a transfer target"]
    assert verdict(pl.concat([table, leave_one_out(cells(), datasets=(SOURCE,), protocol=PROTOCOL)])).startswith(
        "Transfer was not tested: no data set of the suite has a transfer target."
    )


def test_each_data_set_is_predicted_from_the_others():
    table = leave_one_out(cells(), datasets=(SOURCE, "skin"), protocol=PROTOCOL)
    found = {(row["target"], row["predictor"]): row for row in table.iter_rows(named=True)}
    # skin from chest alone: AUROC ranks 1 2 3 4 against 3 1 2 4: squared differences 4 + 1 + 1 = 6, rho 1 - 36 / 60.
    assert found["skin", HELD_OUT_PREDICTORS[1]]["rho"] == pytest.approx(0.4)
    # CRS on chest: b c a d against skin's AUROC: b c a d.
    by_crs = found["skin", HELD_OUT_PREDICTORS[0]]
    assert (by_crs["rho"], by_crs["winner_recovered"]) == (pytest.approx(1.0), True)
    assert found["skin", HELD_OUT_PREDICTORS[1]]["winner_recovered"] is False
    assert found[SOURCE, HELD_OUT_PREDICTORS[1]]["winner_recovered"] is False


def test_encoders_that_lack_a_set_are_not_in_any_fold():
    table = leave_one_out(
        cells().filter((pl.col("encoder") != "d") | (pl.col("dataset") == SOURCE)),
        datasets=(SOURCE, "skin"),
        protocol=PROTOCOL,
    )
    assert table["n"].to_list() == [3] * 4


def test_a_tie_at_the_top_is_broken_by_id_and_flagged():
    tied = cells().with_columns(crs_without_transfer=pl.lit(0.5))
    table = predict_transfer(tied, transfer(), source=SOURCE, target=TARGET, common=(SOURCE,), protocol=PROTOCOL)
    row = table.filter(pl.col("predictor") == CRS_PREDICTORS[0]).row(0, named=True)
    assert (row["winner_recovered"], row["is_winner_tied"], row["rho"]) == (True, True, None)


def test_target_auroc_is_the_mean_over_seeds_of_all_labels_or_nothing():
    def run(encoder, seed, auroc, fraction=1.0, condition="transfer", converged=True):
        return {
            "encoder": encoder, "dataset": SOURCE, "seed": seed, "fraction": fraction, "condition": condition,
            "auroc": auroc, "converged": converged,
        }  # fmt: skip

    runs = pl.DataFrame(
        [
            run("a", 0, 0.6), run("a", 1, 0.7), run("a", 0, 0.1, fraction=0.5), run("a", 0, 0.9, condition="clean"),
            run("b", 0, 0.6), run("b", 1, float("nan")),
            run("c", 0, 0.6), run("c", 1, 0.7, converged=False),
        ]
    )  # fmt: skip
    table = transfer_auroc(runs, full_fraction=1.0)
    assert dict(table.select("encoder", "target_auroc").iter_rows()) == {"a": pytest.approx(0.65), "b": None, "c": None}


def test_families_are_compared_by_welchs_test_with_organ_matched_specialists_apart():
    values = {"g1": 0.50, "g2": 0.55, "m1": 0.70, "m2": 0.60, "s1": 0.80, "s2": 0.78, "skin1": 0.52}
    families = {name: {"g": "generalist", "m": "broad-medical", "s": "specialist"}[name[0]] for name in values}
    specialties = dict.fromkeys(values) | {"s1": "chest", "s2": "chest", "skin1": "skin"}
    table = compare_families(
        transfer(values), families, specialties, source=SOURCE, target=TARGET, organ="chest", level=0.95
    )
    found = {row["group"]: row for row in table.iter_rows(named=True)}
    groups = {
        MEDICAL: [0.70, 0.60, 0.80, 0.78, 0.52],
        MATCHED: [0.80, 0.78],
        UNMATCHED: [0.70, 0.60, 0.52],
    }
    for group, members in groups.items():
        expected = ttest_ind(members, [0.50, 0.55], equal_var=False)
        assert found[group]["p_value"] == pytest.approx(expected.pvalue)
        assert (found[group]["n"], found[group]["n_against"]) == (len(members), 2)
    nobody = compare_families(
        transfer({"g1": 0.5}), families, specialties, source=SOURCE, target=TARGET, organ="chest", level=0.95
    )
    assert nobody["p_value"].null_count() == 3
    assert nobody["reason"].to_list() == ["0 against 1 encoders, needs 2 on both sides"] * 3


def test_the_verdict_says_the_numbers_and_that_crs_is_no_predictor():
    table = pl.concat(
        [
            predict_transfer(cells(), transfer(), source=SOURCE, target=TARGET, common=(SOURCE,), protocol=PROTOCOL),
            leave_one_out(cells(), datasets=(SOURCE, "skin"), protocol=PROTOCOL),
        ]
    )
    said = verdict(table)
    # AUROC ranks 1 2 3 4 against 1 2 4 3: rho .8. CRS b c a d = 3 1 2 4 against 1 2 4 3: 1 - 6 * 10 / 60.
    assert "with Spearman 0.000 [" in said
    assert "the AUROC of chest with 0.800 [" in said
    # Four encoders cannot tell the two apart.
    assert "CRS is no better a guide; the difference has the interval [" in said
    assert "which holds 0." in said
    assert "(n = 4)" in said
    # Skin's winner is b, whom CRS on chest names; chest's is a, whom CRS on skin (c first) does not; AUROC names none.
    assert "With each of 2 data sets held out in turn, the winner there by AUROC was named by the mean CRS of " in said
    assert "the others in 1 of 2, by their mean AUROC in 0 of 2 " in said
    assert said.endswith(CLOSING)
    assert "0.529" in said
    assert "0.864" in said


@pytest.mark.parametrize(
    ("crs", "said"),
    [
        ([0.1 * i for i in range(12)], "CRS is the better guide."),
        ([-0.1 * i for i in range(12)], "CRS is the worse guide."),
    ],
)
def test_the_verdict_names_a_better_guide_only_where_resampled_encoders_do(crs, said):
    # AUROC of the source is half in order and half not; CRS follows the target wholly, or runs against it.
    names = [f"e{i:02d}" for i in range(12)]
    aurocs = [0.50, 0.53, 0.51, 0.56, 0.52, 0.58, 0.54, 0.61, 0.55, 0.60, 0.57, 0.59]
    table = pl.DataFrame(
        {
            "encoder": names,
            "dataset": [SOURCE] * 12,
            "crs": crs,
            "crs_without_transfer": crs,
            "discrimination": [a if said.startswith("CRS is the worse") else -a for a in aurocs],
        }
    )
    found = predict_transfer(
        table,
        transfer({name: 0.6 + 0.01 * i for i, name in enumerate(names)}),
        source=SOURCE,
        target=TARGET,
        common=(SOURCE,),
        protocol=PROTOCOL,
    )
    assert said in verdict(pl.concat([found, leave_one_out(table, datasets=(SOURCE,), protocol=PROTOCOL)]))
    row = found.row(0, named=True)
    assert row["minus_auroc_lower"] <= row["rho"] - found.row(2, named=True)["rho"] <= row["minus_auroc_upper"]
    assert found["minus_auroc_lower"].null_count() == 2
