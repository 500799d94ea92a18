import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science import metrics
from crs_assets.science.analyses import replicated_axes
from crs_assets.science.analyses.replicated_axes import (
    CaseGroups,
    case_draws,
    case_metrics,
    nested_means,
    raw_axes,
    seed_draws,
)
from crs_assets.science.analyses.replicated_metrics import ResampledRun, SeedMetrics, SeedReplicates, SeedRuns
from crs_assets.science.evaluation import Scored
from crs_assets.science.protocol import load_protocol
from crs_assets.science.seeding import generator
from crs_assets.science.statistics import group_bootstrap_counts

READINGS = [load_protocol("crs-v1"), load_protocol("crs-v1-skill")]
SKIN = CaseGroups("skin", 40, 60)


def found_metrics(seed, n=4, *, target=True, hole=False):
    rng = np.random.default_rng(seed)
    aurocs = rng.uniform(0.5, 1.0, (n, 7))
    if hole:
        aurocs[0, rng.integers(7)] = np.nan
    return SeedMetrics(aurocs[:, :3], aurocs[:, 3:5], rng.random(n) / 4, aurocs[:, 5:] if target else aurocs[:, 7:])


@given(seed=st.integers(0, 10_000), target=st.booleans(), hole=st.booleans(), reading=st.sampled_from(READINGS))
@settings(max_examples=60, deadline=None)
def test_axes_are_those_of_the_metrics_one_replicate_at_a_time(seed, target, hole, reading):
    found = found_metrics(seed, target=target, hole=hole)
    options = {"form": reading.axes.form, "skill_min_auroc": reading.metrics.skill_min_auroc}
    for at, row in enumerate(raw_axes(found, reading, distinct_fractions=True)):
        curve, degraded = found.curve[at].tolist(), found.degraded[at].tolist()
        pair = tuple(found.transfer[at]) if target else None
        efficiency = metrics.label_efficiency(curve[:-1], curve[-1], **options)
        robustness = metrics.robustness(curve[-1], degraded, source_and_target=pair, **options).value
        np.testing.assert_allclose(row, [curve[-1], found.ece[at], efficiency, robustness], rtol=0, atol=1e-15)


def test_equal_label_fractions_give_no_label_efficiency():
    axes = raw_axes(found_metrics(1), READINGS[0], distinct_fractions=False)
    assert np.isnan(axes[:, 2]).all()
    assert np.isfinite(axes[:, [0, 1, 3]]).all()


def blocks(cases, replicates, salt="s"):
    return [np.concatenate(parts, axis=1) for parts in zip(*case_draws(cases, replicates, salt), strict=True)]


def test_draws_are_those_of_the_patients_names_whatever_the_block(monkeypatch):
    names = np.random.default_rng(0).permutation([f"p{at}" for at in range(40)] * 2)
    _, groups = np.unique(names, return_inverse=True)
    by_name = np.concatenate(list(group_bootstrap_counts(names, 30, generator("s", "case_bootstrap", "skin"))), axis=1)
    (whole,) = blocks([SKIN], 30)
    np.testing.assert_array_equal(whole[groups], by_name)
    monkeypatch.setattr(replicated_axes, "_WEIGHTS_AT_ONCE", 7 * 40)
    np.testing.assert_array_equal(blocks([SKIN], 30)[0], whole)
    # A shorter series is the beginning of a longer one.
    np.testing.assert_array_equal(blocks([SKIN], 11)[0], whole[:, :11])


def test_image_sets_are_drawn_apart_and_in_step():
    chest, target = CaseGroups("chest", 40, 60), CaseGroups("chest-b", 300, 900)
    own, other = blocks([chest, target], 25)
    assert (own.shape, other.shape) == ((40, 25), (300, 25))
    assert (own.sum(axis=0) == 40).all()
    assert (other.sum(axis=0) == 300).all()
    np.testing.assert_array_equal(blocks([target], 25)[0], other)
    assert not np.array_equal(blocks([SKIN], 25)[0], own)


def test_weights_are_float32_only_while_their_sums_are_exact():
    assert next(case_draws([SKIN], 3, "s"))[0].dtype == np.float32
    # 40 groups of 500,000 images: a count of 2 and more gives totals beyond 2**24.
    crowded = CaseGroups("skin", 40, 20_000_000)
    assert next(case_draws([crowded], 3, "s"))[0].dtype == np.float64


def test_seed_draws_are_multisets_of_positions():
    drawn = seed_draws(5, 400, "s")
    assert drawn.shape == (400, 5)
    assert set(np.unique(drawn)) == set(range(5))
    assert (np.diff(drawn, axis=1) >= 0).all()
    np.testing.assert_array_equal(seed_draws(5, 90, "s"), drawn[:90])


def test_each_replicate_averages_its_drawn_seeds_under_its_own_weights():
    per_seed = np.arange(2 * 3 * 4, dtype=float).reshape(2, 3, 4)
    # Seed 0 holds 0..11 and seed 1 12..23: replicate 0 draws seed 0 twice, 1 both, 2 seed 1 twice.
    drawn = np.array([[0, 0], [0, 1], [1, 1], [0, 0]])
    np.testing.assert_array_equal(nested_means(per_seed, drawn), [[0, 1, 2, 3], [10, 11, 12, 13], [20, 21, 22, 23]])


def test_several_images_per_patient_widen_the_spread():
    rng = np.random.default_rng(4)
    labels = np.repeat((rng.random((80, 2)) < 0.4).astype(np.float32), 5, axis=0)
    logits = np.repeat(rng.normal(size=(80, 2)) + labels[::5], 5, axis=0).astype(np.float32)
    spread = []
    for groups in (np.repeat(np.arange(80), 5), np.arange(400)):
        run = ResampledRun(Scored(labels, logits, (0, 1)), "multilabel", groups)
        count = int(groups.max()) + 1
        runs = SeedReplicates(SeedRuns((run, run), (run,)), 15, [count])
        seen = []
        found = case_metrics(runs, case_draws([CaseGroups("skin", count, 400)], 600, "s"), progress=seen.append)
        spread.append(found.curve[:, -1].std())
        assert seen[-1] == 600
    # Five copies of a case are one case: taken for five they narrow by sqrt(5) = 2.2.
    assert spread[0] / spread[1] == pytest.approx(np.sqrt(5), rel=0.15)


def test_ten_thousand_replicates_are_worked_off_in_bounded_blocks():
    # 40,000 patients, as in the largest chest set: weights of all replicates at once would take 1.6 GB.
    crowded, target = CaseGroups("chest", 40_000, 40_000), CaseGroups("chest-b", 500, 900)
    stream = case_draws([crowded, target], 10_000, "s")
    for own, other in (next(stream), next(stream)):
        assert own.size <= replicated_axes._WEIGHTS_AT_ONCE
        assert own.nbytes <= 4_000_000
        assert other.shape[1] == own.shape[1] >= 20
