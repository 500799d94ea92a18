"""An encoder's predictions on a data set, resampled: from the store to metrics under every draw."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.delong_intervals import delong_intervals
from crs_assets.science.analyses.replicated_axes import (
    CaseGroups,
    case_draws,
    case_metrics,
    raw_axes,
    seed_draws,
)
from crs_assets.science.analyses.replicated_metrics import (
    ResampledRun,
    SeedMetrics,
    SeedReplicates,
    SeedRuns,
    Weights,
    lacking_labels,
)
from crs_assets.science.profiles import seed_axes
from crs_assets.science.protocol import AXES, CLEAN, TRANSFER
from crs_assets.science.splits import TEST
from crs_assets.science.suite import task_key
from crs_assets.science.validation import BoolArray, IntArray
from crs_assets.stages.data import read_fractions, read_index
from crs_assets.stages.encoders import usable_rows
from crs_assets.stages.probes import PREDICTIONS_FILE, ProbePredictions, read_runs
from crs_assets.stages.run_scorer import TARGET, RunScorer
from crs_assets.stages.stage import RefusedError

# Metrics of the same predictions, computed twice: they differ by rounding or not at all.
_SAME = 1e-9


@dataclass(frozen=True, eq=False)
class ResampledSeed:
    """One seed of a cell.

    Attributes:
        published: Metrics on the test set as it is, one replicate.
        resampled: Metrics under every resample of the test groups.
        distinct_fractions: False where two label fractions came to the same images.
        delong: Rows of ``delong_intervals`` with their ``seed``, of the clean run at all labels.
    """

    published: SeedMetrics
    resampled: SeedMetrics
    distinct_fractions: bool
    delong: list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class ResampledCell:
    """An encoder's predictions on a data set, and the draws that its test groups are resampled by.

    Attributes:
        bench: The suite and its store.
        encoder: The encoder.
        dataset: The data set.
        scorer: Labels and scored classes; the same for every seed.
        cases: Groups of the data set's test images and, where there is one, of the target's.
        positions: For each of ``cases``: image id -> position of its group.
        drawn: Positions of the drawn seeds, (replicates, seeds).
    """

    bench: Bench
    encoder: str
    dataset: str
    scorer: RunScorer
    cases: tuple[CaseGroups, ...]
    positions: tuple[dict[str, int], ...]
    drawn: IntArray

    @classmethod
    def open(cls, bench: Bench, encoder: str, dataset: str) -> "ResampledCell":
        """Read groups and labels, and draw the seeds."""
        protocol, target = bench.suite.protocol, bench.suite.target_of(dataset)
        indexes = {dataset: usable_rows(read_index(bench, dataset)).filter("is_test")}
        if target:
            indexes[target] = usable_rows(read_index(bench, target))
        cases, positions = zip(*(_case_groups(name, index) for name, index in indexes.items()), strict=True)
        seeds = protocol.data.seeds
        longest = max(protocol.statistics.replicates, protocol.analyses.uncertainty.case_replicates)
        return cls(
            bench=bench,
            encoder=encoder,
            dataset=dataset,
            scorer=RunScorer.open(bench, dataset, seeds[0]),
            cases=cases,
            positions=positions,
            drawn=seed_draws(len(seeds), longest, protocol.salt),
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        """The protocol's seeds."""
        return self.bench.suite.protocol.data.seeds

    @property
    def seed_replicates(self) -> int:
        """Draws of seeds with the test set as it is."""
        return self.bench.suite.protocol.statistics.replicates

    @property
    def replicates(self) -> int:
        """Resamples of the test groups."""
        return self.bench.suite.protocol.analyses.uncertainty.case_replicates

    def resampled(self, seed: int, progress: Callable[[int], None]) -> ResampledSeed:
        """Evaluate the runs of one seed as they are and under every resample.

        Args:
            seed: The seed.
            progress: Told how many resamples are done.

        Raises:
            RefusedError: If the stored predictions do not give the published axes.
        """
        protocol = self.bench.suite.protocol
        runs = self._read(seed)
        sorted_runs = SeedReplicates(runs, protocol.metrics.ece_bins, [case.groups for case in self.cases])
        published = sorted_runs.evaluate([np.ones((case.groups, 1)) for case in self.cases])
        distinct = read_fractions(self.bench, self.dataset, seed)["n_fit"].is_unique().all()
        self._check(seed, published, distinct_fractions=distinct)
        resampled = case_metrics(sorted_runs, self._draws(), threads=self.bench.compute.threads, progress=progress)
        names = self.scorer.space.classes
        delong = delong_intervals(runs.curve[-1], names, level=protocol.statistics.interval)
        return ResampledSeed(published, resampled, distinct, [{"seed": seed, **row} for row in delong])

    def lacking(self) -> BoolArray:
        """Which scored classes lack a sign under each resample, bool (rows of ``degenerate``, R)."""
        sides = self._sides()
        found = [
            np.concatenate([lacking_labels(s.labels, s.classes, s.groups, block[s.case]) for s in sides])
            for block in self._draws()
        ]
        return np.concatenate(found, axis=1)

    def degenerate(self, lacking: BoolArray) -> pl.DataFrame:
        """How many resamples each scored class was left out of: ``image_set``, ``class``, ``replicates``."""
        rows = [(self.cases[side.case].image_set, side.names[k]) for side in self._sides() for k in side.classes]
        return pl.DataFrame(
            {
                "image_set": [image_set for image_set, _ in rows],
                "class": [name for _, name in rows],
                "replicates": lacking.sum(axis=1),
            },
            schema={"image_set": pl.Utf8, "class": pl.Utf8, "replicates": pl.Int64},
        )

    def _sides(self) -> list["_Side"]:
        """The data set with its classes and, where there is a target, with what is derived from them; the target."""
        scorer, names = self.scorer, tuple(self.scorer.space.classes)
        sides = [self._side(0, self.dataset, names, scorer.classes)]
        if len(self.cases) > 1:
            at_target = tuple(scorer.target_space.classes)
            scored = {names[k] for k in scorer.classes}
            derived = [k for k in scorer.target_classes if at_target[k] not in scored]
            sides.append(self._side(0, TRANSFER, at_target, derived))
            sides.append(self._side(1, TARGET, at_target, scorer.target_classes))
        return sides

    def _side(self, case: int, labels: str, names: tuple[str, ...], classes: Sequence[int]) -> "_Side":
        positions, rows = self.positions[case], self.scorer.positions[TARGET if case else self.dataset]
        of_images = self.scorer.labels[labels][[rows[name] for name in positions]]
        return _Side(case, of_images, names, classes, np.array(list(positions.values()), dtype=np.int64))

    def _draws(self) -> Iterator[Sequence[Weights]]:
        return case_draws(self.cases, self.replicates, self.bench.suite.protocol.salt)

    def _read(self, seed: int) -> SeedRuns:
        protocol = self.bench.suite.protocol
        key = self.bench.key(ProbePredictions.name, self.encoder, task_key(self.dataset, seed))
        scan = pl.scan_parquet(self.bench.store.open(key).file(PREDICTIONS_FILE))
        frames = (
            scan.filter(pl.col("role").is_in([TEST, TARGET]))
            .collect()
            .partition_by("fraction", "condition", as_dict=True)
        )
        full = protocol.data.fractions[-1]
        return SeedRuns(
            curve=tuple(self._run(frames[fraction, CLEAN], CLEAN) for fraction in protocol.data.fractions),
            degraded=tuple(self._run(frames[full, c.name], c.name) for c in protocol.degradations()),
            source=self._source(frames[full, CLEAN]) if len(self.cases) > 1 else None,
            target=self._run(frames[full, TRANSFER], TRANSFER) if len(self.cases) > 1 else None,
        )

    def _run(self, frame: pl.DataFrame, condition: str) -> ResampledRun:
        scored = self.scorer.read(frame["image_id"], frame["logits"].to_numpy(), condition)
        task = self.scorer.space_of(condition).task
        return ResampledRun(scored, task, _at(self.positions[condition == TRANSFER], frame))

    def _source(self, frame: pl.DataFrame) -> ResampledRun:
        scored = self.scorer.read_source(frame["image_id"], frame["logits"].to_numpy())
        return ResampledRun(scored, self.scorer.target_space.task, _at(self.positions[0], frame))

    def _check(self, seed: int, published: SeedMetrics, *, distinct_fractions: bool) -> None:
        """Refuse replicates of anything but the published axes."""
        runs = read_runs(self.bench, self.encoder, task_key(self.dataset, seed))
        for reading in self.bench.suite.readings:
            expected = seed_axes(runs, reading, distinct_fractions=distinct_fractions).raw
            (found,) = raw_axes(published, reading, distinct_fractions=distinct_fractions)
            if not np.allclose(found, [expected[axis] for axis in AXES], rtol=0, atol=_SAME, equal_nan=True):
                raise RefusedError(
                    f"{self.encoder} on {self.dataset}, seed {seed}: the stored predictions give other axes than the "
                    "stored run metrics; make probe_predictions and run_metrics of this cell again."
                )


class _Side(NamedTuple):
    """Labels of the images that are resampled, under the names that they are scored by."""

    case: int
    labels: NDArray[Any]
    names: tuple[str, ...]
    classes: Sequence[int]
    groups: IntArray


def _case_groups(image_set: str, index: pl.DataFrame) -> tuple[CaseGroups, dict[str, int]]:
    """Groups of an image set, and the position of each image's among them."""
    names, groups = np.unique(index["group_id"].to_numpy().astype(str), return_inverse=True)
    positions = dict(zip(index["image_id"], groups.tolist(), strict=True))
    return CaseGroups(image_set, len(names), index.height), positions


def _at(positions: dict[str, int], frame: pl.DataFrame) -> IntArray:
    return np.array([positions[name] for name in frame["image_id"]], dtype=np.int64)
