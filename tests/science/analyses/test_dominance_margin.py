"""Dominance beyond the paired interval: by hand, and as strict dominance where nothing is uncertain."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science.analyses.dominance_margin import dominates_beyond, margin_dominance, score_with_dominance
from crs_assets.science.protocol import ScoreWeights
from crs_assets.science.scoring import reliability_score

WEIGHTS = ScoreWeights(dominance=0.6, closeness=0.25, worst_axis=0.15)
# 41 resamples of a difference of d: d - 0.20, ..., d + 0.20; the 95 % interval is d -/+ 0.19.
SPREAD = np.linspace(-0.2, 0.2, 41)


def profile(*differences, noise=0.0):
    """Axes that differ from .5 by so much on average, each resample by the spread beside it."""
    z = np.tile(0.5 + np.array(differences), (len(SPREAD), 1))
    return z + noise * SPREAD[:, None]


PEER = profile(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("differences", "dominates"),
    [
        # Better on one axis by more than the interval is wide, no worse on the others beyond it.
        ((0.20, -0.10, 0.0, 0.0), True),
        # Better on every axis, on none beyond its interval.
        ((0.18, 0.18, 0.18, 0.18), False),
        # Better on three, worse on one, all beyond.
        ((0.20, 0.20, 0.20, -0.20), False),
        # Worse on one axis, but not beyond.
        ((0.20, 0.20, 0.20, -0.18), True),
        ((0.0, 0.0, 0.0, 0.0), False),
    ],
)
def test_an_axis_counts_only_beyond_its_interval(differences, dominates):
    assert dominates_beyond(profile(*differences, noise=1.0), PEER, level=0.95) is dominates


def test_draws_are_paired():
    # Both move together from resample to resample: their difference is certain, though each of them is not.
    together = dominates_beyond(profile(0.01, 0, 0, 0, noise=1.0), profile(0, 0, 0, 0, noise=1.0), level=0.95)
    apart = dominates_beyond(profile(0.01, 0, 0, 0, noise=1.0), profile(0, 0, 0, 0, noise=-1.0), level=0.95)
    assert (together, apart) == (True, False)


@settings(deadline=None)
@given(seed=st.integers(0, 10_000))
def test_without_uncertainty_it_is_the_published_dominance(seed):
    rng = np.random.default_rng(seed)
    z, peers = rng.integers(0, 4, 4) / 3, rng.integers(0, 4, (5, 4)) / 3
    found = margin_dominance(np.tile(z, (7, 1)), [np.tile(peer, (7, 1)) for peer in peers], level=0.95)
    assert found == reliability_score(z, peers, weights=WEIGHTS).dominance


def test_resamples_without_a_value_are_left_out_and_an_axis_without_any_decides_nothing():
    mine = profile(0.2, 0, 0, 0)
    mine[3, 0] = np.nan
    assert dominates_beyond(mine, PEER, level=0.95) is True
    mine[:, 1] = np.nan
    assert dominates_beyond(mine, PEER, level=0.95) is None
    assert margin_dominance(mine, [PEER, PEER], level=0.95) is None


def test_the_share_is_over_all_peers():
    mine = profile(0.2, 0, 0, 0)
    better, worse = profile(0.1, 0, 0, 0), profile(0.3, 0, 0, 0)
    assert margin_dominance(mine, [better, worse, PEER, better], level=0.95) == 0.75


def test_the_other_terms_of_the_score_stay():
    assert score_with_dominance(0.5, 0.8, 0.4, WEIGHTS) == pytest.approx(0.6 * 0.5 + 0.25 * 0.8 + 0.15 * 0.4, abs=1e-15)
    z, peers = np.array([0.9, 0.8, 0.7, 0.6]), np.array([[0.8, 0.7, 0.6, 0.5], [0.9, 0.9, 0.9, 0.9]])
    score = reliability_score(z, peers, weights=WEIGHTS)
    assert score_with_dominance(score.dominance, score.closeness, score.worst_axis, WEIGHTS) == score.crs
