"""Axis profiles from rows of run metrics that are written in the test."""

import polars as pl
import pytest

from crs_assets.science.profiles import dataset_profile, seed_axes
from crs_assets.science.protocol import load_protocol

RAW, SKILL = load_protocol("demo-v1"), load_protocol("demo-v1-skill")
CONDITIONS = [condition.name for condition in RAW.degradations()]


def runs(clean=(0.7, 0.8, 0.9), degraded=0.85, worst=0.7, transfer=None, ece=0.05, **changes):
    rows = [
        {
            "seed": 0,
            "fraction": f,
            "condition": "clean",
            "auroc": a,
            "ece": ece,
            "auroc_source": None,
            "converged": True,
        }
        for f, a in zip(RAW.data.fractions, clean, strict=True)
    ]
    for fraction in RAW.data.fractions:
        for condition in CONDITIONS:
            value = worst if condition == "rician-3" else degraded
            rows.append({**rows[0], "fraction": fraction, "condition": condition, "auroc": value})
        if transfer:
            rows.append(
                {
                    **rows[0],
                    "fraction": fraction,
                    "condition": "transfer",
                    "auroc_source": transfer[0],
                    "auroc": transfer[1],
                }
            )
    rows[-1].update(changes)
    schema = {"seed": pl.Int64, "auroc_source": pl.Float64, "auroc": pl.Float64, "ece": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=schema)


def axes(table, protocol=RAW, distinct=True):
    return seed_axes(table, protocol, distinct_fractions=distinct)


def test_raw_axes_are_ratios_and_drops():
    found = axes(runs())
    # Nine drops of 0.05 and one of 0.20: mean 0.065, worst 0.2.
    assert found.raw == pytest.approx(
        {"discrimination": 0.9, "calibration": 0.05, "label_efficiency": (7 / 9 + 8 / 9) / 2, "robustness": 0.1325}
    )
    assert found.problem is None


def test_above_chance_axes_are_shares_of_what_lies_above_a_half():
    found = axes(runs(), SKILL)
    assert found.raw["label_efficiency"] == pytest.approx((0.2 / 0.4 + 0.3 / 0.4) / 2)
    assert found.raw["robustness"] == pytest.approx(0.1325 / 0.4)


def test_transfer_is_a_third_part_and_stands_apart_as_well():
    found = axes(runs(transfer=(0.88, 0.82)))
    assert found.raw["robustness"] == pytest.approx((0.065 + 0.2 + 0.06) / 3)
    assert found.without_transfer == pytest.approx(0.1325)
    assert found.components["transfer_drop"] == pytest.approx(0.06)


def test_a_gain_is_no_credit_and_is_reported_with_its_sign():
    found = axes(runs(degraded=0.95, worst=0.95, transfer=(0.8, 0.9)))
    assert found.raw["robustness"] == 0.0
    assert found.components == pytest.approx(
        {"mean_drop": -0.05, "worst_drop": -0.05, "transfer_drop": -0.1, "aulc": found.components["aulc"]}
    )


@pytest.mark.parametrize(
    ("table", "protocol", "distinct", "problem"),
    [
        (runs(), RAW, False, "two label fractions come to the same images"),
        (runs(converged=False), RAW, True, r"1 run\(s\) did not converge"),
        (
            runs(clean=(0.5, 0.52, 0.54), degraded=0.5, worst=0.5),
            SKILL,
            True,
            "not estimable: label_efficiency, robustness",
        ),
    ],
)
def test_what_cannot_be_estimated_has_no_z_and_says_why(table, protocol, distinct, problem):
    found = axes(table, protocol, distinct)
    profile = dataset_profile([axes(runs(), protocol), found], protocol)
    assert profile["z"] is None
    assert profile["z_without_transfer"] is None
    with pytest.raises(AssertionError, match=problem):
        raise AssertionError(profile["problem"])


def test_a_profile_is_the_mean_over_seeds_normalised_once():
    seeds = [axes(runs(clean=(0.6, 0.7, 0.8), ece=0.1, degraded=0.8, worst=0.8)), axes(runs(ece=0.3))]
    profile = dataset_profile(seeds, RAW)
    # Calibration: the mean 0.2 of 0.1 and 0.3 maps to 0.2; the mean of clipped z (0.6 and 0) would be 0.3.
    assert profile["raw"]["calibration"] == pytest.approx(0.2)
    assert profile["z"]["calibration"] == 0.2
    assert profile["z"]["discrimination"] == pytest.approx((0.85 - 0.5) / 0.5)
    assert profile["z"]["robustness"] == pytest.approx(1 - (0.0 + 0.1325) / 2 / 0.25)
    assert [row["calibration"] for row in profile["per_seed"]] == [0.1, 0.3]


def test_a_run_that_is_missing_or_there_twice_is_refused():
    table = runs()
    with pytest.raises(ValueError, match=r"1 run\(s\) of the grid have no row: 1/fov_crop-3"):
        axes(table.head(table.height - 1))
    with pytest.raises(ValueError, match=r"two rows for label fraction 0\.05 and condition clean"):
        axes(pl.concat([table, table.head(1)]))
