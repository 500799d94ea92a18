"""Data stages: the index of an image set, and the splits of a data set and seed."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.canonical import digest
from crs_assets.science.datasets import (
    DatasetSpec,
    build_index,
    check_expected,
    count_summary,
    index_digest,
    read_table,
    source_state,
)
from crs_assets.science.protocol import Protocol, protocol_part
from crs_assets.science.splits import (
    LeakError,
    assign_test,
    check_no_leak,
    eligible_classes,
    split_seed,
    take_official_test,
)
from crs_assets.science.suite import parse_task, task_key
from crs_assets.science.transfer import derived_labels
from crs_assets.stages.progress import Progress, report
from crs_assets.stages.stage import Built, RefusedError, Stage

INDEX_FILE = "index.parquet"
COUNTS_FILE = "counts.parquet"
SPLITS_FILE = "splits.parquet"
CLASSES_FILE = "classes.parquet"
DERIVED_FILE = "derived_classes.parquet"
FRACTIONS_FILE = "fractions.parquet"
ASSIGNMENT = "assignment"

# DICOM is an extra: what decodes it may be installed, exchanged or taken away under an index that is already there.
DICOM_LIBRARIES = ("pydicom", "pyjpegls", "pylibjpeg-libjpeg", "pylibjpeg-openjpeg", "python-gdcm")


class DatasetIndex(Stage):
    """One row per image of an image set: id, group, labels, subgroups, test membership, pixel digest, quarantine."""

    name = "dataset_index"
    code_version = "2"
    libraries = ("opencv-python-headless", "pillow", "simplejpeg")
    optional_libraries = DICOM_LIBRARIES

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every data set and target."""
        return ((image_set,) for image_set in bench.suite.image_sets)

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """The files' sizes and times, the catalogue's facts, and what decides the test set."""
        (image_set,) = parts
        spec = bench.suite.image_sets[image_set]
        root = bench.roots.prepare(spec)
        protocol = bench.suite.protocol
        return {
            "dataset": spec.model_dump(mode="json", include=set(spec.content_fields())),
            "files": source_state(root, spec),
            "test_fraction": protocol.data.test_fraction,
            "salt": protocol.salt,
        }

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Read the tables, decode every image once, settle duplicates, and draw the test set."""
        (image_set,) = parts
        spec, protocol = bench.suite.image_sets[image_set], bench.suite.protocol
        root = bench.roots.prepare(spec)
        raw = read_table(root, spec)
        index = build_index(
            raw,
            root,
            spec,
            workers=bench.compute.workers,
            progress=lambda done, total, rate: report(Progress(self.name, parts, done, total, "images", rate)),
        )
        frame = _with_test_set(index.frame, spec, protocol)
        frame.write_parquet(staging.path(INDEX_FILE))
        counts = count_summary(replace(index, frame=frame), spec)
        counts.write_parquet(staging.path(COUNTS_FILE))
        usable = frame.filter(pl.col("quarantine").is_null())
        return Built(
            summary={
                "images_read": frame.height,
                "images_used": usable.height,
                "quarantined": frame.height - usable.height,
                "groups": usable["group_id"].n_unique(),
                "test_images": int(usable["is_test"].sum()),
                "count_mismatches": check_expected(index, spec),
                "phantom": spec.phantom or "",
                "tables": {Path(table).name: _sha256(root / table) for table in raw.tables},
            },
            data_version=index_digest(frame),
        )


class Splits(Stage):
    """Roles of a data set's images for one seed, nested label subsets, and the classes that can be scored."""

    name = "splits"
    code_version = "2"

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every data set and seed."""
        return ((task,) for task in bench.suite.tasks)

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """The index, and the data part of the protocol."""
        dataset, seed = parse_task(parts[0])
        index = DatasetIndex().version(bench, dataset)
        if index is None:
            return None
        protocol = bench.suite.protocol
        return {"index": index, "seed": seed, "salt": protocol.salt, **protocol_part(protocol, "data")}

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Split, subset, and refuse a leak before anything is recorded."""
        dataset, seed = parse_task(parts[0])
        spec, protocol = bench.suite.datasets[dataset], bench.suite.protocol
        index = read_index(bench, dataset)
        every_seed = {other: split_seed(index, spec, other, protocol) for other in protocol.data.seeds}
        splits = every_seed[seed]
        try:
            check_no_leak(index, splits)
        except LeakError as error:
            raise RefusedError(f"{parts[0]}: {error}") from error
        classes = eligible_classes(index, spec, list(every_seed.values()), protocol)
        splits.frame.write_parquet(staging.path(SPLITS_FILE))
        splits.sizes.write_parquet(staging.path(FRACTIONS_FILE))
        classes.write_parquet(staging.path(CLASSES_FILE))
        derived = classes.clear()
        if spec.derived:
            derived = eligible_classes(index, derived_labels(spec), list(every_seed.values()), protocol)
            derived.write_parquet(staging.path(DERIVED_FILE))
        roles = dict(splits.frame.group_by("role").len().sort("role").iter_rows())
        return Built(
            summary={
                "roles": roles,
                "floor_fractions": splits.sizes.filter("floor")["fraction"].to_list(),
                "distinct_fractions": splits.distinct_fractions,
                "classes": classes.height,
                "classes_scored": int(classes["eligible"].sum()),
                "classes_left_out": classes.filter(~pl.col("eligible"))["class"].to_list(),
                ASSIGNMENT: splits.digest,
            },
            # The content names itself: a rule that admits the same classes changes nothing below.
            data_version=digest(
                {
                    "assignment": splits.digest,
                    "fractions": splits.sizes.rows(),
                    "classes": classes.select("class", "eligible").rows(),
                    **({"derived": derived.select("class", "eligible").rows()} if spec.derived else {}),
                }
            ),
        )


def unscorable_datasets(bench: Bench) -> list[str]:
    """Data sets whose splits leave no class to score; those that are not split yet are not among them."""
    manifests = {
        name: bench.store.peek(bench.key(Splits.name, task_key(name, bench.suite.protocol.data.seeds[0])))
        for name in bench.suite.datasets
    }
    return [name for name, manifest in manifests.items() if manifest and manifest.summary["classes_scored"] == 0]


def read_index(bench: Bench, image_set: str) -> pl.DataFrame:
    """The index of an image set."""
    return pl.read_parquet(bench.store.open(bench.key(DatasetIndex.name, image_set)).file(INDEX_FILE))


def read_splits(bench: Bench, dataset: str, seed: int) -> pl.DataFrame:
    """The splits of a data set and seed."""
    return pl.read_parquet(bench.store.open(bench.key(Splits.name, task_key(dataset, seed))).file(SPLITS_FILE))


def split_assignment(bench: Bench, task: str) -> str | None:
    """Digest of roles and label subsets: what fits depend on. Which classes are scored is no part of it."""
    manifest = bench.store.peek(bench.key(Splits.name, task))
    return str(manifest.summary[ASSIGNMENT]) if manifest else None


def read_classes(bench: Bench, dataset: str, seed: int) -> pl.DataFrame:
    """The scored and left-out classes of a data set; the same for every seed."""
    return pl.read_parquet(bench.store.open(bench.key(Splits.name, task_key(dataset, seed))).file(CLASSES_FILE))


def read_derived(bench: Bench, dataset: str, seed: int) -> pl.DataFrame:
    """Which derived labels of a data set can be scored at its target; empty where it has none."""
    artifact = bench.store.open(bench.key(Splits.name, task_key(dataset, seed)))
    if not bench.suite.datasets[dataset].derived:
        return read_classes(bench, dataset, seed).clear()
    return pl.read_parquet(artifact.file(DERIVED_FILE))


def read_fractions(bench: Bench, dataset: str, seed: int) -> pl.DataFrame:
    """Realised sizes of the label subsets of a data set and seed."""
    return pl.read_parquet(bench.store.open(bench.key(Splits.name, task_key(dataset, seed))).file(FRACTIONS_FILE))


def _with_test_set(frame: pl.DataFrame, spec: DatasetSpec, protocol: Protocol) -> pl.DataFrame:
    """The index with `is_test`."""
    if spec.test_split == "official":
        return take_official_test(frame)
    if spec.role == "source":
        return frame.with_columns(assign_test(frame, spec, protocol).alias("is_test"))
    # A target is evaluated as a whole: nothing is fitted on it.
    return frame.with_columns(pl.when(pl.col("quarantine").is_null()).then(statement=True).alias("is_test"))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
