"""How much of the ranking is the protocol's choice: dominance, axes, penalties, anchors, readings, weights."""

from typing import Any

import polars as pl

from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.axis_variants import AS_PUBLISHED
from crs_assets.science.analyses.penalty_choices import PENALTY
from crs_assets.science.analyses.sensitivity import TERMS, WEIGHTING_SCHEMA, weighting_sensitivity
from crs_assets.science.protocol import Protocol
from crs_assets.stages.analyses.published import Published, read_published
from crs_assets.stages.analyses.score_variants import CRS, DOMINANCE, score_variants
from crs_assets.stages.analyses.suite_analysis import Findings, SuiteAnalysis

VARIANT_TABLE = "variants"
WEIGHTINGS = "weightings"
_AGREEMENT = ("kind", "variant", "kendall_tau", "reversed_pairs", "max_change")


class ScoreSensitivity(SuiteAnalysis):
    """Rank agreement of the published score with other choices of the protocol; ranks over the weight simplex."""

    name = "score_sensitivity"
    code_version = "3"
    reads = ("scores", "profiles", "runs", "panel")
    reads_if_there = ("penalties", "replicates")

    def settings(self, bench: Bench) -> dict[str, Any]:
        """Changes, top group, level of the margin, and how scores are formed."""
        suite = bench.suite
        return {
            "sensitivity": suite.protocol.analyses.sensitivity.model_dump(mode="json"),
            "ranking": suite.protocol.analyses.ranking.model_dump(mode="json"),
            "interval": suite.protocol.statistics.interval,
            "readings": {
                r.id: [r.axes.model_dump(mode="json"), r.score.model_dump(mode="json")] for r in suite.readings
            },
        }

    def analyse(self, bench: Bench) -> Findings:
        """Compare every variant with the published ranking, then go over the weight simplex."""
        suite, published = bench.suite, read_published(bench)
        variants = score_variants(bench, published)
        weightings = pl.concat(_weightings(published, reading, bench) for reading in suite.readings)
        of_crs = variants.filter((pl.col("quantity") == CRS) & (pl.col("variant") != AS_PUBLISHED.name))
        first = weightings.filter(pl.col("reading") == suite.protocol.id).sort(
            "share_first", "encoder", descending=[True, False]
        )
        return Findings(
            {VARIANT_TABLE: variants, WEIGHTINGS: weightings},
            {
                "ranked": len(published.ranked(suite.protocol.id)),
                "lowest_agreement": _lowest(of_crs),
                "with_dominance_margin": of_crs.filter(pl.col("kind") == DOMINANCE).select(*_AGREEMENT).to_dicts(),
                "penalties": of_crs.filter(pl.col("kind") == PENALTY).drop_nulls("kendall_tau").height,
                "lowest_agreement_over_penalties": _lowest(of_crs.filter(pl.col("kind") == PENALTY)),
                "weightings": int(first["weightings"][0]),
                "first_by_share_of_weightings": dict(first.select("encoder", "share_first").iter_rows()),
            },
        )


def _lowest(variants: pl.DataFrame) -> list[dict[str, Any]]:
    return (
        variants.drop_nulls("kendall_tau").sort("kendall_tau", "kind", "variant").head(1).select(_AGREEMENT).to_dicts()
    )


def _weightings(published: Published, reading: Protocol, bench: Bench) -> pl.DataFrame:
    terms = published.rows.filter(pl.col("reading") == reading.id).select("encoder", *TERMS)
    if terms.is_empty():
        table = pl.DataFrame(schema=WEIGHTING_SCHEMA)
    else:
        step = bench.suite.protocol.analyses.sensitivity.weight_step
        table = weighting_sensitivity(terms, reading.score, step=step)
    return table.with_columns(reading=pl.lit(reading.id))
