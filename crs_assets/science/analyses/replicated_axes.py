"""The four raw axes of a cell under resampled seeds and test groups.

The draws follow from the protocol's salt and the data set's name, so they are the same for all encoders and seeds.
Replicates are worked off in blocks, which bounds the memory: beside the runs of one seed (``replicated_metrics``) some
20 MB of weights and sums per thread.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.analyses.replicated_metrics import SeedMetrics, SeedReplicates, Weights
from crs_assets.science.metrics.axes import CHANCE_AUROC
from crs_assets.science.protocol import Protocol
from crs_assets.science.seeding import generator
from crs_assets.science.statistics import group_bootstrap_counts, seed_bootstrap_indices
from crs_assets.science.validation import FloatArray, IntArray

_WEIGHTS_AT_ONCE = 1_000_000
"""Weights of a block: 4 MB as float32, small enough to stay near the cache; larger blocks are slower."""
_EXACT_TOTAL = 2**23
"""Totals of counts up to here are exact in float32 when they are doubled."""


@dataclass(frozen=True)
class CaseGroups:
    """Patients or lesions that a test set is resampled by.

    Attributes:
        image_set: The image set, which names its draw.
        groups: Number of groups.
        images: Number of test images.
    """

    image_set: str
    groups: int
    images: int


def seed_draws(n_seeds: int, replicates: int, salt: str) -> IntArray:
    """Positions of the drawn seeds, int64 (replicates, seeds): the same for all encoders and data sets.

    Args:
        n_seeds: Number of seeds.
        replicates: Number of draws; fewer draws are the first of more.
        salt: The protocol's.
    """
    return seed_bootstrap_indices(n_seeds, replicates, generator(salt, "seed_bootstrap"))


def case_draws(cases: Sequence[CaseGroups], replicates: int, salt: str) -> Iterator[list[Weights]]:
    """How often each test group was drawn: the same for all encoders and seeds, and for the comparison with nulls.

    Args:
        cases: Groups of the data set's test images and, where there is one, of the target's; drawn apart.
        replicates: Number of resamples; fewer are the first of more.
        salt: The protocol's.

    Yields:
        Blocks of counts: for each of ``cases`` an array (groups, at most a block).
    """
    width = max(1, min(replicates, _WEIGHTS_AT_ONCE // max(each.groups for each in cases)))
    streams = [
        group_bootstrap_counts(
            np.arange(each.groups), replicates, generator(salt, "case_bootstrap", each.image_set), chunk=width
        )
        for each in cases
    ]
    for block in zip(*streams, strict=True):
        yield [_as_weights(counts, each) for counts, each in zip(block, cases, strict=True)]


def case_metrics(
    runs: SeedReplicates,
    draws: Iterable[Sequence[Weights]],
    *,
    threads: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> SeedMetrics:
    """Metrics of one seed under every resample.

    Args:
        runs: The seed's runs.
        draws: Blocks of weights, as ``case_draws`` yields them.
        threads: Threads that share the work; no result depends on it.
        progress: Told how many resamples of the seed are done.
    """
    found: list[SeedMetrics] = []
    done = 0
    with ThreadPoolExecutor(threads) as pool:
        for weights in draws:
            found.append(runs.evaluate(weights, pool if threads > 1 else None))
            done += weights[0].shape[1]
            progress(done)
    return SeedMetrics(
        curve=np.concatenate([each.curve for each in found]),
        degraded=np.concatenate([each.degraded for each in found]),
        ece=np.concatenate([each.ece for each in found]),
        transfer=np.concatenate([each.transfer for each in found]),
    )


def raw_axes(found: SeedMetrics, reading: Protocol, *, distinct_fractions: bool) -> FloatArray:
    """Raw axes of one seed under R weightings, by the formulas of ``metrics.label_efficiency`` and ``robustness``.

    Args:
        found: Metrics of the seed.
        reading: Whether the axes are read raw or above chance.
        distinct_fractions: False where two label fractions came to the same images.

    Returns:
        float64 (R, 4) in the order of ``protocol.AXES``; NaN where not estimable.
    """
    clean, partial = found.curve[:, -1], found.curve[:, :-1]
    drops, transfer_drop = clean[:, None] - found.degraded, -np.diff(found.transfer, axis=1)
    if reading.axes.form == "raw":
        retained = partial / np.where(clean > 0, clean, np.nan)[:, None]
    else:
        attained = _above_chance(clean, reading)[:, None]
        retained, drops = (partial - CHANCE_AUROC) / attained, drops / attained
        transfer_drop = transfer_drop / _above_chance(found.transfer[:, :1], reading)
    parts = np.column_stack([drops.mean(axis=1), drops.max(axis=1), transfer_drop])
    efficiency = retained.mean(axis=1) if distinct_fractions else np.full(len(clean), np.nan)
    return np.column_stack([clean, found.ece, efficiency, np.maximum(parts, 0.0).mean(axis=1)])


def nested_means(per_seed: FloatArray, drawn: IntArray) -> FloatArray:
    """Mean over the drawn seeds of each replicate, every replicate with its own resample of the test groups.

    Args:
        per_seed: Axes of each seed under each resample, (seeds, R, 4).
        drawn: Positions of the drawn seeds, (R or more, seeds); the first R are taken.

    Returns:
        float64 (R, 4); NaN where a drawn seed's is.
    """
    replicates = np.arange(per_seed.shape[1])[:, None]
    means: FloatArray = per_seed[drawn[: len(replicates)], replicates].mean(axis=1)
    return means


def _above_chance(auroc: FloatArray, reading: Protocol) -> FloatArray:
    return np.where(auroc >= reading.metrics.skill_min_auroc, auroc - CHANCE_AUROC, np.nan)


def _as_weights(counts: NDArray[np.int32], cases: CaseGroups) -> Weights:
    """Counts as float32, which is twice as fast, wherever every sum of them is exact in it."""
    if int(counts.max(initial=0)) * cases.images <= _EXACT_TOTAL:
        return counts.astype(np.float32)
    return counts.astype(np.float64)
