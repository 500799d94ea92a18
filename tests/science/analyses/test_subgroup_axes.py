"""Axes of subgroups against scikit-learn and hand calculations, and what they must not depend on."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from sklearn.metrics import roc_auc_score
from subgroup_cases import chest, gap, reference_auroc, skin, softmax, value, with_settings

from crs_assets.science.analyses.subgroup_axes import TransferRuns
from crs_assets.science.analyses.subgroup_columns import UNKNOWN
from crs_assets.science.analyses.subgroups import subgroup_tables
from crs_assets.science.evaluation import Scored
from crs_assets.science.metrics import expected_calibration_error, multilabel_expected_calibration_error


@pytest.fixture
def protocol():
    return with_settings(replicates=60)


def test_axes_of_a_group_are_those_of_its_images_alone(protocol):
    runs = skin()
    tables = subgroup_tables(runs, protocol, "skin")
    for group in ("female", "male"):
        rows = runs.columns[0].rows(group)
        full = reference_auroc(runs.curve[1.0], rows, range(3))
        assert value(tables, group, "discrimination") == pytest.approx(full, abs=1e-12)
        partial = [reference_auroc(runs.curve[fraction], rows, range(3)) for fraction in (0.1, 0.5)]
        assert value(tables, group, "label_efficiency") == pytest.approx(np.mean(partial) / full, abs=1e-12)
        drops = [full - reference_auroc(run, rows, range(3)) for run in runs.degraded.values()]
        wanted = (max(np.mean(drops), 0) + max(*drops, 0)) / 2
        assert value(tables, group, "robustness") == pytest.approx(wanted, abs=1e-12)
        proba = softmax(runs.clean.logits[rows].astype(np.float64))
        error = expected_calibration_error(runs.clean.labels[rows], proba)
        assert value(tables, group, "calibration") == pytest.approx(error, abs=1e-12)
        assert value(tables, group, "discrimination", "n_images") == str(len(rows))
        assert value(tables, group, "discrimination", "n_groups") == str(len({runs.group_ids[row] for row in rows}))
    assert set(tables.groups["with_transfer"].drop_nulls()) == {False}
    assert tables.groups["reason"].null_count() == tables.groups.height == 8


def test_unobserved_cells_do_not_count(protocol):
    runs = chest()
    tables = subgroup_tables(runs, protocol, "chest")
    rows = runs.columns[0].rows("PA")
    labels, logits = runs.clean.labels[rows], runs.clean.logits[rows].astype(np.float64)
    seen = ~np.isnan(labels)
    aurocs = [roc_auc_score(labels[seen[:, k], k], logits[seen[:, k], k]) for k in range(2)]
    assert value(tables, "PA", "discrimination") == pytest.approx(np.mean(aurocs), abs=1e-12)
    error = multilabel_expected_calibration_error(labels, 1 / (1 + np.exp(-logits)))
    assert value(tables, "PA", "calibration") == pytest.approx(error, abs=1e-12)
    assert 0 < value(tables, "PA", "calibration", "ece_null") < 0.5


def test_a_class_with_nine_positives_in_a_group_is_not_judged_there(protocol):
    # Group a holds 9 of class 2, group b 10: the protocol asks for 10.
    labels = np.array([0] * 60 + [1] * 60 + [2] * 19)
    site = ["a", "b"] * 60 + ["a"] * 9 + ["b"] * 10
    runs = skin(len(labels), site=site)
    logits = np.random.default_rng(3).normal(size=(len(labels), 3)).astype(np.float32)
    relabelled = {key: Scored(labels, logits + key, range(3)) for key in runs.curve}
    runs = replace(runs, curve=relabelled, degraded={"jpeg-1": Scored(labels, logits, range(3))})
    tables = subgroup_tables(runs, protocol, "skin")
    for group, classes in (("a", (0, 1)), ("b", (0, 1, 2))):
        rows = runs.columns[0].rows(group)
        assert value(tables, group, "discrimination", "classes") == len(classes)
        assert value(tables, group, "discrimination") == pytest.approx(reference_auroc(runs.clean, rows, classes))
    own, common = gap(tables, "discrimination"), gap(tables, "discrimination", "common")
    aurocs = [reference_auroc(runs.clean, runs.columns[0].rows(group), (0, 1)) for group in "ab"]
    assert common["gap"] == pytest.approx(abs(aurocs[0] - aurocs[1]))
    assert common["classes"] == 2
    assert own["gap"] != pytest.approx(common["gap"])


def test_a_group_without_any_class_to_judge_says_so_and_keeps_its_calibration(protocol):
    runs = skin(site=["arm"] * 220 + ["leg"] * 20)
    tables = subgroup_tables(runs, protocol, "skin")
    assert value(tables, "leg", "discrimination") is None
    assert "no scored class has 10 positives and 10 negatives" in value(tables, "leg", "discrimination", "reason")
    assert value(tables, "leg", "calibration") is not None
    assert gap(tables, "discrimination")["reason"] == "fewer than two groups can be compared"
    assert gap(tables, "calibration")["gap"] > 0


@pytest.mark.parametrize(("patients", "suppressed"), [(9, True), (10, False)])
def test_nine_patients_are_named_without_a_figure_and_ten_are_shown(protocol, patients, suppressed):
    # Two images per patient.
    site = ["leg"] * (2 * patients) + ["arm"] * (240 - 2 * patients)
    tables = subgroup_tables(skin(site=site), protocol, "skin")
    leg = tables.groups.filter(pl.col("group") == "leg")
    assert leg["suppressed"].to_list() == [suppressed] * 4
    figures = leg.select("value", "low", "high", "ece_null", "classes", "with_transfer")
    if suppressed:
        assert leg["n_groups"].unique().to_list() == ["<10"]
        assert leg["n_images"].unique().to_list() == ["suppressed"]
        assert all(column.null_count() == 4 for column in figures)
        assert leg["reason"].unique().to_list() == ["fewer than 10 patients"]
        assert gap(tables, "calibration")["gap"] is None
    else:
        assert leg["n_groups"].unique().to_list() == ["10"]
        assert leg["n_images"].unique().to_list() == ["20"]
        assert value(tables, "leg", "calibration") is not None


def test_what_is_unknown_is_shown_apart_and_never_the_worst(protocol):
    runs = skin(360, sex=["female", "male", None] * 120)
    rows = runs.columns[0].rows(UNKNOWN)
    spoilt = runs.clean.logits.copy()
    spoilt[rows] *= -5
    runs = replace(runs, curve={**runs.curve, 1.0: replace(runs.clean, logits=spoilt)})
    tables = subgroup_tables(runs, protocol, "skin")
    known = [value(tables, group, "discrimination") for group in ("female", "male")]
    assert value(tables, UNKNOWN, "discrimination") < 0.5 < min(known)
    assert gap(tables, "discrimination")["gap"] == pytest.approx(max(known) - min(known))
    assert UNKNOWN not in (gap(tables, "calibration")["worst"], gap(tables, "discrimination")["worst"])


def test_the_worst_group_is_the_one_on_the_bad_side_of_each_axis(protocol):
    runs = skin(400, sex=["female"] * 200 + ["male"] * 200)
    logits = runs.clean.logits.copy()
    logits[200:] = np.random.default_rng(5).normal(size=(200, 3)) * 4  # guesses, and sure of them
    runs = replace(runs, curve={**runs.curve, 1.0: replace(runs.clean, logits=logits)})
    tables = subgroup_tables(runs, protocol, "skin")
    for axis in ("discrimination", "calibration"):
        found = gap(tables, axis)
        assert (found["worst"], found["best"]) == ("male", "female")
        difference = value(tables, "female", axis) - value(tables, "male", axis)
        assert found["gap"] == pytest.approx(abs(difference))
        assert 0 < found["low"] <= found["gap"] <= found["high"] + 0.1
    # The guesses cannot get worse, so it is the female group that loses under degradation.
    assert gap(tables, "robustness")["worst"] == "female"
    for axis in ("label_efficiency", "robustness"):
        found = gap(tables, axis)
        assert found["low"] < found["high"]


def test_the_order_of_images_changes_nothing(protocol):
    for runs in (skin(sex=["female", "male", None] * 80), chest()):
        order = np.random.default_rng(8).permutation(len(runs.group_ids))

        def shuffled(run, order=order):
            return replace(run, labels=run.labels[order], logits=run.logits[order])

        again = replace(
            runs,
            group_ids=runs.group_ids[order],
            columns=tuple(replace(column, member=column.member[order]) for column in runs.columns),
            curve={fraction: shuffled(run) for fraction, run in runs.curve.items()},
            degraded={condition: shuffled(run) for condition, run in runs.degraded.items()},
        )
        before, after = (subgroup_tables(each, protocol, "any") for each in (runs, again))
        assert_frame_equal(before.groups, after.groups, rel_tol=1e-12, abs_tol=1e-12)
        assert_frame_equal(before.gaps, after.gaps, rel_tol=1e-12, abs_tol=1e-12)


def test_the_drop_to_the_target_is_that_of_the_same_group(protocol):
    runs = chest(300, view=["AP", "PA"] * 150)
    there = chest(160, seed=9, view=["AP"] * 80 + ["PA"] * 80)
    transfer = TransferRuns("multilabel", runs.clean, there.curve[0.5], there.group_ids, there.columns, "chest-b")
    alone = subgroup_tables(runs, protocol, "chest")
    tables = subgroup_tables(replace(runs, transfer=transfer), protocol, "chest")
    for group in ("AP", "PA"):
        rows = there.columns[0].rows(group)
        labels, logits = transfer.target.labels[rows], transfer.target.logits[rows]
        seen = ~np.isnan(labels)
        target = np.mean([roc_auc_score(labels[seen[:, k], k], logits[seen[:, k], k]) for k in range(2)])
        drop = max(value(alone, group, "discrimination") - target, 0)
        # (m + w + t) / 3 with the target, (m + w) / 2 without.
        wanted = (2 * value(alone, group, "robustness") + drop) / 3
        assert value(tables, group, "robustness") == pytest.approx(wanted, abs=1e-12)
        assert value(tables, group, "robustness", "with_transfer")


def test_the_drop_rests_on_what_both_sides_can_be_judged_on(protocol):
    # At the target label 1 has nine positives in PA, so PA drops on label 0 alone.
    runs = chest(300, view=["AP", "PA"] * 150)
    there = chest(400, seed=9, view=["AP"] * 200 + ["PA"] * 200)
    labels = there.clean.labels.copy()
    labels[np.flatnonzero(labels[200:, 1] == 1)[9:] + 200, 1] = np.nan
    transfer = TransferRuns(
        "multilabel", runs.clean, replace(there.clean, labels=labels), there.group_ids, there.columns, "chest-b"
    )

    def auroc(run, rows, label):
        seen = rows[~np.isnan(run.labels[rows, label])]
        return roc_auc_score(run.labels[seen, label], run.logits[seen, label])

    def robust(group, judged):
        here, far = runs.columns[0].rows(group), there.columns[0].rows(group)
        clean, degraded = (
            np.mean([auroc(run, here, label) for label in (0, 1)]) for run in (runs.clean, runs.degraded["contrast-3"])
        )
        drop = np.mean([auroc(runs.clean, here, k) - auroc(transfer.target, far, k) for k in judged])
        return (2 * max(clean - degraded, 0) + max(drop, 0)) / 3

    tables = subgroup_tables(replace(runs, transfer=transfer), protocol, "chest")
    assert value(tables, "AP", "robustness") == pytest.approx(robust("AP", (0, 1)), abs=1e-12)
    assert value(tables, "PA", "robustness") == pytest.approx(robust("PA", (0,)), abs=1e-12)
    wanted = {"own": robust("AP", (0, 1)) - robust("PA", (0,)), "common": robust("AP", (0,)) - robust("PA", (0,))}
    assert abs(wanted["own"]) != pytest.approx(abs(wanted["common"]), abs=1e-6)
    for basis, difference in wanted.items():
        assert gap(tables, "robustness", basis)["gap"] == pytest.approx(abs(difference), abs=1e-12)


@pytest.mark.parametrize("views", [["AP"] * 80 + [None] * 80, ["AP"] * 151 + ["PA"] * 9, [None] * 160])
def test_where_the_target_lacks_a_group_no_group_of_the_column_is_charged_for_it(protocol, views):
    runs = chest(300, view=["AP", "PA"] * 150)
    there = chest(160, seed=9, view=views)
    transfer = TransferRuns("multilabel", runs.clean, there.clean, there.group_ids, there.columns, "chest-b")
    alone = subgroup_tables(runs, protocol, "chest")
    assert_frame_equal(subgroup_tables(replace(runs, transfer=transfer), protocol, "chest").groups, alone.groups)


@pytest.mark.parametrize(("patients", "with_transfer"), [(9, False), (10, True)])
def test_nine_patients_at_the_target_are_too_few_however_many_their_images(protocol, patients, with_transfer):
    runs = chest(300, view=["AP", "PA"] * 150)
    there = chest(160, seed=9, view=["AP"] * 80 + ["PA"] * 80)
    groups = np.array([f"q{image if image < 80 else image % patients}" for image in range(160)])
    transfer = TransferRuns("multilabel", runs.clean, there.clean, groups, there.columns, "chest-b")
    tables = subgroup_tables(replace(runs, transfer=transfer), protocol, "chest")
    assert set(tables.groups["with_transfer"].drop_nulls()) == {with_transfer}
    assert set(tables.gaps["with_transfer"].drop_nulls()) == {with_transfer}


def test_without_converged_fits_there_are_counts_and_no_figures(protocol):
    tables = subgroup_tables(replace(skin(), problem="2 run(s) did not converge"), protocol, "skin")
    assert tables.groups["value"].null_count() == tables.groups.height
    assert set(tables.groups["reason"]) == set(tables.gaps["reason"]) == {"2 run(s) did not converge"}
    assert value(tables, "male", "discrimination", "n_images").isdigit()


def test_equal_label_fractions_take_label_efficiency_only(protocol):
    tables = subgroup_tables(replace(skin(), distinct_fractions=False), protocol, "skin")
    missing = tables.groups.filter(pl.col("value").is_null())
    assert set(missing["axis"]) == {"label_efficiency"}
    assert set(missing["reason"]) == {"two label fractions come to the same images"}


def test_a_label_that_was_not_fitted_is_left_out_of_the_mean(protocol):
    runs = chest()
    logits = runs.clean.logits.copy()
    logits[:, 1] = np.nan
    tables = subgroup_tables(
        replace(runs, curve={**runs.curve, 1.0: replace(runs.clean, logits=logits)}), protocol, "chest"
    )
    rows = runs.columns[0].rows("AP")
    labels = runs.clean.labels[rows, 0]
    seen = ~np.isnan(labels)
    wanted = roc_auc_score(labels[seen], logits[rows, 0][seen])
    assert value(tables, "AP", "discrimination") == pytest.approx(wanted)


def test_a_data_set_without_subgroups_gives_empty_tables(protocol):
    tables = subgroup_tables(replace(skin(), columns=()), protocol, "skin")
    assert tables.groups.height == tables.gaps.height == 0
    assert {"column", "group", "axis", "value"} <= set(tables.groups.columns)
