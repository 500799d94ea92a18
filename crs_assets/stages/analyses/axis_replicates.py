"""The stage of resampled axes: what everything that is said about the uncertainty of a cell rests on."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.replicated_axes import nested_means, raw_axes
from crs_assets.science.analyses.replicated_metrics import SeedMetrics
from crs_assets.science.analyses.uncertainty import CASE, SEED
from crs_assets.science.protocol import AXES, Protocol
from crs_assets.science.suite import task_key
from crs_assets.science.validation import BoolArray, FloatArray
from crs_assets.stages.analyses.resampled_cell import ResampledCell, ResampledSeed
from crs_assets.stages.probes import RunMetrics
from crs_assets.stages.progress import Progress, report
from crs_assets.stages.stage import Built, Stage

REPLICATES_FILE = "replicates.parquet"
DEGENERATE_FILE = "degenerate.parquet"
DELONG_FILE = "delong.parquet"

DELONG_SCHEMA = {
    "seed": pl.Int64,
    "class": pl.Utf8,
    "auroc": pl.Float64,
    "standard_error": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}


class AxisReplicates(Stage):
    """Raw axes of an encoder on a data set under resampled seeds, and under resampled seeds and test groups."""

    name = "axis_replicates"
    code_version = "1"
    libraries = ("numpy", "scipy")
    keeps_old_versions = False

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every existing (encoder, data set)."""
        return (
            (encoder, dataset) for encoder in bench.suite.encoders for dataset in bench.suite.existing_datasets(encoder)
        )

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Run metrics, which name predictions, labels and groups; how axes are read; the draws."""
        encoder, dataset = parts
        protocol = bench.suite.protocol
        runs = {
            str(seed): RunMetrics().version(bench, encoder, task_key(dataset, seed)) for seed in protocol.data.seeds
        }
        if any(version is None for version in runs.values()):
            return None
        return {
            "runs": runs,
            "readings": {
                reading.id: [reading.axes.form, reading.metrics.skill_min_auroc] for reading in bench.suite.readings
            },
            "ece_bins": protocol.metrics.ece_bins,
            "statistics": protocol.statistics.model_dump(mode="json"),
            "case_replicates": protocol.analyses.uncertainty.case_replicates,
            "salt": protocol.salt,
        }

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Evaluate every run of every seed under the same resamples, and put the axes together."""
        encoder, dataset = parts
        began = time.perf_counter()
        cell = ResampledCell.open(bench, encoder, dataset)
        seeds = [cell.resampled(seed, self._progress(parts, at, cell)) for at, seed in enumerate(cell.seeds)]
        lacking = cell.lacking()
        frames = [_frame(reading, cell, seeds, lacking) for reading in bench.suite.readings]
        pl.concat(frames).write_parquet(staging.path(REPLICATES_FILE))
        degenerate = cell.degenerate(lacking)
        degenerate.write_parquet(staging.path(DEGENERATE_FILE))
        delong = pl.DataFrame([row for seed in seeds for row in seed.delong], schema=DELONG_SCHEMA)
        delong.write_parquet(staging.path(DELONG_FILE))
        seconds = time.perf_counter() - began
        return Built(
            {
                "seed_replicates": cell.seed_replicates,
                "case_replicates": cell.replicates,
                "degenerate_resamples": int(lacking.any(axis=0).sum()),
                "delong": delong.height > 0,
            },
            timing={"seconds": seconds, "replicates_per_second": cell.replicates / seconds},
        )

    def _progress(self, parts: tuple[str, ...], at: int, cell: "ResampledCell") -> Callable[[int], None]:
        began, total = time.perf_counter(), len(cell.seeds) * cell.replicates

        def progress(done: int) -> None:
            rate = done / max(time.perf_counter() - began, 1e-9)
            report(Progress(self.name, parts, at * cell.replicates + done, total, "resamples", rate))

        return progress


def _frame(reading: Protocol, cell: ResampledCell, seeds: Sequence[ResampledSeed], lacking: BoolArray) -> pl.DataFrame:
    def axes(which: Callable[[ResampledSeed], SeedMetrics]) -> FloatArray:
        return np.stack([raw_axes(which(s), reading, distinct_fractions=s.distinct_fractions) for s in seeds])

    published = axes(lambda seed: seed.published)
    of_seeds = nested_means(np.broadcast_to(published, (len(seeds), cell.seed_replicates, len(AXES))), cell.drawn)
    nested = nested_means(axes(lambda seed: seed.resampled), cell.drawn)
    tables = {SEED: (of_seeds, np.zeros(len(of_seeds), dtype=np.bool_)), CASE: (nested, lacking.any(axis=0))}
    return pl.concat(
        pl.DataFrame(
            {
                "reading": [reading.id] * len(values),
                "kind": [kind] * len(values),
                "replicate": np.arange(len(values), dtype=np.int32),
                **dict(zip(AXES, values.T, strict=True)),
                "lacking": flags,
            }
        )
        for kind, (values, flags) in tables.items()
    )
