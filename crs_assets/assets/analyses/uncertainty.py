"""Uncertainty of scores and ranks: resampled axes of each cell, and what follows from them for the suite."""

import dagster as dg
import polars as pl

from crs_assets.assets.analyses.pictures import of_uncertainty
from crs_assets.assets.checks import Check
from crs_assets.assets.describe import Metadata, markdown_table
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Recorded
from crs_assets.partitions import ENCODER, IMAGE_SET, TASK, Partitions
from crs_assets.resources.artifact_store import ArtifactKey, Manifest
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.uncertainty import AGGREGATE, CENTRED, PANEL_FIXED
from crs_assets.science.suite import Suite, parse_task
from crs_assets.stages.analyses.axis_replicates import DEGENERATE_FILE, AxisReplicates
from crs_assets.stages.analyses.uncertainty import Uncertainty
from crs_assets.stages.stage import Outcome

GROUP = "analyses"


def axis_replicates(partitions: Partitions) -> dg.AssetsDefinition:
    """The four axes of each cell under resampled seeds and test groups."""
    prefix = partitions.suite.id
    cells = dg.MultiPartitionsDefinition(
        {ENCODER: partitions.encoder, IMAGE_SET: dg.StaticPartitionsDefinition(list(partitions.suite.datasets))}
    )
    runs = dg.AssetDep(dg.AssetKey([prefix, "run_metrics"]), partition_mapping=_tasks_to_datasets(partitions.suite))
    recorded = Recorded(AxisReplicates(), dg.AssetKey([prefix, "axis_replicates"]), describe_replicates)
    declared = Declared(recorded, GROUP, frozenset({"numpy", "parquet"}), (runs,))
    return stage_assets(partitions.suite, Shared("axis_replicates", cells), [declared])


def uncertainty(partitions: Partitions) -> dg.AssetsDefinition:
    """Intervals, rank probabilities, paired differences, leading tier."""
    prefix = partitions.suite.id
    upstream = ("axis_replicates", "axis_profile", "crs", "reference_panel")
    deps = tuple(dg.AssetDep(dg.AssetKey([prefix, name])) for name in upstream)
    recorded = Recorded(Uncertainty(), dg.AssetKey([prefix, "uncertainty"]), describe_uncertainty, (WINNER_SEPARABLE,))
    declared = Declared(recorded, GROUP, frozenset({"polars", "parquet"}), deps)
    return stage_assets(partitions.suite, Shared("uncertainty"), [declared])


def describe_replicates(bench: Bench, outcome: Outcome) -> Metadata:
    """How many draws, and which classes had to be left out of some; how often would tell how few patients they have."""
    artifact = bench.store.open(bench.key(AxisReplicates.name, *outcome.parts))
    degenerate = pl.read_parquet(artifact.file(DEGENERATE_FILE)).filter(pl.col("replicates") > 0)
    return {**outcome.manifest.summary, "classes_left_out_of_some": ", ".join(degenerate["class"].unique().sort())}


def describe_uncertainty(bench: Bench, outcome: Outcome) -> Metadata:
    """Scores with their case intervals, the leading tier, and a picture of both."""
    summary = outcome.manifest.summary
    path = bench.store.open(bench.key(Uncertainty.name)).file("intervals.parquet")
    scores = (
        pl.read_parquet(path)
        .filter(
            (pl.col("reading") == bench.suite.protocol.id)
            & (pl.col("kind") == CENTRED)
            & (pl.col("dataset") == AGGREGATE)
            & (pl.col("quantity") == "crs")
        )
        .sort("peers", "value", descending=[True, True])
        .select("encoder", "peers", "value", "low", "high", "bias", "n_degenerate", "n_undefined")
    )
    return {
        "leading_tier": ", ".join(summary["tier"]) or "none",
        "winner": summary["winner"] or "none",
        "threshold": summary["threshold"],
        "replicates": summary["replicates"],
        "crs": markdown_table(scores),
        **of_uncertainty(bench),
    }


def _inseparable(_: Bench, __: ArtifactKey, manifest: Manifest) -> str | None:
    others = manifest.summary.get("inseparable")
    if others is None:
        return "fewer than two encoders could be ranked under every replicate"
    return f"{manifest.summary['leader']} leads, but not beyond {', '.join(others)}" if others else None


WINNER_SEPARABLE = Check(
    "winner_separable",
    f"The leader's paired {CENTRED} interval ({PANEL_FIXED}) against every other ranked encoder excludes 0: only then "
    "is there a winner.",
    _inseparable,
)


def _tasks_to_datasets(suite: Suite) -> dg.MultiPartitionMapping:
    """The same encoder; every seed of a data set to the data set."""
    to_dataset = dg.StaticPartitionMapping({task: parse_task(task)[0] for task in suite.tasks})
    return dg.MultiPartitionMapping(
        {
            ENCODER: dg.DimensionPartitionMapping(ENCODER, dg.IdentityPartitionMapping()),
            TASK: dg.DimensionPartitionMapping(IMAGE_SET, to_dataset),
        }
    )
