"""Group ``data``: the index of every image set, and the splits of every data set and seed."""

import dagster as dg

from crs_assets.assets import checks
from crs_assets.assets.describe import describe_index, describe_splits
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Recorded
from crs_assets.partitions import Partitions
from crs_assets.stages.data import DatasetIndex, Splits

GROUP = "data"


def dataset_index(partitions: Partitions) -> dg.AssetsDefinition:
    """One row per image of each image set."""
    recorded = Recorded(
        DatasetIndex(),
        dg.AssetKey([partitions.suite.id, "dataset_index"]),
        describe_index,
        (checks.COUNTS, checks.QUARANTINE, checks.TARGET_APART),
    )
    declared = Declared(recorded, GROUP, frozenset({"polars", "parquet"}))
    return stage_assets(partitions.suite, Shared("dataset_index", partitions.image_set), [declared])


def splits(partitions: Partitions) -> dg.AssetsDefinition:
    """Roles, label subsets and scored classes of each data set and seed."""
    recorded = Recorded(
        Splits(),
        dg.AssetKey([partitions.suite.id, "splits"]),
        describe_splits,
        (checks.NO_LEAK, checks.CLASSES, checks.FRACTIONS),
    )
    index = dg.AssetDep(
        dg.AssetKey([partitions.suite.id, "dataset_index"]), partition_mapping=partitions.image_set_to_tasks
    )
    declared = Declared(recorded, GROUP, frozenset({"polars", "parquet"}), (index,))
    return stage_assets(partitions.suite, Shared("splits", partitions.task), [declared])
