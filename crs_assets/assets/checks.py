"""Asset checks: findings told about everything that is stored, so that the latest result speaks for all partitions.

A check tells; it gates nothing. What must not be recorded is refused by the stage itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.resources.artifact_store import ArtifactKey, Manifest
from crs_assets.resources.bench import Bench
from crs_assets.science.encoders import EncoderSpec
from crs_assets.science.splits import LeakError
from crs_assets.stages.data import read_index
from crs_assets.stages.stage import Stage

Finding = Callable[[Bench, ArtifactKey, Manifest], str | None]
LISTED = 20


@dataclass(frozen=True)
class Check:
    """A question asked of every stored partition of an asset.

    Attributes:
        name: Name in the UI.
        description: What passing means.
        finding: What is wrong with a partition, or None.
        severity: ERROR where a result must not be used, WARN where a person should look.
        refusals: Errors for which this check stands: a partition refused with one was never recorded.
    """

    name: str
    description: str
    finding: Finding
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN
    refusals: tuple[type[Exception], ...] = ()

    def spec(self, asset: dg.AssetKey) -> dg.AssetCheckSpec:
        """The declaration that Dagster shows before the first run."""
        return dg.AssetCheckSpec(self.name, asset=asset, description=self.description)

    def evaluate(
        self,
        bench: Bench,
        asset: dg.AssetKey,
        stage: Stage,
        failures: Mapping[str, Exception],
        told: Mapping[str, str],
    ) -> dg.AssetCheckResult:
        """Ask every stored partition that the suite still has, and those that this run refused to record.

        Args:
            bench: The suite and its store.
            asset: The asset that is asked about.
            stage: Its stage.
            failures: Partition -> why this run did not record it.
            told: The same as messages that are fit for a log.
        """
        found = {key: told[key] for key, error in failures.items() if self._explains(error)}
        count = 0
        for parts in stage.partitions(bench):
            key = bench.key(stage.name, *parts)
            manifest = bench.store.peek(key)
            if manifest is None:
                continue
            count += 1
            if problem := self.finding(bench, key, manifest):
                found["|".join(parts) or stage.name] = problem
        listed: dict[str, Any] = dict(list(found.items())[:LISTED])
        return dg.AssetCheckResult(
            check_name=self.name,
            asset_key=asset,
            passed=not found,
            severity=self.severity,
            metadata={"partitions_checked": count, "findings": len(found), **({"first": listed} if listed else {})},
        )

    def _explains(self, error: Exception) -> bool:
        return isinstance(error, self.refusals) or isinstance(error.__cause__, self.refusals)


def _when(field: str, wrong: Callable[[Any], bool], message: str) -> Finding:
    def finding(_: Bench, __: ArtifactKey, manifest: Manifest) -> str | None:
        value = manifest.summary.get(field)
        return message.format(value) if wrong(value) else None

    return finding


def _rows_match_index(bench: Bench, key: ArtifactKey, manifest: Manifest) -> str | None:
    if manifest.summary["conditions"] == 0:
        return None
    index = bench.store.peek(ArtifactKey(bench.suite.id, "dataset_index", (key.parts[1],)))
    field = "test_images" if key.asset.endswith("degraded_features") else "images_used"
    expected = index.summary[field] if index else None
    seen = manifest.summary["images"]
    return None if seen == expected else f"{seen} rows for {expected} images of the index"


def _rows_match_grid(bench: Bench, key: ArtifactKey, manifest: Manifest) -> str | None:
    dataset = key.parts[1].rpartition(".s")[0]
    protocol = bench.suite.protocol
    expected = len(protocol.data.fractions) * len(
        protocol.conditions(transfer=bench.suite.target_of(dataset) is not None)
    )
    seen = manifest.summary["rows"]
    return None if seen == expected else f"{seen} rows, the grid has {expected}"


def _shared_with_source(bench: Bench, key: ArtifactKey, _: Manifest) -> str | None:
    """How many pictures a target shares with its sources: what a probe was fitted on is no other institution."""
    (target,) = key.parts
    sources = [name for name in bench.suite.datasets if bench.suite.target_of(name) == target]
    stored = [name for name in sources if bench.store.peek(bench.key(key.asset, name))]
    if not stored:
        return None
    pictures = _pictures(bench, target)
    shared = {name: len(pictures & _pictures(bench, name)) for name in stored}
    return "; ".join(f"{count} pictures are in {name} too" for name, count in shared.items() if count) or None


def _pictures(bench: Bench, image_set: str) -> set[str]:
    return set(read_index(bench, image_set).filter(pl.col("quarantine").is_null())["pixel_digest"])


COUNTS = Check(
    "counts_match_catalogue",
    "The files hold as many images, groups and positives as the catalogue says.",
    _when("count_mismatches", bool, "{0}"),
)
QUARANTINE = Check(
    "no_image_quarantined", "Every image could be decoded and labelled.", _when("quarantined", bool, "{0} quarantined")
)
TARGET_APART = Check(
    "target_apart_from_source",
    "No image of a transfer target is an image of a data set whose probes are applied to it.",
    _shared_with_source,
)
NO_LEAK = Check(
    "no_group_on_two_sides",
    "No patient, lesion or duplicate is on two sides of a split; a leaking split is refused and never recorded.",
    _when("roles", lambda roles: not roles, "no roles"),
    dg.AssetCheckSeverity.ERROR,
    refusals=(LeakError,),
)
CLASSES = Check(
    "all_classes_scored",
    "Every class has enough positives and negatives to be scored.",
    _when("classes_left_out", bool, "left out: {0}"),
)
FRACTIONS = Check(
    "label_fractions_distinct",
    "No two label fractions come to the same images.",
    _when("distinct_fractions", lambda distinct: not distinct, "label efficiency is not estimable"),
)
FINITE = Check(
    "features_finite",
    "No feature is NaN or infinite.",
    _when("finite", lambda finite: not finite, "non-finite features"),
    dg.AssetCheckSeverity.ERROR,
)
FEATURE_ROWS = Check(
    "one_row_per_image", "There is exactly one feature row per image.", _rows_match_index, dg.AssetCheckSeverity.ERROR
)
CONVERGED = Check(
    "fits_converged",
    "Every chosen fit met the protocol's objective gap.",
    _when("chosen_not_converged", bool, "{0} chosen fit(s) not converged"),
)
GRID = Check(
    "one_row_per_run", "There is exactly one row per run of the grid.", _rows_match_grid, dg.AssetCheckSeverity.ERROR
)
COMPLETE = Check(
    "cells_complete",
    "Every existing cell of the encoder has all four axes.",
    lambda _, __, manifest: (
        "; ".join(
            f"{name}: {state}"
            for name, state in manifest.summary["coverage"].items()
            if not state.startswith(("complete", "absent"))
        )
        or None
    ),
)


def _beaten_by_twin(bench: Bench, key: ArtifactKey, manifest: Manifest) -> str | None:
    """Data sets on which an untrained twin discriminates at least as well as this encoder."""
    spec = bench.suite.encoders[key.parts[0]]
    twins = [name for name, other in bench.suite.encoders.items() if is_twin(spec, other)]
    stored = {twin: bench.store.peek(ArtifactKey(key.suite, key.asset, (twin,))) for twin in twins}
    beaten = [
        f"{twin} on {dataset}"
        for twin, other in stored.items()
        for dataset, raw in manifest.summary["raw"].items()
        if other and _at_least(other.summary["raw"].get(dataset, {}).get("discrimination"), raw["discrimination"])
    ]
    return f"not above its untrained twin: {', '.join(beaten)}" if beaten else None


def _at_least(first: float | None, second: float | None) -> bool:
    return first is not None and second is not None and first >= second


def is_twin(trained: EncoderSpec, untrained: EncoderSpec) -> bool:
    """Whether two encoders are the same network with the same input, one of them never trained."""
    return (
        trained.untrained_seed is None
        and untrained.untrained_seed is not None
        and trained.architecture.arch == untrained.architecture.arch
        and trained.preprocessing.input_size == untrained.preprocessing.input_size
        and trained.tap == untrained.tap
    )


TWIN = Check(
    "beats_untrained_twin", "The encoder discriminates better than its own untrained network.", _beaten_by_twin
)
ABOVE_NULLS = Check(
    "cells_above_nulls",
    "Every ranked cell is above all its null controls by the paired case interval.",
    _when("at_null", bool, "at null: {0}"),
)
DATASETS_RANK = Check(
    "data_sets_can_rank",
    "On every data set some panel encoder is above its null controls: elsewhere nobody can be ranked.",
    _when("unrankable", bool, "nobody is above the null controls on: {0}"),
)
ALL_RANKED = Check(
    "every_encoder_ranked",
    "Every encoder has all its existing cells, and with them an aggregate score and a rank.",
    _when("incomplete", bool, "{0} encoder(s) lack a cell and have no rank"),
)
