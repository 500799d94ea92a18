"""The whole graph of a suite, upstream first."""

import dagster as dg

from crs_assets.assets import data, encoders, probes, scores
from crs_assets.partitions import Partitions


def build_assets(partitions: Partitions) -> list[dg.AssetsDefinition]:
    """Every asset of a suite."""
    return [
        data.dataset_index(partitions),
        data.splits(partitions),
        encoders.encoder_weights(partitions),
        encoders.features(partitions),
        probes.probes(partitions),
        probes.null_controls(partitions),
        scores.axis_profile(partitions),
        scores.reference_panel(partitions),
        scores.crs(partitions),
        scores.leaderboard(partitions),
    ]
