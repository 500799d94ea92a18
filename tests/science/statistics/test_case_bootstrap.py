import numpy as np
import pytest

from crs_assets.science.metrics import macro_auroc, per_class_auroc
from crs_assets.science.statistics import (
    bootstrap_macro_auroc,
    delong_covariance,
    group_bootstrap_counts,
    paired_auroc_difference_interval,
)


def all_counts(group_ids, replicates, seed, **options):
    return np.concatenate(
        list(group_bootstrap_counts(group_ids, replicates, np.random.default_rng(seed), **options)), axis=1
    )


def patients(n=240, seed=0):
    """Rows of three labels from patients with one to several images each, and two score matrices."""
    rng = np.random.default_rng(seed)
    group_ids = np.array([f"p{index}" for index in rng.integers(0, n // 3, n)])
    y_true = (rng.random((n, 3)) < (0.2, 0.5, 0.7)).astype(float)
    return group_ids, y_true, y_true + rng.normal(size=y_true.shape), y_true + 2 * rng.normal(size=y_true.shape)


def test_rows_of_a_group_are_drawn_together_and_groups_as_often_as_there_are():
    group_ids = np.array(["b", "a", "b", "c", "a"])
    counts = all_counts(group_ids, 200, 0)
    assert counts.shape == (5, 200)
    np.testing.assert_array_equal(counts[0], counts[2])
    np.testing.assert_array_equal(counts[1], counts[4])
    assert (counts[[0, 1, 3]].sum(axis=0) == 3).all()


def test_chunks_and_row_order_change_nothing():
    group_ids = patients()[0]
    counts = all_counts(group_ids, 50, 3)
    for chunk in (1, 7, 50):
        np.testing.assert_array_equal(all_counts(group_ids, 50, 3, chunk=chunk), counts)
    order = np.random.default_rng(1).permutation(len(group_ids))
    np.testing.assert_array_equal(all_counts(group_ids[order], 50, 3), counts[order])


def test_counts_have_the_moments_of_a_multinomial():
    counts = all_counts(np.arange(20), 20_000, 5)
    # Multinomial(20, 1/20): mean 1, variance 20 * .05 * .95 = .95; standard errors below .01.
    np.testing.assert_allclose(counts.mean(axis=1), 1, atol=0.04)
    np.testing.assert_allclose(counts.var(axis=1), 0.95, atol=0.06)


def test_group_ids_must_be_strings_or_integers():
    with pytest.raises(ValueError, match="group_ids is float64"):
        next(group_bootstrap_counts(np.array([0.1, np.nan]), 5, np.random.default_rng(0)))
    with pytest.raises(ValueError, match="replicates is 0"):
        next(group_bootstrap_counts(np.arange(3), 0, np.random.default_rng(0)))


def test_values_equal_the_metric_on_the_repeated_rows():
    group_ids, y_true, first, second = patients()
    result = bootstrap_macro_auroc(
        y_true, [first, second], group_ids=group_ids, replicates=20, rng=np.random.default_rng(9)
    )
    for replicate, drawn in enumerate(all_counts(group_ids, 20, 9).T):
        rows = np.repeat(np.arange(len(drawn)), drawn)
        expected = [macro_auroc(y_true[rows], scores[rows]) for scores in (first, second)]
        np.testing.assert_allclose(result.values[:, replicate], expected, atol=1e-15)
    assert result.degenerate.tolist() == [0, 0, 0]


def test_multiclass_and_class_subset():
    rng = np.random.default_rng(2)
    y_true = rng.integers(0, 4, 200)
    scores = rng.normal(size=(200, 4)) + np.eye(4)[y_true]
    result = bootstrap_macro_auroc(
        y_true, [scores], group_ids=np.arange(200), replicates=5, rng=np.random.default_rng(1), classes=[0, 3]
    )
    rows = np.repeat(np.arange(200), all_counts(np.arange(200), 5, 1)[:, 2])
    expected = per_class_auroc(y_true[rows], scores[rows])[[0, 3]].mean()
    assert result.values[0, 2] == pytest.approx(expected, abs=1e-15)


def test_degenerate_resamples_of_a_label_are_counted_and_spoil_nothing():
    # Label 1 has one positive among 30 groups: it is missing from about (29/30)^30 = 36 % of the resamples.
    rng = np.random.default_rng(0)
    y_true = np.stack([np.arange(30) % 2, np.arange(30) == 4], axis=1).astype(float)
    scores = rng.normal(size=(30, 2))
    result = paired_auroc_difference_interval(
        y_true, scores, -scores, group_ids=np.arange(30), replicates=1000, rng=rng, level=0.95
    )
    assert result.degenerate[0] == 0
    assert 300 < result.degenerate[1] < 420
    assert (result.replicates, result.undefined) == (1000, 0)
    assert np.isfinite([result.lower, result.upper]).all()


def test_no_estimable_label_is_an_error_not_an_interval():
    with pytest.raises(ValueError, match="nothing to compare"):
        paired_auroc_difference_interval(
            [1, 1, 1],
            [0.1, 0.2, 0.3],
            [0.3, 0.2, 0.1],
            group_ids=[0, 1, 2],
            replicates=5,
            rng=np.random.default_rng(0),
            level=0.95,
        )


def test_equal_scores_differ_by_exactly_nothing():
    group_ids, y_true, first, _ = patients()
    result = paired_auroc_difference_interval(
        y_true, first, first**3, group_ids=group_ids, replicates=100, rng=np.random.default_rng(0), level=0.95
    )
    assert (result.difference, result.lower, result.upper) == (0.0, 0.0, 0.0)
    assert not result.excludes_zero


def test_the_interval_agrees_with_delong_for_one_label_and_independent_cases():
    rng = np.random.default_rng(12)
    y_true = (rng.random(600) < 0.4).astype(int)
    common = rng.normal(size=600)
    a, b = (y_true + common + rng.normal(size=600) * spread for spread in (0.5, 1.5))
    result = paired_auroc_difference_interval(
        y_true, a, b, group_ids=np.arange(600), replicates=4000, rng=np.random.default_rng(1), level=0.95
    )
    auroc, covariance = delong_covariance(y_true, np.stack([a, b], axis=1))
    spread = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    assert result.difference == pytest.approx(auroc[0] - auroc[1], abs=1e-14)
    # Normal and percentile intervals of a near-normal statistic: ends within a tenth of the standard error.
    assert result.lower == pytest.approx(result.difference - 1.96 * spread, abs=0.15 * spread)
    assert result.upper == pytest.approx(result.difference + 1.96 * spread, abs=0.15 * spread)
    assert result.excludes_zero


def test_several_images_per_patient_widen_the_interval():
    rng = np.random.default_rng(4)
    once = patients(n=120, seed=4)
    y_true, a, b = (np.repeat(part, 6, axis=0) for part in once[1:])
    copies = np.repeat(np.arange(120), 6)
    widths = []
    for group_ids in (copies, np.arange(720)):
        result = paired_auroc_difference_interval(
            y_true, a, b, group_ids=group_ids, replicates=400, rng=rng, level=0.95
        )
        widths.append(result.upper - result.lower)
    # Six copies of each case carry no information: treating them as cases narrows by about sqrt(6) = 2.4.
    assert 1.8 < widths[0] / widths[1] < 3.2


def test_shapes_must_agree():
    group_ids, y_true, first, second = patients()
    with pytest.raises(ValueError, match="all for the same rows and labels"):
        bootstrap_macro_auroc(y_true, [], group_ids=group_ids, replicates=5, rng=np.random.default_rng(0))
    with pytest.raises(ValueError, match="group_ids has 3 rows, expected 240"):
        bootstrap_macro_auroc(y_true, [first, second], group_ids=[0, 1, 2], replicates=5, rng=np.random.default_rng(0))
