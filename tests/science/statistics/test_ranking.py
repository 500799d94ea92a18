import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau, spearmanr

from crs_assets.science.statistics import rank_agreement

PUBLISHED_CRS_RANKS = [3, 2, 4, 1, 11, 9, 6, 7, 8, 10, 5, 12, 15, 14, 13]
"""CRS ranks of the fifteen encoders of the preprint CRS-Bench, in the order of their AUROC ranks 1..15."""

scores = st.integers(2, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 6).map(float), min_size=n, max_size=n)] * 2)
)


def test_published_ranks_give_the_published_agreement():
    result = rank_agreement(-np.arange(1, 16), -np.array(PUBLISHED_CRS_RANKS))
    assert round(result.kendall_tau, 3) == 0.600
    assert round(result.spearman_rho, 3) == 0.811
    assert (result.reversed_pairs, result.pairs, result.tied_pairs) == (21, 105, 0)
    assert round(result.mean_displacement, 2) == 1.87
    assert round(result.top_k_overlap, 3) == 0.667
    # Moves the preprint names: 11th to 5th, 5th to 11th, 4th to 1st, 6th to 9th.
    assert [result.moves[rank - 1] for rank in (11, 5, 4, 6)] == [6.0, -6.0, 3.0, -3.0]


def test_ties_by_hand():
    # a: 3 2 2 1 (ranks 1, 2.5, 2.5, 4); b: 3 1 2 2 (ranks 1, 4, 2.5, 2.5).
    # Pairs: (0,1) + (0,2) + (0,3) + concordant; (1,2) tied in a; (2,3) tied in b; (1,3) 2 > 1 against 1 < 2: reversed.
    result = rank_agreement([3, 2, 2, 1], [3, 1, 2, 2], k=2)
    assert (result.reversed_pairs, result.tied_pairs, result.pairs) == (1, 2, 6)
    # tau-b = (3 - 1) / sqrt(5 * 5).
    assert result.kendall_tau == pytest.approx(0.4)
    assert result.moves == (0.0, -1.5, 0.0, 1.5)
    assert result.mean_displacement == 0.75
    # Border ties by position: a's top 2 is {0, 1}, b's is {0, 2}.
    assert result.top_k_overlap == 0.5
    assert result.is_top_k_tied


def test_border_ties_follow_ids_when_given():
    by_id = rank_agreement([3, 2, 2, 1], [4, 1, 3, 2], k=2, ids=["d", "c", "b", "a"])
    assert by_id.top_k_overlap == 1.0  # c and b tie in a; b comes first; b's top 2 is d, b as well
    assert by_id.is_top_k_tied
    assert not rank_agreement([3, 2, 2, 1], [4, 1, 3, 2], k=3).is_top_k_tied


@given(scores)
@settings(deadline=None)
def test_matches_scipy_and_is_symmetric(case):
    a, b = case
    result = rank_agreement(a, b, k=1)
    if len(set(a)) > 1 and len(set(b)) > 1:
        assert result.kendall_tau == pytest.approx(kendalltau(a, b).statistic, abs=1e-12)
        assert result.spearman_rho == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)
    else:
        assert np.isnan(result.kendall_tau)
        assert np.isnan(result.spearman_rho)
    other = rank_agreement(b, a, k=1)
    assert (other.reversed_pairs, other.tied_pairs) == (result.reversed_pairs, result.tied_pairs)
    assert other.moves == tuple(-move for move in result.moves)


@given(st.lists(st.integers(-50, 50), min_size=2, max_size=10, unique=True))
def test_identity_and_reversal(values):
    same = rank_agreement(values, values, k=2)
    assert (same.kendall_tau, same.reversed_pairs, same.mean_displacement, same.top_k_overlap) == (
        pytest.approx(1.0),
        0,
        0.0,
        1.0,
    )
    opposite = rank_agreement(values, [-value for value in values], k=1)
    assert opposite.reversed_pairs == opposite.pairs
    assert opposite.spearman_rho == pytest.approx(-1.0)


def test_input_is_checked():
    with pytest.raises(ValueError, match="scores_b: 1 of 3 values are NaN"):
        rank_agreement([1, 2, 3], [1, np.nan, 3])
    with pytest.raises(ValueError, match="got 3 and 2 scores"):
        rank_agreement([1, 2, 3], [1, 2])
    with pytest.raises(ValueError, match="at least 2"):
        rank_agreement([1], [1], k=1)
    with pytest.raises(ValueError, match=r"k is 3, expected 1\.\.2"):
        rank_agreement([1, 2], [1, 2])
    with pytest.raises(ValueError, match="ids repeat"):
        rank_agreement([1, 2], [1, 2], k=1, ids=["a", "a"])
