"""Operating points and net benefit of each encoder, data set and seed."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.assets.analyses.common import on_probes
from crs_assets.assets.describe import markdown_table
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.operating_cases import RECALIBRATED
from crs_assets.stages.analyses.operating_points import OperatingPoints, read_net_benefit, read_operating_points
from crs_assets.stages.stage import Outcome


def operating_points(partitions: Partitions) -> dg.AssetsDefinition:
    """Thresholds for target sensitivities and specificities, and what they do on the test set."""
    return on_probes(partitions, OperatingPoints(), describe_operating_points, "probe_predictions")


def describe_operating_points(bench: Bench, outcome: Outcome) -> Mapping[str, Any]:
    """Sensitivity and specificity at every threshold, and net benefit at the grid of threshold probabilities."""
    points = read_operating_points(bench, *outcome.parts).filter(pl.col("reason").is_null())
    benefit = read_net_benefit(bench, *outcome.parts).filter(pl.col("reason").is_null())
    kinds = ("label", "scores", "target_kind", "target", "threshold")
    rates = [f"{rate}{end}" for rate in ("sensitivity", "specificity") for end in ("", "_low", "_high")]
    grid = bench.suite.protocol.analyses.operating_points.net_benefit_thresholds
    at = [pl.col("net_benefit").filter(pl.col("threshold") == place).first().alias(f"at {place:g}") for place in grid]
    return {
        "dagster/row_count": outcome.manifest.summary["points"],
        **{name: value for name, value in outcome.manifest.summary.items() if value is not None},
        **_mean_specificities(points),
        "operating_points": markdown_table(points.select(*kinds, *rates, "interval")),
        "net_benefit": markdown_table(benefit.group_by("label", "scores", maintain_order=True).agg(at)),
    }


def _mean_specificities(points: pl.DataFrame) -> Mapping[str, float]:
    """Test specificity at each target sensitivity, mean over labels, recalibrated: a figure to follow over cells."""
    chosen = points.filter((pl.col("scores") == RECALIBRATED) & (pl.col("target_kind") == "sensitivity"))
    means = chosen.group_by("target", maintain_order=True).agg(pl.col("specificity").mean())
    return {f"specificity at sensitivity {target:g}": value for target, value in means.iter_rows()}
