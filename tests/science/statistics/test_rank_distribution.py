import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from crs_assets.science.statistics import clear_winner, leading_tier, rank_probabilities, top_k_probability

replicates = st.tuples(st.integers(1, 20), st.integers(2, 6)).flatmap(
    lambda shape: hnp.arrays(np.float64, shape, elements=st.integers(0, 3).map(float))
)


def test_ties_share_their_ranks_equally():
    # First: 3 > 2 > 1. Second: the last two tie for ranks 2 and 3.
    probabilities = rank_probabilities([[3, 2, 1], [3, 1, 1]])
    np.testing.assert_array_equal(probabilities, [[1, 0, 0], [0, 0.75, 0.25], [0, 0.25, 0.75]])


def test_a_three_way_tie_for_first_is_a_third_each():
    np.testing.assert_allclose(rank_probabilities([[5, 5, 5, 1]])[:3, :3], np.full((3, 3), 1 / 3))
    np.testing.assert_allclose(top_k_probability([[5, 5, 5, 1]], k=2), [2 / 3, 2 / 3, 2 / 3, 0])


@given(replicates)
@settings(deadline=None)
def test_rows_and_columns_sum_to_one(scores):
    probabilities = rank_probabilities(scores)
    np.testing.assert_allclose(probabilities.sum(axis=0), 1, atol=1e-12)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert top_k_probability(scores, k=2).sum() == pytest.approx(2)


def test_many_replicates_equal_the_mean_over_parts():
    scores = np.random.default_rng(0).normal(size=(9000, 3))
    parts = [rank_probabilities(scores[:4500]), rank_probabilities(scores[4500:])]
    np.testing.assert_allclose(rank_probabilities(scores), np.mean(parts, axis=0), atol=1e-12)


def test_the_leading_tier_is_sure_of_its_place():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(2000, 5)) * 0.1 + [0, 3, 0, 3, 3]
    assert leading_tier(scores) == (1, 3, 4)
    assert leading_tier(scores, k=1) == ()
    assert leading_tier(np.full((10, 3), 0.5), k=3) == (0, 1, 2)


def test_a_winner_beats_everyone_in_pairs():
    rng = np.random.default_rng(2)
    shared = rng.normal(size=(2000, 1))
    # Marginal intervals overlap widely; the paired differences are all near .2.
    scores = shared + [0.0, 0.2, 0.0] + rng.normal(size=(2000, 3)) * 0.02
    assert clear_winner(scores, level=0.95) == 1
    assert clear_winner(shared + rng.normal(size=(2000, 3)) * 0.02, level=0.95) is None
    assert clear_winner(np.ones((50, 2)), level=0.95) is None


def test_input_is_checked():
    with pytest.raises(ValueError, match="NaN"):
        rank_probabilities([[np.nan, 1.0]])
    with pytest.raises(ValueError, match=r"k is 3, expected 1\.\.2"):
        top_k_probability([[0.0, 1.0]], k=3)
    with pytest.raises(ValueError, match="someone to beat"):
        clear_winner([[1.0], [2.0]], level=0.95)
