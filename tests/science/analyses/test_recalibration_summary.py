"""The summary over runs, by hand."""

import numpy as np
import polars as pl
import pytest

from crs_assets.science.analyses.recalibration_summary import condition_groups, summarise
from crs_assets.science.protocol import load_protocol

GROUPS = {"clean": "clean", "jpeg-1": "severity-1", "contrast-1": "severity-1", "transfer": "transfer"}


def run(encoder, seed, before, after, **changed):
    """One row; log loss, Brier score and AUROC follow the calibration error in a known way."""
    row = {
        "method": "temperature",
        "fitted_on": "calibration",
        "n_cases": 90,
        "all_cases": True,
        "condition": "clean",
        "encoder": encoder,
        "dataset": "skin",
        "seed": seed,
        "reason": None,
        "meaningful": True,
        **changed,
    }
    for name, scale in (("ece", 1.0), ("log_loss", 2.0), ("brier", -1.0), ("auroc", 0.5)):
        row[f"{name}_before"] = scale * before
        row[f"{name}_after"] = None if after is None else scale * after
        row[f"{name}_difference"] = None if after is None else scale * (after - before)
    row["ece_reduction"] = (before - after) / before if row["meaningful"] and after is not None else None
    return row


def summary(rows, indices=((0, 0), (0, 1), (1, 1))):
    frame = pl.DataFrame(rows, infer_schema_length=None, schema_overrides={"reason": pl.Utf8})
    return summarise(frame, GROUPS, [7, 9], np.array(indices), 0.9)


def row_of(table, **wanted):
    return table.filter([pl.col(name) == value for name, value in wanted.items()]).row(0, named=True)


def test_means_differences_and_counts_of_runs():
    table = summary([run("a", 7, 0.2, 0.1), run("a", 9, 0.4, 0.3), run("b", 7, 0.3, 0.4), run("b", 9, 0.1, 0.2)])
    # Before (0.2 + 0.4 + 0.3 + 0.1) / 4, after (0.1 + 0.3 + 0.4 + 0.2) / 4; two runs fell by 0.1 and two rose by it.
    row = row_of(table, metric="ece", dataset="skin")
    assert (row["before"], row["after"], row["difference"]) == pytest.approx((0.25, 0.25, 0.0))
    assert (row["n"], row["n_meaningful"], row["n_worse"], row["n_without_map"]) == (4, 4, 2, 0)
    assert (row["kind"], row["cases"], row["condition_group"]) == ("calibration", "all", "clean")
    # -ece and ece / 2 rise where it falls and the other way round; higher is better for AUROC only.
    assert row_of(table, metric="brier", dataset="skin")["n_worse"] == 2
    assert row_of(table, metric="auroc", dataset="skin")["n_worse"] == 2
    reduction = row_of(table, metric="ece_reduction", dataset="skin")
    assert reduction["difference"] == pytest.approx((0.5 + 0.25 - 1 / 3 - 1) / 4)
    assert reduction["n_worse"] == 2


def test_directions_of_worse():
    table = summary([run("a", 7, 0.2, 0.1), run("a", 9, 0.4, 0.3)])
    worse = {name: row_of(table, metric=name, dataset="skin")["n_worse"] for name in ("ece", "log_loss", "auroc")}
    # The calibration error fell, and with it, in these rows, AUROC.
    assert worse == {"ece": 0, "log_loss": 0, "auroc": 2}


def test_the_interval_resamples_seeds_each_by_its_number_of_runs():
    table = summary([run("a", 7, 0.2, 0.1), run("b", 7, 0.3, 0.1), run("a", 9, 0.4, 0.1)])
    # Seed 7: two runs with -0.1 and -0.2; seed 9: one with -0.3. Draws (7, 7), (7, 9), (9, 9).
    replicates = [-0.6 / 4, -0.6 / 3, -0.6 / 2]
    row = row_of(table, metric="ece", dataset="overall")
    assert (row["low"], row["high"]) == pytest.approx(tuple(np.quantile(replicates, [0.05, 0.95])))
    assert row["difference"] == pytest.approx(-0.2)


def test_runs_that_are_not_meaningful_are_out_of_the_reduction_and_in_everything_else():
    table = summary([run("a", 7, 0.2, 0.1), run("a", 9, 0.1, 0.09, meaningful=False), run("b", 9, 0.4, 0.1)])
    error = row_of(table, metric="ece", dataset="skin")
    assert (error["n"], error["n_meaningful"]) == (3, 2)
    assert error["after"] == pytest.approx((0.1 + 0.09 + 0.1) / 3)
    reduction = row_of(table, metric="ece_reduction", dataset="skin")
    assert (reduction["n"], reduction["n_meaningful"]) == (3, 2)
    assert reduction["difference"] == pytest.approx((0.5 + 0.75) / 2)
    assert (reduction["before"], reduction["after"]) == pytest.approx((0.3, 0.1))


def test_runs_without_a_map_are_counted_and_a_seed_without_a_run_has_no_interval():
    lost = run("b", 9, 0.3, None, reason="1 of 3 scored classes have no case")
    table = summary([run("a", 7, 0.2, 0.1), lost])
    row = row_of(table, metric="ece", dataset="skin")
    assert (row["n"], row["n_without_map"], row["low"], row["high"]) == (1, 1, None, None)
    # Before and after are of the same runs.
    assert (row["before"], row["after"]) == (0.2, 0.1)
    nothing = row_of(summary([lost]), metric="ece", dataset="skin")
    assert (nothing["n"], nothing["before"], nothing["difference"]) == (0, None, None)


def test_conditions_of_a_severity_cases_and_kinds_are_kept_apart():
    rows = [
        run("a", seed, 0.2, after, condition=condition, n_cases=cases, all_cases=whole, fitted_on=kind, dataset=dataset)
        for seed in (7, 9)
        for after, condition, cases, whole, kind, dataset in (
            (0.10, "jpeg-1", 90, True, "calibration", "skin"),
            (0.12, "contrast-1", 90, True, "calibration", "skin"),
            (0.14, "clean", 50, False, "calibration", "skin"),
            (0.16, "transfer", 50, False, "target", "chest"),
        )
    ]
    table = summary(rows).filter(metric="ece")
    found = {
        (row["dataset"], row["kind"], row["cases"], row["condition_group"]): (row["after"], row["n"])
        for row in table.iter_rows(named=True)
        if row["dataset"] != "overall"
    }
    assert found == {
        ("skin", "calibration", "all", "severity-1"): (pytest.approx(0.11), 4),
        ("skin", "calibration", "50", "clean"): (pytest.approx(0.14), 2),
        ("chest", "target", "50", "transfer"): (pytest.approx(0.16), 2),
    }


def test_the_order_of_rows_changes_no_bit():
    rng = np.random.default_rng(0)
    rows = [run(name, seed, *rng.random(2)) for name in "abcdefg" for seed in (7, 9)]
    rows += [{**row, "method": "vector", "ece_after": row["ece_before"]} for row in rows]
    assert summary(rows).equals(summary(rows[::-1]))


def test_every_condition_of_the_protocol_has_a_group():
    protocol = load_protocol("crs-v1")
    groups = condition_groups(protocol)
    assert set(groups) == {condition.name for condition in protocol.conditions(transfer=True)}
    assert groups["jpeg-2"] == groups["rician-2"] == "severity-2"
