"""What the first page says of repair, degraded images and targets: every branch, on tables small enough to read."""

import polars as pl
import pytest

from crs_assets.report.findings_elsewhere import (
    BROKEN_RISE,
    SMALL_LOSS,
    confidence_before_ranking,
    degrades_first,
    repair,
    transfers,
)

MINUS = "\N{MINUS SIGN}"


def summary(*rows):
    """(method, group, before, after, low, high, runs, beyond the null band, worse)."""
    return pl.DataFrame(
        [
            {
                "method": method,
                "condition_group": group,
                "metric": "ece",
                "before": before,
                "after": after,
                "difference": None if after is None else after - before,
                "low": low,
                "high": high,
                "n": n,
                "n_meaningful": beyond,
                "n_worse": worse,
            }
            for method, group, before, after, low, high, n, beyond, worse in rows
        ],
        schema_overrides=dict.fromkeys(("after", "difference", "low", "high"), pl.Float64),
    )


def test_repair_is_affirmed_where_an_interval_lies_below_0_and_followed_elsewhere():
    text = " ".join(
        repair(
            summary(
                ("temperature", "clean", 0.12, 0.06, -0.08, -0.04, 45, 40, 3),
                ("isotonic", "clean", 0.12, 0.15, 0.01, 0.05, 45, 40, 33),
                ("temperature", "severity-1", 0.15, 0.14, -0.02, 0.01, 225, 200, 90),
                ("temperature", "severity-3", 0.25, 0.24, -0.03, 0.01, 225, 200, 90),
                ("temperature", "transfer", 0.20, 0.12, -0.10, -0.06, 15, 15, 0),
            )
        )
    )
    assert text.startswith("Yes, on images like those of the calibration split.")
    assert f"temperature scaling, from 0.120 to 0.060 ({MINUS}0.060 [{MINUS}0.080, {MINUS}0.040]) over 45 runs" in text
    assert "3 got worse" in text
    assert "Beyond that interval it rises under isotonic regression." in text
    assert "Of these 45 runs, 40 had an ECE beyond its null band" in text
    assert "The same maps are not shown to help at severity 3: 0.250 to 0.240" in text
    assert "severity 1" not in text
    assert "The same maps also help at the transfer target: 0.200 to 0.120" in text


def test_repair_is_not_shown_where_every_interval_holds_0():
    text = " ".join(
        repair(
            summary(
                ("temperature", "clean", 0.12, 0.11, -0.03, 0.01, 45, 20, 20),
                ("vector", "clean", 0.12, 0.14, -0.01, 0.06, 30, 10, 20),
            )
        )
    )
    assert text.startswith("Not shown: no map lowers the mean ECE on clean images beyond its seed interval")
    assert "the lowest mean change is that of temperature scaling" in text
    assert "it rises" not in text


def test_repair_with_one_seed_has_no_interval_and_affirms_nothing():
    (first, _) = repair(summary(("temperature", "clean", 0.12, 0.02, None, None, 9, 9, 0)))
    assert first.startswith("Not shown")
    assert "without an interval" in first


def test_repair_without_any_map_says_nothing():
    assert "nothing is said" in repair(summary(("temperature", "clean", 0.1, None, None, None, 0, 0, 0)))[0]


def conditions(*rows):
    """(encoder, condition, severity, AUROC loss, ECE rise, ECE, null band)."""
    names = ("encoder", "condition", "severity", "auroc_loss", "ece_rise", "ece", "ece_null")
    frame = pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)
    family = pl.col("condition").str.replace(r"-\d$", "").alias("perturbation")
    return frame.with_columns(family, dataset=pl.lit("skin"))


CLEAN = ("a", "clean", 0, 0.0, 0.0, 0.1, 0.1)


def test_worst_family_of_loss_and_of_rise_over_all_and_at_the_mildest():
    table = conditions(
        CLEAN,
        ("a", "jpeg-1", 1, 0.01, 0.06, 0.16, 0.1),
        ("a", "jpeg-3", 3, 0.05, 0.10, 0.20, 0.1),
        ("a", "fov_crop-1", 1, 0.02, 0.01, 0.11, 0.1),
        ("a", "fov_crop-3", 3, 0.20, 0.02, 0.12, 0.1),
    )
    everything, mildest = degrades_first(table)
    # Loss: fov crop (.02 + .20) / 2 = .11, jpeg .03; rise: jpeg (.06 + .10) / 2 = .08, fov crop .015.
    assert (
        "Over 1 cell and all severities, AUROC falls most under field-of-view crop (on average by 0.110)" in everything
    )
    assert "ECE rises most under JPEG compression (on average by 0.080)" in everything
    assert "AUROC falls most under field-of-view crop (on average by 0.020)" in mildest
    assert "ECE rises most under JPEG compression (on average by 0.060)" in mildest


def test_no_family_is_blamed_where_nothing_gets_worse():
    everything, _ = degrades_first(conditions(CLEAN, ("a", "jpeg-1", 1, -0.01, 0.0001, 0.1, 0.1)))
    assert "AUROC gets worse on average under no family" in everything
    assert "ECE gets worse on average under no family" in everything


def test_degradations_that_are_not_estimable_say_nothing():
    table = conditions(CLEAN, ("a", "jpeg-1", 1, None, None, None, None))
    assert "nothing is said" in degrades_first(table)[0]
    assert "no degraded run is estimable" in confidence_before_ranking(table)[0]


def test_rule_is_stated_and_counts_what_fulfils_all_three_of_its_parts():
    table = conditions(
        CLEAN,
        ("a", "jpeg-1", 1, 0.0, 0.10, 0.20, 0.10),
        ("a", "jpeg-3", 3, 0.0, 0.10, 0.20, 0.30),  # within its null band
        ("a", "contrast-1", 1, 0.10, 0.10, 0.20, 0.10),  # AUROC falls too
        ("a", "contrast-3", 3, 0.0, 0.01, 0.20, 0.10),  # hardly any rise
    )
    rule, so_what = confidence_before_ranking(table)
    assert f"ECE rises by at least {BROKEN_RISE:g} above clean and lies above its null band" in rule
    assert f"AUROC falls by less than {SMALL_LOSS:g}: in 1 of 4 combinations" in rule
    assert rule.endswith("under JPEG compression (1 of 2).")
    assert "image quality itself has to be monitored" in so_what


@pytest.mark.parametrize(
    ("loss", "rise", "is_broken"),
    [(0.0, BROKEN_RISE, True), (0.0, BROKEN_RISE - 1e-6, False), (SMALL_LOSS, 0.2, False), (-0.05, 0.2, True)],
)
def test_borders_of_the_rule(loss, rise, is_broken):
    found = confidence_before_ranking(conditions(CLEAN, ("a", "jpeg-1", 1, loss, rise, 0.5, 0.1)))
    assert ("in 1 of 1" in found[0], len(found) == 2) == (is_broken, is_broken)
    assert is_broken or "in none of 1 combinations" in found[0]


def pairs(*rows):
    names = ("source", "target", "encoder", "auroc_source", "auroc_target", "ece_target", "ece_null_target")
    return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)


def correlation(rho, lower, upper):
    return pl.DataFrame(
        {"source": ["s"], "n": [3], "rho": [rho], "lower": [lower], "upper": [upper]},
        schema_overrides=dict.fromkeys(("rho", "lower", "upper"), pl.Float64),
    )


THREE = pairs(
    ("s", "t", "a", 0.90, 0.80, 0.20, 0.10),
    ("s", "t", "b", 0.80, 0.82, 0.05, 0.10),
    ("s", "t", "c", 0.7, 0.66, 0.3, 0.1),
)


def test_transfer_gives_mean_and_range_and_whether_the_order_holds():
    # Changes: -.10, +.02, -.04; mean -.04.
    (text,) = transfers(THREE, correlation(0.8, 0.2, 1.0))
    assert f"the AUROC of 3 ranked encoders changes by {MINUS}0.040 on average ({MINUS}0.100 to +0.020)" in text
    assert "the ECE there is beyond its null band for 2 of 3" in text
    assert "The order of encoders by AUROC transfers: Spearman +0.800 [+0.200, +1.000] over 3 encoders." in text


def test_order_is_not_said_to_transfer_where_the_interval_holds_0_or_is_missing():
    assert "is not shown to transfer" in transfers(THREE, correlation(0.8, -0.1, 1.0))[0]
    assert "without an interval" in transfers(THREE, correlation(0.8, None, None))[0]
    assert "could not be estimated" in transfers(THREE, correlation(None, None, None))[0]


def test_without_targets_or_without_values_nothing_is_said_of_other_institutions():
    assert "nothing is said of other institutions" in transfers(THREE.clear(), correlation(1.0, 0.5, 1.0).clear())[0]
    unknown = pairs(("s", "t", "a", None, None, None, None))
    assert "no ranked encoder has an AUROC on both sides" in transfers(unknown, correlation(None, None, None))[0]
