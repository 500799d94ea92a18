"""The rows of the analyses that the chapters speak of: headline reading, patients resampled, panel as published."""

import polars as pl

from crs_assets.report.evidence import Evidence
from crs_assets.report.numbers import interval
from crs_assets.report.tables import Certainty
from crs_assets.science.analyses.cells import mean_over
from crs_assets.science.analyses.depth_sweep import cell_depths
from crs_assets.science.analyses.recalibration_summary import ALL_CASES, OVERALL
from crs_assets.science.analyses.uncertainty import AGGREGATE, CENTRED, PANEL_FIXED, SEED
from crs_assets.science.protocol import AXES, CLEAN, TRANSFER
from crs_assets.science.scoring import normalize
from crs_assets.science.splits import CALIBRATION


def headline(evidence: Evidence, table: str, *, kind: str = CENTRED, peers: str = PANEL_FIXED) -> pl.DataFrame:
    """Rows of an uncertainty table under the headline's reading; what no peer enters is told once."""
    rows = evidence.table("uncertainty", table)
    chosen = (pl.col("reading") == evidence.reading) & (pl.col("kind") == kind)
    return rows.filter(chosen & (pl.col("peers").is_null() | (pl.col("peers") == peers)))


def headline_pairs(evidence: Evidence) -> pl.DataFrame:
    """Paired differences over the common data sets."""
    return headline(evidence, "differences").filter(pl.col("dataset") == AGGREGATE)


def score_rows(evidence: Evidence) -> pl.DataFrame:
    """CRS over the common data sets with its interval over patients and over seeds alone."""
    kinds = [headline(evidence, "intervals", kind=kind) for kind in (CENTRED, SEED)]
    return pl.concat(kinds).filter((pl.col("dataset") == AGGREGATE) & (pl.col("quantity") == "crs"))


def certainty_of(evidence: Evidence) -> Certainty | None:
    """Intervals of the scores, and how probable the first ranks are; None where that was not analysed."""
    if not evidence.has("uncertainty"):
        return None
    rows = headline(evidence, "intervals").filter((pl.col("dataset") == AGGREGATE) & (pl.col("quantity") == "crs"))
    ends = rows.drop_nulls(["low", "high"]).select("encoder", "low", "high")
    figures = evidence.analyses["uncertainty"].figures
    verdict = figures["verdict"] or {"top": {}}
    return Certainty(
        {name: interval(low, high).replace(" ", "\N{NO-BREAK SPACE}") for name, low, high in ends.iter_rows()},
        figures["top_k"],
        verdict["top"],
    )


def of_common(evidence: Evidence, table: pl.DataFrame) -> pl.DataFrame:
    """Rows of the ranked encoders on the data sets that the headline rests on."""
    ranked = [row["encoder"] for row in evidence.ranked]
    chosen = pl.col("encoder").is_in(ranked) & pl.col("dataset").is_in(evidence.page.board.common)
    return table.filter(chosen)


def in_order(evidence: Evidence, table: pl.DataFrame) -> pl.DataFrame:
    """Rows in the order of the headline's encoders, then of the suite's data sets, then as they are."""
    encoders = {row["encoder"]: place for place, row in enumerate(evidence.rows)}
    datasets = {name: place for place, name in enumerate(evidence.page.scored_datasets)}
    by = [
        pl.col(column).replace_strict(places, default=None, return_dtype=pl.Int64)
        for column, places in (("encoder", encoders), ("dataset", datasets))
    ]
    return table.sort(by, nulls_last=True, maintain_order=True)


def overall_recalibration(evidence: Evidence) -> pl.DataFrame:
    """What each map does over all cells, fitted on all calibration cases."""
    summary = evidence.table("recalibration_summary", "summary")
    return summary.filter(
        (pl.col("dataset") == OVERALL) & (pl.col("kind") == CALIBRATION) & (pl.col("cases") == ALL_CASES)
    )


def seed_means(runs: pl.DataFrame, columns: tuple[str, ...], *, by: str) -> pl.DataFrame:
    """Means over seeds; null where a seed did not converge or is not estimable.

    Args:
        runs: Run metrics.
        columns: What to take means of.
        by: What tells the runs of one cell and seed apart: ``condition`` or ``fraction``.

    Returns:
        ``encoder``, ``dataset``, ``by``, the columns, ``n_eval``; in alphabetical order.
    """
    usable = {name: pl.when(pl.col("converged") & pl.col(name).is_finite()).then(pl.col(name)) for name in columns}
    return (
        runs.sort("encoder", "dataset", by, "seed")
        .group_by("encoder", "dataset", by, maintain_order=True)
        .agg(
            *(pl.when(values.is_not_null().all()).then(values.mean()).alias(name) for name, values in usable.items()),
            pl.col("n_eval").max(),
        )
    )


def transfer_pairs(evidence: Evidence) -> pl.DataFrame:
    """Ranked encoders at each target, means over seeds, on the classes that both sides have.

    Returns:
        ``source``, ``target``, ``encoder``, ``auroc_source``, ``auroc_target``, ``ece_target``, ``ece_null_target``.
    """
    columns = ("auroc", "auroc_source", "ece", "ece_null")
    at_target = seed_means(_at_all_labels(evidence), columns, by="condition").filter(pl.col("condition") == TRANSFER)
    targets = evidence.table("external_validity", "predictors").select("source", "target").unique().drop_nulls()
    order = pl.DataFrame(
        {"encoder": [row["encoder"] for row in evidence.ranked]}, schema={"encoder": pl.Utf8}
    ).with_row_index("place")
    return (
        at_target.join(targets.sort("source"), left_on="dataset", right_on="source", how="inner")
        .join(order, on="encoder", how="inner")
        .sort("dataset", "place")
        .select(
            source="dataset",
            target="target",
            encoder="encoder",
            auroc_source="auroc_source",
            auroc_target="auroc",
            ece_target="ece",
            ece_null_target="ece_null",
        )
    )


def mean_curves(evidence: Evidence) -> pl.DataFrame:
    """AUROC and ECE of each ranked encoder and condition, mean over the common data sets, whole ones only."""
    conditions = of_common(evidence, evidence.table("perturbation_audit", "conditions"))
    common = evidence.page.board.common
    tables = [
        mean_over(rows, common, ("auroc", "ece")).with_columns(condition=pl.lit(name[0], dtype=pl.Utf8))
        for name, rows in conditions.group_by("condition", maintain_order=True)
    ]
    schema = {"encoder": pl.Utf8, "auroc": pl.Float64, "ece": pl.Float64, "condition": pl.Utf8}
    return pl.concat([pl.DataFrame(schema=schema), *(table.select(*schema) for table in tables)])


def mean_profiles(evidence: Evidence) -> dict[str, dict[str, float]]:
    """Encoder or control -> axis -> z over the common data sets, of those that have them all; the board's order."""
    protocol, common = evidence.page.protocol, evidence.page.board.common
    known = evidence.cells.filter(pl.col("dataset").is_in(common)).drop_nulls(list(AXES))
    if known.is_empty():
        return {}
    z = normalize(known.select(AXES).to_numpy(), protocol.axes.anchors, decimals=protocol.axes.score_decimals)
    cells = known.select("encoder", "dataset").with_columns(
        **{axis: pl.Series(z[:, at]) for at, axis in enumerate(AXES)}
    )
    means = {row["encoder"]: row for row in mean_over(cells, common, AXES).iter_rows(named=True)}
    shown = [*(row["encoder"] for row in evidence.ranked), *evidence.controls]
    return {name: {axis: means[name][axis] for axis in AXES} for name in shown if name in means}


def clean_ece(evidence: Evidence) -> pl.DataFrame:
    """ECE, null band and number of test images of every cell on clean images."""
    means = seed_means(_at_all_labels(evidence), ("auroc", "ece", "ece_null"), by="condition")
    return means.filter(pl.col("condition") == CLEAN)


def label_ece(evidence: Evidence) -> pl.DataFrame:
    """ECE of every cell on clean images by the share of training labels: ``encoder``, ``dataset``, ``fraction``."""
    clean = evidence.runs.filter(pl.col("condition") == CLEAN)
    return seed_means(clean, ("ece",), by="fraction").drop("n_eval")


def depth_means(evidence: Evidence) -> pl.DataFrame:
    """Every depth of every cell, and between which values AUROC lies over the seeds.

    Returns:
        The columns of ``cell_depths``, ``auroc_low``, ``auroc_high``; null where the mean is.
    """
    rows, key = evidence.table("depth_sweep", "depths"), ["encoder", "dataset", "share"]
    ends = rows.group_by(key).agg(auroc_low=pl.col("auroc").min(), auroc_high=pl.col("auroc").max())
    is_known = pl.col("auroc").is_finite()
    means = (
        cell_depths(rows)
        .join(ends, on=key, how="left", maintain_order="left")
        .with_columns(pl.when(is_known).then(pl.col(name)).alias(name) for name in ("auroc_low", "auroc_high"))
    )
    return in_order(evidence, means)


def _at_all_labels(evidence: Evidence) -> pl.DataFrame:
    return evidence.runs.filter(pl.col("fraction") == evidence.page.protocol.data.fractions[-1])
