"""How analyses of the same partitions hang in the graph: said once for all of them."""

import dagster as dg

from crs_assets.assets import checks
from crs_assets.assets.encoders import DEVICE_POOL, encoder_and_index
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Describe, Recorded
from crs_assets.partitions import TASK, Partitions
from crs_assets.stages.stage import Stage

GROUP = "analyses"


def on_images(partitions: Partitions, stage: Stage, describe: Describe) -> dg.AssetsDefinition:
    """Another pass of each encoder over the images of a data set: on the device, checked as features are."""
    recorded = Recorded(stage, _key(partitions, stage.name), describe, (checks.FINITE, checks.FEATURE_ROWS))
    declared = Declared(recorded, GROUP, frozenset({"pytorch", "arrow"}), encoder_and_index(partitions))
    shared = Shared(stage.name, partitions.encoder_by_image_set, DEVICE_POOL)
    return stage_assets(partitions.suite, shared, [declared])


def on_features(
    partitions: Partitions, stage: Stage, describe: Describe, *features: dg.AssetDep
) -> dg.AssetsDefinition:
    """Probes of one's own for each encoder, data set and seed, on features and splits."""
    declared = Declared(
        Recorded(stage, _key(partitions, stage.name), describe),
        GROUP,
        frozenset({"pytorch", "parquet"}),
        (*features, _splits(partitions)),
    )
    return stage_assets(partitions.suite, Shared(stage.name, partitions.encoder_by_task), [declared])


def on_probes(
    partitions: Partitions, stage: Stage, describe: Describe, *upstream: str, beside: tuple[dg.AssetDep, ...] = ()
) -> dg.AssetsDefinition:
    """An analysis of what the published probes left, for each encoder, data set and seed.

    Args:
        partitions: Of the suite.
        stage: What makes it.
        describe: What the UI shows of it.
        upstream: Assets of the same partitions.
        beside: Assets of others, with their mappings.
    """
    deps = (*beside, *(dg.AssetDep(_key(partitions, name)) for name in upstream), _splits(partitions))
    declared = Declared(
        Recorded(stage, _key(partitions, stage.name), describe), GROUP, frozenset({"polars", "parquet"}), deps
    )
    shared = Shared(stage.name, partitions.encoder_by_task, follows_same_partitions=True)
    return stage_assets(partitions.suite, shared, [declared])


def _key(partitions: Partitions, name: str) -> dg.AssetKey:
    return dg.AssetKey([partitions.suite.id, name])


def _splits(partitions: Partitions) -> dg.AssetDep:
    return dg.AssetDep(_key(partitions, "splits"), partition_mapping=dg.MultiToSingleDimensionPartitionMapping(TASK))
