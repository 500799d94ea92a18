"""Analyses of stored profiles, runs and scores: one asset each, without partitions."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from crs_assets.assets.analyses import pictures
from crs_assets.assets.analyses.pictures import Pictures
from crs_assets.assets.describe import markdown_table
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Describe, Recorded
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench
from crs_assets.stages.analyses import external_validity as validity
from crs_assets.stages.analyses import rank_agreement as agreement
from crs_assets.stages.analyses import reference_invariance as invariance
from crs_assets.stages.analyses import run_audits
from crs_assets.stages.analyses import score_sensitivity as sensitivity
from crs_assets.stages.analyses.suite_analysis import SuiteAnalysis, read_table
from crs_assets.stages.stage import Outcome

GROUP = "analyses"
ROWS_SHOWN = 120
UPSTREAM: Mapping[str, str] = {
    "scores": "crs",
    "profiles": "axis_profile",
    "runs": "run_metrics",
    "control_probes": "control_probes",
    "penalties": "penalty_axes",
    "replicates": "axis_replicates",
    "panel": "reference_panel",
}
"""Source of an analysis -> the asset that makes it."""


def rank_agreement(partitions: Partitions) -> dg.AssetsDefinition:
    """AUROC, axes, readings and control probes against CRS."""
    return _asset(partitions, agreement.RankAgreementAnalysis(), pictures.of_agreement, agreement.AGREEMENT)


def external_validity(partitions: Partitions) -> dg.AssetsDefinition:
    """What CRS and AUROC tell of a transfer target, and of a data set held out."""
    return _asset(partitions, validity.ExternalValidity(), pictures.of_transfer, validity.PREDICTORS, validity.FAMILIES)


def label_efficiency_audit(partitions: Partitions) -> dg.AssetsDefinition:
    """Learning curves and what their summaries measure."""
    return _asset(partitions, run_audits.LabelEfficiencyAudit(), pictures.of_label_efficiency, run_audits.CORRELATIONS)


def perturbation_audit(partitions: Partitions) -> dg.AssetsDefinition:
    """What degraded images do to stated probabilities."""
    return _asset(partitions, run_audits.PerturbationAudit(), pictures.of_perturbations, run_audits.CELLS)


def reference_invariance(partitions: Partitions) -> dg.AssetsDefinition:
    """Whether published scores move when encoders arrive."""
    return _asset(partitions, invariance.ReferenceInvariance(), pictures.of_invariance, invariance.DISPLACEMENT)


def score_sensitivity(partitions: Partitions) -> dg.AssetsDefinition:
    """How much of the ranking is the protocol's choice."""
    return _asset(
        partitions,
        sensitivity.ScoreSensitivity(),
        pictures.of_sensitivity,
        sensitivity.VARIANT_TABLE,
        sensitivity.WEIGHTINGS,
    )


def _asset(partitions: Partitions, stage: SuiteAnalysis, draw: Pictures, *shown: str) -> dg.AssetsDefinition:
    prefix = partitions.suite.id
    deps = tuple(dg.AssetDep(dg.AssetKey([prefix, UPSTREAM[name]])) for name in (*stage.reads, *stage.reads_if_there))
    recorded = Recorded(stage, dg.AssetKey([prefix, stage.name]), _describe(stage.name, draw, *shown))
    declared = Declared(recorded, GROUP, frozenset({"polars", "parquet"}), deps)
    return stage_assets(partitions.suite, Shared(stage.name), [declared])


def _describe(analysis: str, draw: Pictures, *shown: str) -> Describe:
    """Key figures one by one, a picture, and the head of some tables."""

    def describe(bench: Bench, outcome: Outcome) -> Mapping[str, Any]:
        tables = {name: read_table(bench, analysis, name) for name in shown}
        return {
            "dagster/row_count": tables[shown[0]].height,
            **{name: _metadata(value) for name, value in outcome.manifest.summary.items() if value is not None},
            **draw(bench),
            **{f"table_{name}": markdown_table(table.head(ROWS_SHOWN)) for name, table in tables.items()},
        }

    return describe


def _metadata(value: Any) -> Any:
    return dg.MetadataValue.json(value) if isinstance(value, dict | list) else value
