"""The whole graph of a suite, upstream first."""

import dagster as dg

from crs_assets.assets import data, encoders, probes, scores
from crs_assets.assets import report as reports
from crs_assets.assets.analyses import (
    audits,
    control_probes,
    degradations,
    depth,
    operating_points,
    penalties,
    recalibration,
    subgroups,
    uncertainty,
)
from crs_assets.partitions import Partitions

ANALYSES = (
    control_probes.control_probes,
    penalties.penalty_axes,
    recalibration.recalibration,
    recalibration.recalibration_summary,
    subgroups.subgroups,
    operating_points.operating_points,
    uncertainty.axis_replicates,
    uncertainty.uncertainty,
    depth.depth_features,
    depth.depth_sweep,
    degradations.extra_degraded_features,
    degradations.extra_degradation_metrics,
    audits.rank_agreement,
    audits.external_validity,
    audits.label_efficiency_audit,
    audits.perturbation_audit,
    audits.reference_invariance,
    audits.score_sensitivity,
    reports.report,
)


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
        *(analysis(partitions) for analysis in ANALYSES),
    ]
