"""Group ``probes``: linear probes of each encoder, their metrics, and the null controls."""

import dagster as dg

from crs_assets.assets import checks
from crs_assets.assets.describe import describe_nulls, describe_predictions, describe_runs
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Recorded
from crs_assets.partitions import TASK, Partitions
from crs_assets.stages.probes import NullControls, ProbePredictions, RunMetrics

GROUP = "probes"


def probes(partitions: Partitions) -> dg.AssetsDefinition:
    """Predictions of the linear probe and their metrics, made in one step: one has no use without the other."""
    prefix = partitions.suite.id
    splits = dg.AssetDep(
        dg.AssetKey([prefix, "splits"]), partition_mapping=dg.MultiToSingleDimensionPartitionMapping(TASK)
    )
    upstream = [
        dg.AssetDep(dg.AssetKey([prefix, name]), partition_mapping=partitions.features_to_probes)
        for name in ("features", "degraded_features")
    ]
    predictions = dg.AssetKey([prefix, "probe_predictions"])
    runs = dg.AssetKey([prefix, "run_metrics"])
    declared = [
        Declared(
            Recorded(ProbePredictions(), predictions, describe_predictions, (checks.CONVERGED,)),
            GROUP,
            frozenset({"pytorch", "parquet"}),
            (*upstream, splits),
        ),
        Declared(
            Recorded(RunMetrics(), runs, describe_runs, (checks.GRID,)),
            GROUP,
            frozenset({"polars", "parquet"}),
            (dg.AssetDep(predictions), splits),
        ),
    ]
    return stage_assets(partitions.suite, Shared("probes", partitions.encoder_by_task), declared)


def null_controls(partitions: Partitions) -> dg.AssetsDefinition:
    """Metadata only, and shuffled labels, on each data set and seed."""
    prefix = partitions.suite.id
    splits = dg.AssetDep(dg.AssetKey([prefix, "splits"]))
    features = dg.AssetDep(dg.AssetKey([prefix, "features"]), partition_mapping=partitions.features_to_nulls)
    recorded = Recorded(NullControls(), dg.AssetKey([prefix, "null_controls"]), describe_nulls)
    declared = Declared(recorded, GROUP, frozenset({"polars", "parquet"}), (splits, features))
    return stage_assets(
        partitions.suite, Shared("null_controls", partitions.task, follows_same_partitions=True), [declared]
    )
