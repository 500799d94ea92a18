"""Encoder stages: the fingerprint of an encoder, and what it makes of images."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.encoders import (
    AbsentWeightsError,
    EncoderMemoryError,
    FrozenEncoder,
    PrecisionError,
    single_threaded_tensors,
)
from crs_assets.science.extraction import Encoder, extract
from crs_assets.science.images import single_threaded
from crs_assets.science.protocol import CLEAN
from crs_assets.stages.data import DatasetIndex, read_index
from crs_assets.stages.feature_files import finished_chunks, open_features, read_chunks, write_chunk, write_features
from crs_assets.stages.image_source import PIXEL_LIBRARIES, Load, clean_images, degradation_recipe, degraded_images
from crs_assets.stages.progress import Progress, report
from crs_assets.stages.run_mode import Watched, closeness, forbid_bfloat16, halve_batch, settle
from crs_assets.stages.stage import Built, Outcome, Stage

WEIGHTS_FILE = "weights.json"
FEATURES_FILE = "features.arrow"

_MODEL_LIBRARIES = ("timm", "torch")

Float32 = NDArray[np.float32]


class EncoderWeights(Stage):
    """What decides an encoder's features: its weights, architecture, preprocessing and tap, as one fingerprint."""

    name = "encoder_weights"
    code_version = "1"

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every encoder and control."""
        return ((encoder,) for encoder in bench.suite.encoders)

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """The fingerprint of the files as they lie there now."""
        return {"fingerprint": bench.weights.fingerprint(bench.suite.encoders[parts[0]])}

    def ensure(self, bench: Bench, *parts: str) -> Outcome:
        """As any stage, after fetching what is missing where the site lets runs download."""
        obtain_weights(bench, parts[0])
        return super().ensure(bench, *parts)

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Record hashes and facts."""
        spec = bench.suite.encoders[parts[0]]
        hashes = bench.weights.hashes(spec)
        facts = spec.model_dump(mode="json")
        pl.DataFrame(
            {"file": list(hashes), "sha256": list(hashes.values())}, schema={"file": pl.Utf8, "sha256": pl.Utf8}
        ).write_parquet(staging.path("weights.parquet"))
        summary = {key: facts[key] for key in ("title", "family", "role", "licence", "gated")}
        return Built({**summary, "dim": spec.tap.dim, "files": len(hashes)}, bench.weights.fingerprint(spec))


def obtain_weights(bench: Bench, encoder: str) -> None:
    """Make sure that an encoder's weights are here, fetching them where the site lets runs download.

    Raises:
        AbsentWeightsError: If they are not, and are not to be had.
        WeightsError: If they are not those of the catalogue.
    """

    def progress(_file: str, done: int, total: int | None) -> None:
        report(Progress(EncoderWeights.name, (encoder,), done, total or done, "bytes"))

    spec = bench.suite.encoders[encoder]
    try:
        bench.weights.ensure(spec, progress)
    except AbsentWeightsError as error:
        # What is not pinned is not downloaded by a program: a person decides what to take.
        if bench.weights.download or spec.weights.source != "hub" or not spec.weights.revision:
            raise
        fetch = f"{bench.suite.command('weights fetch')} --encoder {encoder}"
        raise AbsentWeightsError(error.what, [fetch, *error.commands]) from error


class Encoding(Stage):
    """A stage that runs an encoder, in the mode that was settled for it; one that fails is changed, and begun anew."""

    def ensure(self, bench: Bench, *parts: str) -> Outcome:
        """As any stage; how the encoder runs is settled before, because it is part of the fingerprint."""
        encoder, image_set = parts
        while True:
            try:
                if bench.wants_trial(encoder) and self.recipe(bench, *parts) is not None:
                    settle(bench, encoder, *_clean_rows(bench, encoder, image_set))
                return super().ensure(bench, *parts)
            except EncoderMemoryError:
                if not halve_batch(bench, encoder):
                    raise
            except PrecisionError:
                forbid_bfloat16(bench, encoder)


class Features(Encoding):
    """Clean embeddings of every usable image of an image set."""

    name = "features"
    code_version = "1"
    libraries = (*PIXEL_LIBRARIES, *_MODEL_LIBRARIES)
    keeps_old_versions = False

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every existing (encoder, image set); a target shared by two sources is encoded once."""
        for encoder in bench.suite.encoders:
            yield from ((encoder, image_set) for image_set in bench.suite.existing_image_sets(encoder))

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Weights, images, working resolution, numeric mode."""
        return encoding_inputs(bench, *parts)

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Encode in index order, chunk by chunk; a crash costs at most one chunk."""
        encoder, image_set = parts
        rows = usable_rows(read_index(bench, image_set))
        ids = rows["image_id"].to_list()
        load = clean_images(bench, encoder, image_set, rows)
        features, timing = encode_rows(
            bench, staging, ready_encoder(bench, encoder), self.name, parts, ids, load, [CLEAN]
        )
        write_features(staging.path(FEATURES_FILE), ids, features[:, 0, :])
        return built_features(features, timing)


class DegradedFeatures(Encoding):
    """Embeddings of the test images under every degradation; the same degraded image reaches every encoder."""

    name = "degraded_features"
    code_version = "1"
    libraries = (*PIXEL_LIBRARIES, *_MODEL_LIBRARIES)
    keeps_old_versions = False

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every existing (encoder, image set); a transfer target is not degraded and holds no condition."""
        return Features().partitions(bench)

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Weights, images, working resolution, numeric mode, degradations, and what the libraries make of them."""
        inputs = encoding_inputs(bench, *parts)
        if inputs is None:
            return None
        return {**inputs, **degradation_recipe(bench)}

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Decode each test image once, degrade it every way, encode; one file per condition."""
        encoder, dataset = parts
        if dataset in bench.suite.targets:
            return Built({"images": 0, "conditions": 0, "dim": 0, "finite": True})
        rows = usable_rows(read_index(bench, dataset)).filter("is_test")
        ids = rows["image_id"].to_list()
        conditions = [condition.name for condition in bench.suite.protocol.degradations()]
        load = degraded_images(bench, encoder, dataset, rows)
        features, timing = encode_rows(
            bench, staging, ready_encoder(bench, encoder), self.name, parts, ids, load, conditions
        )
        for position, condition in enumerate(conditions):
            write_features(staging.path(f"{condition}.arrow"), ids, features[:, position, :])
        return built_features(features, timing)


def usable_rows(index: pl.DataFrame) -> pl.DataFrame:
    """Rows of an index that are not quarantined, in index order."""
    return index.filter(pl.col("quarantine").is_null())


def read_features(bench: Bench, encoder: str, image_set: str) -> tuple[list[str], Float32]:
    """Image ids and a memory-mapped view of an encoder's clean features of an image set."""
    return open_features(bench.store.open(bench.key(Features.name, encoder, image_set)).file(FEATURES_FILE))


def read_degraded(bench: Bench, encoder: str, dataset: str) -> dict[str, tuple[list[str], Float32]]:
    """Image ids and features of the test images by condition name."""
    artifact = bench.store.open(bench.key(DegradedFeatures.name, encoder, dataset))
    return {
        condition.name: open_features(artifact.file(f"{condition.name}.arrow"))
        for condition in bench.suite.protocol.degradations()
    }


def encoding_inputs(bench: Bench, encoder: str, image_set: str) -> dict[str, Any] | None:
    """What clean features depend on beside code and libraries; None while an upstream partition is missing."""
    weights = EncoderWeights().version(bench, encoder)
    index = DatasetIndex().version(bench, image_set)
    if weights is None or index is None:
        return None
    return {
        "weights": weights,
        "index": index,
        "working_short_side": bench.suite.protocol.images.working_short_side,
        "numeric_mode": bench.compute.numeric_mode(bench.run_mode(encoder)),
    }


def ready_encoder(bench: Bench, encoder: str) -> FrozenEncoder:
    """An encoder in the precision that was settled for it."""
    return bench.load_encoder(encoder).in_precision(bench.run_mode(encoder).precision)


def encode_rows(
    bench: Bench,
    staging: Staging,
    encoder: Encoder,
    stage: str,
    parts: tuple[str, ...],
    ids: Sequence[str],
    load: Load,
    conditions: Sequence[str],
) -> tuple[Float32, dict[str, float]]:
    """Encode what is not yet written, chunk by chunk.

    Args:
        bench: The bench.
        staging: Where chunks are kept until the partition is whole.
        encoder: What encodes.
        stage: The stage's name, for progress.
        parts: The partition; an encoder's id first.
        ids: Image id of each row.
        load: Row number -> its prepared images, one per condition.
        conditions: Names of the conditions.

    Returns:
        Features of shape (images, conditions, d), and this run's figures.
    """
    compute, began, start_chunk = bench.compute, time.perf_counter(), finished_chunks(staging.folder)
    mode = bench.run_mode(parts[0])
    # What was settled on images of one set has to hold on those of another.
    close = closeness(bench, parts[0], *_clean_rows(bench, *parts)) if mode.precision == "bfloat16" else None
    watched, rate = Watched(encoder, compute.threads), 0.0

    def progress(done: int, total: int, images_per_second: float) -> None:
        nonlocal rate
        rate = images_per_second
        report(Progress(stage, parts, done, total, "images", images_per_second, watched.busy_share))

    chunks = extract(
        ids,
        load,
        watched,
        batch_size=mode.batch_size,
        chunk_batches=compute.chunk_batches,
        conditions=conditions,
        start_chunk=start_chunk,
        workers=compute.workers,
        encoders=compute.threads,
        encoder_setup=single_threaded_tensors if compute.kind == "cpu" else None,
        progress=progress,
    )
    with single_threaded():
        for chunk in chunks:
            write_chunk(staging.folder, chunk.index, chunk.features)
    busy = watched.busy_share
    features = read_chunks(staging.folder).reshape(len(ids), len(conditions), -1)
    timing = {
        "images_per_second": rate,
        "encoder_busy_share": busy,
        "seconds": time.perf_counter() - began,
        "resumed_chunks": float(start_chunk),
    }
    return features, timing if close is None else {**timing, "smallest_cosine_with_float32": close}


def _clean_rows(bench: Bench, encoder: str, image_set: str) -> tuple[Load, int]:
    """Row number -> the clean image, and how many usable rows there are."""
    rows = usable_rows(read_index(bench, image_set))
    return clean_images(bench, encoder, image_set, rows), rows.height


def built_features(features: Float32, timing: dict[str, float]) -> Built:
    """What is told of features of shape (images, conditions, d)."""
    images, conditions, dim = features.shape
    finite = bool(np.isfinite(features).all())
    return Built({"images": images, "conditions": conditions, "dim": dim, "finite": finite}, timing=timing)
