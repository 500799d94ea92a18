"""Depth sweep: features after shares of an encoder's blocks in one clean pass, and linear probes of each."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.depth_sweep import FULL, choose_depth, chosen_log_loss
from crs_assets.science.encoders.depths import Depth, read_at_depths, sweep_depths, why_no_depths
from crs_assets.science.probing import fit_probe, prediction_frame
from crs_assets.science.protocol import CLEAN, protocol_part
from crs_assets.science.splits import TEST
from crs_assets.science.suite import parse_task
from crs_assets.science.transfer import fitted_labels
from crs_assets.stages.data import DatasetIndex, Splits, read_index
from crs_assets.stages.encoders import (
    EncoderWeights,
    Encoding,
    Features,
    built_features,
    encode_rows,
    encoding_inputs,
    ready_encoder,
    usable_rows,
)
from crs_assets.stages.feature_files import open_features, write_features
from crs_assets.stages.image_source import clean_images
from crs_assets.stages.probes import (
    FITS_FILE,
    RUNS_FILE,
    ProbeStage,
    all_there,
    finite,
    fit_rows,
    open_task,
    run_constants,
)
from crs_assets.stages.progress import Progress, report
from crs_assets.stages.run_scorer import RunScorer
from crs_assets.stages.stage import Built

# One clean run at all labels: what would be the same in every row.
_OF_OTHER_RUNS = ("fraction", "condition", "floor", "auroc_source", "target_index")

Float32 = NDArray[np.float32]


class DepthFeatures(Encoding):
    """Clean embeddings of every usable image after shares of the encoder's blocks, from one pass; beside the score."""

    name = "depth_features"
    code_version = "1"
    libraries = Features.libraries
    keeps_old_versions = False

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every existing (encoder, data set) whose encoder has more than one depth."""
        return (parts for parts in Features().partitions(bench) if self.left_out(bench, *parts) is None)

    def left_out(self, bench: Bench, *parts: str) -> str | None:
        """An encoder without blocks, or a transfer target, which nothing is fitted on."""
        encoder, image_set = parts
        if image_set in bench.suite.targets:
            return "no probe is fitted on a transfer target"
        return _why_no_depths(bench, encoder)

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """What the encoder's own features depend on, and where else it is read."""
        inputs = encoding_inputs(bench, *parts)
        if inputs is None:
            return None
        return {**inputs, "depths": [[depth.share, depth.block] for depth in depths_of(bench, parts[0])]}

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Encode in index order, chunk by chunk; one file per depth."""
        encoder, dataset = parts
        rows = usable_rows(read_index(bench, dataset))
        ids, load = rows["image_id"].to_list(), clean_images(bench, encoder, dataset, rows)
        with read_at_depths(ready_encoder(bench, encoder), depths_of(bench, encoder)) as layered:
            encoded, timing = encode_rows(bench, staging, layered, self.name, parts, ids, load, [CLEAN])
        built = built_features(encoded, timing)
        for depth, features in zip(layered.depths, layered.split(encoded[:, 0, :]), strict=True):
            write_features(staging.path(_depth_file(depth)), ids, features)
        depths = [
            {"share": depth.share, "block": depth.block, "pool": depth.pool, "dim": dim}
            for depth, dim in zip(layered.depths, layered.dims, strict=True)
        ]
        return Built({**built.summary, "depths": depths}, timing=timing)


class DepthSweep(ProbeStage):
    """Linear probes at all labels on each depth; the best is chosen on validation, and reported on test."""

    name = "depth_sweep"
    code_version = "3"
    libraries = ("numpy", "polars", "scipy", "torch")
    side_by_side = True

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every existing (encoder, data set and seed) whose encoder has more than one depth."""
        return (parts for parts in super().partitions(bench) if self.left_out(bench, *parts) is None)

    def left_out(self, bench: Bench, *parts: str) -> str | None:
        """An encoder without blocks."""
        return _why_no_depths(bench, parts[0])

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Features of every depth, splits, labels, and the parts of the protocol that fit and score."""
        encoder, task = parts
        dataset, _ = parse_task(task)
        protocol = bench.suite.protocol
        return all_there(
            depth_features=DepthFeatures().version(bench, encoder, dataset),
            weights=EncoderWeights().version(bench, encoder),
            index=DatasetIndex().version(bench, dataset),
            splits=Splits().version(bench, task),
            labels=list(fitted_labels(bench.suite.datasets[dataset]).classes),
            protocol_id=protocol.id,
            protocol=protocol_part(protocol, "probe", "metrics"),
            uncertain_labels=protocol.data.uncertain_labels,
            salt=protocol.salt,
            device=bench.compute.kind,
        )

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Fit each depth with its own penalty, choose on validation, score the test split once."""
        encoder, task = parts
        dataset, seed = parse_task(task)
        scorer = RunScorer.open(bench, dataset, seed)
        stored = read_depth_features(bench, encoder, dataset)
        rows, fits = [], []
        for done, (depth, features) in enumerate(stored):
            report(Progress(self.name, parts, done, len(stored), "depths"))
            run, fitted = _swept(bench, scorer, depth, features)
            rows.append(run)
            fits.append(fitted)
        table = pl.concat(rows)
        chosen = choose_depth(table["validation_log_loss"].to_list(), table["converged"].to_list())
        table = table.with_columns(
            blocks=pl.lit(stored[-1][0].block, pl.Int64),
            chosen=pl.Series([position == chosen for position in range(table.height)]),
            **run_constants(bench, encoder, dataset),
        ).drop(_OF_OTHER_RUNS)
        table.write_parquet(staging.path(RUNS_FILE))
        pl.concat(fits).write_parquet(staging.path(FITS_FILE))
        return Built(_summary(table))


def depths_of(bench: Bench, encoder: str) -> tuple[Depth, ...]:
    """Where an encoder is read in the sweep of the suite's protocol."""
    return sweep_depths(bench.suite.encoders[encoder].tap, bench.suite.protocol.analyses.depth.shares)


def read_depth_features(bench: Bench, encoder: str, dataset: str) -> list[tuple[Depth, Float32]]:
    """Memory-mapped features (n, d) of the usable images in index order, per depth, shallowest first."""
    artifact = bench.store.open(bench.key(DepthFeatures.name, encoder, dataset))
    return [(depth, open_features(artifact.file(_depth_file(depth)))[1]) for depth in depths_of(bench, encoder)]


def read_depth_sweep(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """One row per depth of an encoder, data set and seed, shallowest first.

    ``share``, ``block``, ``blocks``, ``pool``, ``dim``, ``lambda`` (the median over the scored problems),
    ``validation_log_loss`` (their mean) and ``chosen`` beside the columns of ``run_metrics`` for the clean run at all
    labels.
    """
    return pl.read_parquet(bench.store.open(bench.key(DepthSweep.name, encoder, task)).file(RUNS_FILE))


def _depth_file(depth: Depth) -> str:
    return f"depth-{depth.share:g}.arrow"


def _why_no_depths(bench: Bench, encoder: str) -> str | None:
    return why_no_depths(bench.suite.encoders[encoder].tap, bench.suite.protocol.analyses.depth.shares)


def _swept(bench: Bench, scorer: RunScorer, depth: Depth, features: Float32) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The row of one depth, and how each of its problems was fitted."""
    protocol = bench.suite.protocol
    task = open_task(bench, scorer.dataset, scorer.seed, features)
    probe = fit_probe(task, protocol, fractions=[FULL], device=bench.compute.device)
    rows, fits = task.rows(TEST), fit_rows(probe)
    images = task.index["image_id"].gather(rows).to_list()
    runs = scorer.score(prediction_frame(probe, {(TEST, CLEAN): (images, features[rows])}), fits).runs
    place = {"share": pl.lit(depth.share), "block": pl.lit(depth.block, pl.Int64)}
    fits = fits.with_columns(**place, validation_log_loss=pl.Series(chosen_log_loss(probe, task, protocol)))
    scored = fits.filter(pl.col("problem").is_in(scorer.problems(CLEAN)))
    settled = {
        "pool": pl.lit(depth.pool),
        "dim": pl.lit(features.shape[1], pl.Int64),
        "lambda": pl.lit(scored["lambda"].median(), pl.Float64),
        "validation_log_loss": pl.lit(scored["validation_log_loss"].drop_nans().mean(), pl.Float64),
    }
    return runs.with_columns(**place, **settled), fits.drop("fraction")


def _summary(table: pl.DataFrame) -> dict[str, Any]:
    own = table.row(-1, named=True)
    chosen = next(table.filter("chosen").iter_rows(named=True), None)
    return {
        "rows": table.height,
        "not_converged": int((~table["converged"]).sum()),
        "auroc": {f"{row['share']:g}": finite(row["auroc"]) for row in table.iter_rows(named=True)},
        "share_chosen": chosen["share"] if chosen else None,
        "auroc_gain": finite(chosen["auroc"] - own["auroc"]) if chosen else None,
    }


__all__ = ["DepthFeatures", "DepthSweep", "depths_of", "read_depth_features", "read_depth_sweep"]
