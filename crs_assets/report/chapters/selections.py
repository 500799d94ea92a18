"""The rows of the analyses that the chapters speak of: headline reading, patients resampled, panel as published."""

import polars as pl

from crs_assets.report.evidence import Evidence
from crs_assets.science.analyses.cells import mean_over
from crs_assets.science.analyses.recalibration_summary import ALL_CASES, OVERALL
from crs_assets.science.analyses.uncertainty import AGGREGATE, CASE, PANEL_FIXED, SEED
from crs_assets.science.protocol import AXES, CLEAN, TRANSFER
from crs_assets.science.scoring import normalize
from crs_assets.science.splits import CALIBRATION


def headline(evidence: Evidence, table: str, *, kind: str = CASE, peers: str = PANEL_FIXED) -> pl.DataFrame:
    """Rows of an uncertainty table under the headline's reading; what no peer enters is told once."""
    rows = evidence.table("uncertainty", table)
    chosen = (pl.col("reading") == evidence.reading) & (pl.col("kind") == kind)
    return rows.filter(chosen & (pl.col("peers").is_null() | (pl.col("peers") == peers)))


def headline_pairs(evidence: Evidence) -> pl.DataFrame:
    """Paired differences over the common data sets."""
    return headline(evidence, "differences").filter(pl.col("dataset") == AGGREGATE)


def score_rows(evidence: Evidence) -> pl.DataFrame:
    """CRS over the common data sets with its interval over patients and over seeds alone."""
    kinds = [headline(evidence, "intervals", kind=kind) for kind in (CASE, SEED)]
    return pl.concat(kinds).filter((pl.col("dataset") == AGGREGATE) & (pl.col("quantity") == "crs"))


def of_common(evidence: Evidence, table: pl.DataFrame) -> pl.DataFrame:
    """Rows of the ranked encoders on the data sets that the headline rests on."""
    ranked = [row["encoder"] for row in evidence.ranked]
    chosen = pl.col("encoder").is_in(ranked) & pl.col("dataset").is_in(evidence.page.board.common)
    return table.filter(chosen)


def overall_recalibration(evidence: Evidence) -> pl.DataFrame:
    """What each map does over all cells, fitted on all calibration cases."""
    summary = evidence.table("recalibration_summary", "summary")
    return summary.filter(
        (pl.col("dataset") == OVERALL) & (pl.col("kind") == CALIBRATION) & (pl.col("cases") == ALL_CASES)
    )


def seed_means(runs: pl.DataFrame, columns: tuple[str, ...], *, full_fraction: float) -> pl.DataFrame:
    """Means over seeds at all labels; null where a seed did not converge or is not estimable.

    Returns:
        ``encoder``, ``dataset``, ``condition``, the columns, ``n_eval``; in order of the data sets and encoders.
    """
    usable = {name: pl.when(pl.col("converged") & pl.col(name).is_finite()).then(pl.col(name)) for name in columns}
    return (
        runs.filter(pl.col("fraction") == full_fraction)
        .sort("encoder", "dataset", "condition", "seed")
        .group_by("encoder", "dataset", "condition", maintain_order=True)
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
    full = evidence.page.protocol.data.fractions[-1]
    columns = ("auroc", "auroc_source", "ece", "ece_null")
    at_target = seed_means(evidence.runs, columns, full_fraction=full).filter(pl.col("condition") == TRANSFER)
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
    full = evidence.page.protocol.data.fractions[-1]
    means = seed_means(evidence.runs, ("auroc", "ece", "ece_null"), full_fraction=full)
    return means.filter(pl.col("condition") == CLEAN)
