import numpy as np
import pytest

from crs_assets.science.statistics import delong_covariance, delong_variance


def by_all_pairs(y_true, scores):
    """DeLong's structural components from the full kernel, O(m n)."""
    kernels = []
    for column in scores.T:
        above, below = column[y_true == 1][:, None], column[y_true == 0][None, :]
        kernels.append((above > below) + 0.5 * (above == below))
    v10 = np.stack([kernel.mean(axis=1) for kernel in kernels])
    v01 = np.stack([kernel.mean(axis=0) for kernel in kernels])
    return v10.mean(axis=1), np.cov(v10) / v10.shape[1] + np.cov(v01) / v01.shape[1]


def test_matches_the_definition_with_ties():
    rng = np.random.default_rng(0)
    y_true = (rng.random(150) < 0.3).astype(int)
    scores = np.round(rng.normal(size=(150, 3)) + y_true[:, None] * [0.3, 1.0, 2.0], 1)
    auroc, covariance = by_all_pairs(y_true, scores)
    estimate = delong_covariance(y_true, scores)
    np.testing.assert_allclose(estimate.auroc, auroc, atol=1e-14)
    np.testing.assert_allclose(estimate.covariance, covariance, atol=1e-15)
    value, variance = delong_variance(y_true, scores[:, 1])
    assert (value, variance) == (pytest.approx(auroc[1]), pytest.approx(covariance[1, 1]))


def test_by_hand():
    # Positives 3, 1; negatives 2, 0. Shares of negatives below: 1, .5 -> AUROC .75, variance .125.
    # Shares of positives above 2 and 0: .5, 1 -> variance .125. Together .125 / 2 + .125 / 2 = .125.
    assert delong_variance([1, 1, 0, 0], [3, 1, 2, 0]) == (0.75, 0.125)


def test_perfect_separation_is_exactly_one_without_variance():
    assert delong_variance(np.arange(700) >= 300, np.arange(700) / 7) == (1.0, 0.0)


def test_too_few_cases_and_masked_cases_are_refused():
    with pytest.raises(ValueError, match="1 positives and 2 negatives, expected at least 2 of each"):
        delong_variance([1, 0, 0], [0.1, 0.2, 0.3])
    with pytest.raises(ValueError, match="every case observed"):
        delong_variance([1, 0, np.nan], [0.1, 0.2, 0.3])
