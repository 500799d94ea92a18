"""Intervals of subgroups: those of repeated images, paired between groups, by patient and not by image."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from subgroup_cases import chest, columns_of, gap, reference_auroc, skin, softmax, value, with_settings

from crs_assets.science.analyses.subgroup_axes import TransferRuns
from crs_assets.science.analyses.subgroups import subgroup_tables
from crs_assets.science.metrics import expected_calibration_error
from crs_assets.science.protocol import AXES
from crs_assets.science.seeding import generator
from crs_assets.science.statistics import bootstrap_macro_auroc, group_bootstrap_counts


@pytest.fixture
def protocol():
    return with_settings(replicates=60)


def test_a_difference_by_chance_has_an_interval_on_both_sides_of_zero(protocol):
    found = gap(subgroup_tables(skin(240), protocol, "skin"), "discrimination")
    assert found["low"] < 0 < found["gap"] < found["high"]


def test_groups_of_the_same_patients_are_compared_under_the_same_resamples(protocol):
    # Every patient has an image in each view, with one prediction for both, but for three images.
    runs = chest(240, view=["AP", "PA"] * 120)
    labels, logits = (np.repeat(array[::2], 2, axis=0) for array in (runs.clean.labels, runs.clean.logits))
    logits[1:7:2] -= 1
    clean = replace(runs.clean, labels=labels, logits=logits)
    patients = np.repeat([f"q{patient}" for patient in range(120)], 2)
    tables = subgroup_tables(replace(runs, group_ids=patients, curve={**runs.curve, 1.0: clean}), protocol, "chest")
    found = gap(tables, "discrimination")
    alone = value(tables, "AP", "discrimination", "high") - value(tables, "AP", "discrimination", "low")
    assert found["gap"] > 0
    assert found["high"] - found["low"] < alone / 3


def test_intervals_are_those_of_the_case_bootstrap_of_the_data_set():
    protocol = with_settings(replicates=100)
    runs = skin(everyone=["all"] * 240)
    tables = subgroup_tables(runs, protocol, "skin")
    drawn = bootstrap_macro_auroc(
        runs.clean.labels,
        [np.log(softmax(runs.clean.logits.astype(np.float64)))],
        group_ids=runs.group_ids,
        replicates=100,
        rng=generator(protocol.salt, "case_bootstrap", "skin"),
    ).values[0]
    wanted = np.quantile(drawn, [0.025, 0.975])
    found = [value(tables, "all", "discrimination", end) for end in ("low", "high")]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def axes_of(runs, rows):
    """The four axes of some images, drawn as often as they are named; no target."""
    full = reference_auroc(runs.curve[1.0], rows, range(3))
    retained = np.mean([reference_auroc(runs.curve[fraction], rows, range(3)) for fraction in (0.1, 0.5)]) / full
    drops = [full - reference_auroc(run, rows, range(3)) for run in runs.degraded.values()]
    proba = softmax(runs.clean.logits[rows].astype(np.float64))
    error = expected_calibration_error(runs.clean.labels[rows], proba)
    return full, error, retained, (max(np.mean(drops), 0) + max(*drops, 0)) / 2


def test_intervals_of_every_axis_and_of_every_gap_are_those_of_repeated_images():
    protocol = with_settings(replicates=8)
    runs = skin(360)
    tables = subgroup_tables(runs, protocol, "skin")
    rng = generator(protocol.salt, "case_bootstrap", "skin")
    counts = np.concatenate(list(group_bootstrap_counts(runs.group_ids, 8, rng)), axis=1)
    drawn = {}
    for group in ("female", "male"):
        rows = runs.columns[0].rows(group)
        drawn[group] = np.array([axes_of(runs, np.repeat(rows, column[rows])) for column in counts.T])
        ends = np.quantile(drawn[group], (0.025, 0.975), axis=0)
        for at, axis in enumerate(AXES):
            found = [value(tables, group, axis, end) for end in ("low", "high")]
            np.testing.assert_allclose(found, ends[:, at], atol=1e-12)
    for at, axis in enumerate(AXES):
        row = gap(tables, axis)
        lower_is_better = axis in ("calibration", "robustness")
        larger, smaller = (row["worst"], row["best"]) if lower_is_better else (row["best"], row["worst"])
        ends = np.quantile(drawn[larger][:, at] - drawn[smaller][:, at], (0.025, 0.975))
        np.testing.assert_allclose((row["low"], row["high"]), ends, atol=1e-12)


def test_the_target_is_resampled_by_its_own_patients():
    protocol = with_settings(replicates=12)
    runs, there = chest(200, everyone=["all"] * 200), chest(160, seed=9, everyone=["all"] * 160)
    there = replace(there, group_ids=np.array([f"t{image // 2}" for image in range(160)]))
    transfer = TransferRuns("multilabel", runs.clean, there.curve[0.5], there.group_ids, there.columns, "chest-b")
    tables = subgroup_tables(replace(runs, transfer=transfer), protocol, "chest")

    def draws(groups, name):
        rng = generator(protocol.salt, "case_bootstrap", name)
        return np.concatenate(list(group_bootstrap_counts(groups, 12, rng)), axis=1).T

    def auroc(run, column):
        rows = np.repeat(np.arange(len(column)), column)
        labels, logits = run.labels[rows], run.logits[rows]
        seen = ~np.isnan(labels)
        return np.mean([roc_auc_score(labels[seen[:, k], k], logits[seen[:, k], k]) for k in range(2)])

    wanted = []
    for own, other in zip(draws(runs.group_ids, "chest"), draws(there.group_ids, "chest-b"), strict=True):
        clean = auroc(runs.clean, own)
        drops = (clean - auroc(runs.degraded["contrast-3"], own), clean - auroc(there.curve[0.5], other))
        wanted.append((2 * max(drops[0], 0) + max(drops[1], 0)) / 3)
    assert value(tables, "all", "robustness", "with_transfer")
    found = [value(tables, "all", "robustness", end) for end in ("low", "high")]
    np.testing.assert_allclose(found, np.quantile(wanted, (0.025, 0.975)), atol=1e-12)


def test_more_images_of_the_same_patients_are_no_more_evidence():
    protocol = with_settings(replicates=300)
    runs = chest(n=120, everyone=["all"] * 120)

    def repeated(own_patients):
        copies = 4
        tag = [f"{group}-{copy}" if own_patients else group for copy in range(copies) for group in runs.group_ids]

        def tile(run):
            return replace(run, labels=np.tile(run.labels, (copies, 1)), logits=np.tile(run.logits, (copies, 1)))

        return replace(
            runs,
            group_ids=np.array(tag),
            columns=columns_of(everyone=["all"] * len(tag)),
            curve={fraction: tile(run) for fraction, run in runs.curve.items()},
            degraded={condition: tile(run) for condition, run in runs.degraded.items()},
        )

    def widths(each):
        tables = subgroup_tables(each, protocol, "chest")
        return [
            value(tables, "all", axis, "high") - value(tables, "all", axis, "low")
            for axis in ("discrimination", "calibration")
        ]

    once, same, more = widths(runs), widths(repeated(own_patients=False)), widths(repeated(own_patients=True))
    np.testing.assert_allclose(same, once, rtol=1e-9)
    # Four times the patients halve the width of an interval.
    assert more[0] < 0.65 * once[0]
    assert more[1] < 0.75 * once[1]
