"""How much of the ranking is the protocol's choice: other axes from the same runs, other anchors, other weights.

A dominance margin and other penalties are no part of it: they need resampled cases and other fits.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.agreement import COMPARISON_SCHEMA, as_pair, compare
from crs_assets.science.analyses.axis_variants import AS_PUBLISHED, VARIANTS, variant_profiles
from crs_assets.science.analyses.cells import mean_over, oriented
from crs_assets.science.analyses.rescoring import Profiles, chosen, mean_scores
from crs_assets.science.analyses.sensitivity import (
    TERMS,
    WEIGHTING_SCHEMA,
    moved_anchors,
    scores_with_anchors,
    weighting_sensitivity,
)
from crs_assets.science.protocol import AxisType, Protocol
from crs_assets.stages.analyses.published import Published, read_profiles, read_published
from crs_assets.stages.analyses.suite_analysis import Findings, SuiteAnalysis, read_all_runs, whole_cells

VARIANT_TABLE = "variants"
WEIGHTINGS = "weightings"
CRS = "crs"

VARIANT_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("kind", "variant", "quantity"), pl.Utf8),
    "max_change": pl.Float64,
    **COMPARISON_SCHEMA,
}
Row = dict[str, Any]


class ScoreSensitivity(SuiteAnalysis):
    """Rank agreement of the published score with other axes, anchors and readings; ranks over the weight simplex."""

    name = "score_sensitivity"
    code_version = "1"
    reads = ("scores", "profiles", "runs", "panel")

    def settings(self, bench: Bench) -> dict[str, Any]:
        """Changes, top group, and how scores are formed."""
        suite = bench.suite
        return {
            "sensitivity": suite.protocol.analyses.sensitivity.model_dump(mode="json"),
            "ranking": suite.protocol.analyses.ranking.model_dump(mode="json"),
            "readings": {
                r.id: [r.axes.model_dump(mode="json"), r.score.model_dump(mode="json")] for r in suite.readings
            },
        }

    def analyse(self, bench: Bench) -> Findings:
        """Compare every variant with the published ranking, then go over the weight simplex."""
        suite, published = bench.suite, read_published(bench)
        rows = [*_readings(bench, published), *_axes(bench, published), *_anchors(bench, published)]
        variants = pl.DataFrame(rows, schema=VARIANT_SCHEMA)
        weightings = pl.concat(_weightings(published, reading, bench) for reading in suite.readings)
        of_crs = variants.filter((pl.col("quantity") == CRS) & (pl.col("variant") != AS_PUBLISHED.name))
        first = weightings.filter(pl.col("reading") == suite.protocol.id).sort(
            "share_first", "encoder", descending=[True, False]
        )
        lowest = of_crs.drop_nulls("kendall_tau").sort("kendall_tau", "kind", "variant").head(1)
        return Findings(
            {VARIANT_TABLE: variants, WEIGHTINGS: weightings},
            {
                "ranked": len(published.ranked(suite.protocol.id)),
                "lowest_agreement": lowest.select("kind", "variant", "kendall_tau", "reversed_pairs").to_dicts(),
                "weightings": int(first["weightings"][0]),
                "first_by_share_of_weightings": dict(first.select("encoder", "share_first").iter_rows()),
            },
        )


def _readings(bench: Bench, published: Published) -> Iterator[Row]:
    """CRS under each further reading: the above-chance forms."""
    for other in bench.suite.readings[1:]:
        yield _row(bench, published, ("reading", other.id), published.scores(other.id))


def _axes(bench: Bench, published: Published) -> Iterator[Row]:
    """CRS with one axis measured another way, in the encoders and the panel alike; and the ranking by that axis."""
    reading, members = bench.suite.protocol, published.panel["encoders"]
    cells = whole_cells(bench)
    missing = sorted(
        f"{name}/{dataset}"
        for name, entry in members.items()
        for dataset in entry["datasets"]
        if dataset not in cells.get(name, {})
    )
    if missing:
        reason = f"the store lacks runs of panel members: {', '.join(missing[:5])}; run them: crs run"
        for variant in VARIANTS:
            yield {"kind": "axis", "variant": variant.name, "quantity": CRS, "n": 0, "reason": reason}
        return
    runs, ranked = read_all_runs(bench), published.ranked(reading.id)
    weights = {name: entry["weights"] for name, entry in read_profiles(bench, list(cells)).items()}
    for variant in VARIANTS:
        profiles = variant_profiles(runs, weights, reading, variant)
        scores = mean_scores(chosen(profiles, ranked), chosen(profiles, members), reading, published.common)
        yield _row(bench, published, ("axis", variant.name), scores)
        if variant.axis is not None:
            yield _axis_row(bench, published, variant.name, variant.axis, chosen(profiles, ranked))


def _axis_row(bench: Bench, published: Published, name: str, axis: AxisType, profiles: Profiles) -> Row:
    """Agreement of the ranking by an axis with the ranking by the same axis measured another way."""
    reading = bench.suite.protocol
    cells = pl.DataFrame(
        [
            {"encoder": encoder, "dataset": dataset, axis: cell[reading.id]["raw"][axis]}
            for encoder, entry in profiles.items()
            for dataset, cell in entry["datasets"].items()
        ],
        schema={"encoder": pl.Utf8, "dataset": pl.Utf8, axis: pl.Float64},
    )
    before, after = (
        dict(mean_over(table, published.common, (axis,)).select("encoder", oriented(axis, reading)).iter_rows())
        for table in (published.cells.filter(pl.col("reading") == reading.id), cells)
    )
    return {"kind": "axis", "variant": name, "quantity": axis, **_compared(bench, before, after)}


def _anchors(bench: Bench, published: Published) -> Iterator[Row]:
    """CRS with one anchor moved, for the encoders and the panel alike."""
    reading, change = bench.suite.protocol, bench.suite.protocol.analyses.sensitivity.anchor_change
    profiles = read_profiles(bench, published.ranked(reading.id))
    for name, axis, anchors in moved_anchors(reading.axes.anchors, change):
        scores = scores_with_anchors(profiles, published.panel["encoders"], reading, anchors, published.common)
        yield _row(bench, published, ("anchor", f"{axis}: {name}"), scores)


def _weightings(published: Published, reading: Protocol, bench: Bench) -> pl.DataFrame:
    terms = published.rows.filter(pl.col("reading") == reading.id).select("encoder", *TERMS)
    if terms.is_empty():
        table = pl.DataFrame(schema=WEIGHTING_SCHEMA)
    else:
        step = bench.suite.protocol.analyses.sensitivity.weight_step
        table = weighting_sensitivity(terms, reading.score, step=step)
    return table.with_columns(reading=pl.lit(reading.id))


def _row(bench: Bench, published: Published, key: tuple[str, str], scores: Mapping[str, float]) -> Row:
    kind, variant = key
    compared = _compared(bench, published.scores(bench.suite.protocol.id), scores)
    return {"kind": kind, "variant": variant, "quantity": CRS, **compared}


def _compared(bench: Bench, before: Mapping[str, float], after: Mapping[str, float]) -> Row:
    pair = as_pair(before, after)
    change = pair.select((pl.col("a") - pl.col("b")).abs().max()).item()
    return {"max_change": change, **compare(pair, top_k=bench.suite.protocol.analyses.ranking.top_k)}
