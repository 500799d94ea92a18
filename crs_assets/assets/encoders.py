"""Groups ``encoders`` and ``features``: fingerprints of encoders, clean and degraded embeddings."""

import dagster as dg

from crs_assets.assets import checks
from crs_assets.assets.describe import describe_features, describe_weights
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Recorded
from crs_assets.partitions import ENCODER, IMAGE_SET, Partitions
from crs_assets.stages.encoders import DegradedFeatures, EncoderWeights, Features

DEVICE_POOL = "gpu"


def encoder_weights(partitions: Partitions) -> dg.AssetsDefinition:
    """The fingerprint of each encoder."""
    key = dg.AssetKey([partitions.suite.id, "encoder_weights"])
    declared = Declared(Recorded(EncoderWeights(), key, describe_weights), "encoders", frozenset({"pytorch"}))
    return stage_assets(partitions.suite, Shared("encoder_weights", partitions.encoder), [declared])


def features(partitions: Partitions) -> dg.AssetsDefinition:
    """Clean embeddings of each image set, and those of its test images under every degradation."""
    prefix = partitions.suite.id
    declared = [
        Declared(
            Recorded(stage, dg.AssetKey([prefix, stage.name]), describe_features, (checks.FINITE, checks.FEATURE_ROWS)),
            "features",
            frozenset({"pytorch", "arrow"}),
            encoder_and_index(partitions),
        )
        for stage in (Features(), DegradedFeatures())
    ]
    return stage_assets(partitions.suite, Shared("features", partitions.encoder_by_image_set, DEVICE_POOL), declared)


def encoder_and_index(partitions: Partitions) -> tuple[dg.AssetDep, ...]:
    """What every embedding of an image set is made from."""
    upstream = (("encoder_weights", ENCODER), ("dataset_index", IMAGE_SET))
    return tuple(
        dg.AssetDep(
            dg.AssetKey([partitions.suite.id, asset]),
            partition_mapping=dg.MultiToSingleDimensionPartitionMapping(dimension),
        )
        for asset, dimension in upstream
    )
