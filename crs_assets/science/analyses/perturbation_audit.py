"""What degraded images do to stated probabilities, beside what they do to the ranking of patients."""

from typing import Any

import polars as pl

from crs_assets.science.analyses.correlation import Correlation, pearson
from crs_assets.science.protocol import CLEAN, Protocol

_NUMBERS = ("auroc", "ece", "ece_null")
CONDITION_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("encoder", "dataset", "condition", "perturbation"), pl.Utf8),
    "severity": pl.Int64,
    **dict.fromkeys((*_NUMBERS, "auroc_loss", "ece_rise"), pl.Float64),
    "seeds": pl.Int64,
}
CELL_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("encoder", "dataset"), pl.Utf8),
    **dict.fromkeys(("auroc_clean", "ece_clean", "ece_null_clean"), pl.Float64),
    **dict.fromkeys(("auroc_loss_mean", "auroc_loss_worst", "ece_rise_mean", "ece_rise_peak"), pl.Float64),
    "peak_condition": pl.Utf8,
    "conditions": pl.Int64,
    "reason": pl.Utf8,
}


def condition_changes(runs: pl.DataFrame, protocol: Protocol) -> pl.DataFrame:
    """Change of AUROC and ECE of each cell under each degradation, at all labels; means over seeds.

    Args:
        runs: Run metrics of every seed: ``encoder``, ``dataset``, ``seed``, ``fraction``, ``condition``, ``auroc``,
            ``ece``, ``ece_null``, ``converged``.
        protocol: Degradations, and the fraction that stands for all labels.

    Returns:
        One row per cell and condition (``CONDITION_SCHEMA``), clean among them: ``auroc_loss`` = clean minus degraded,
        ``ece_rise`` = degraded minus clean, both signed, positive = worse; ``ece_null`` is the upper end of what a
        perfectly calibrated predictor's ECE would be. Null where a seed is not estimable or did not converge.
    """
    order = {CLEAN: (CLEAN, 0), **{c.name: (c.perturbation, c.severity) for c in protocol.degradations()}}
    conditions = pl.DataFrame(
        [(name, *parts) for name, parts in order.items()],
        schema={"condition": pl.Utf8, "perturbation": pl.Utf8, "severity": pl.Int64},
        orient="row",
    ).with_row_index("order")
    usable = [pl.when(pl.col("converged") & pl.col(name).is_finite()).then(pl.col(name)) for name in _NUMBERS]
    means = (
        runs.filter(pl.col("fraction") == protocol.data.fractions[-1])
        .join(conditions, on="condition")
        .sort("encoder", "dataset", "order", "seed")
        .group_by("encoder", "dataset", "condition", "perturbation", "severity", maintain_order=True)
        .agg(
            *(pl.when(e.is_not_null().all()).then(e.mean()).alias(n) for e, n in zip(usable, _NUMBERS, strict=True)),
            seeds=pl.len().cast(pl.Int64),
        )
    )
    clean = means.filter(pl.col("condition") == CLEAN).select(
        "encoder", "dataset", clean_auroc="auroc", clean_ece="ece"
    )
    return (
        means.join(clean, on=("encoder", "dataset"), how="left", maintain_order="left")
        .with_columns(auroc_loss=pl.col("clean_auroc") - pl.col("auroc"), ece_rise=pl.col("ece") - pl.col("clean_ece"))
        .select(*CONDITION_SCHEMA)
    )


def cell_changes(changes: pl.DataFrame) -> pl.DataFrame:
    """Mean and largest loss of AUROC, mean and peak rise of ECE of each cell, over its degradations.

    Args:
        changes: From ``condition_changes``.

    Returns:
        One row per cell (``CELL_SCHEMA``), signed; null with the reason where a condition is not estimable.
    """
    rows = []
    for (encoder, dataset), frame in changes.group_by("encoder", "dataset", maintain_order=True):
        clean = frame.filter(pl.col("condition") == CLEAN).row(0, named=True)
        degraded = frame.filter(pl.col("condition") != CLEAN)
        known = degraded.drop_nulls(("auroc_loss", "ece_rise"))
        whole = known.height == degraded.height and known.height > 0
        rows.append(
            {
                "encoder": encoder,
                "dataset": dataset,
                "auroc_clean": clean["auroc"],
                "ece_clean": clean["ece"],
                "ece_null_clean": clean["ece_null"],
                **(_summary(known) if whole else {}),
                "conditions": known.height,
                "reason": None if whole else f"{degraded.height - known.height} condition(s) not estimable",
            }
        )
    return pl.DataFrame(rows, schema=CELL_SCHEMA)


def loss_and_rise(cells: pl.DataFrame) -> Correlation:
    """Pearson correlation of mean AUROC loss and mean ECE rise over cells.

    Cells of one encoder, or of one data set, are not independent: n counts cells, and there is no interval.

    Args:
        cells: From ``cell_changes``.
    """
    known = cells.drop_nulls(("auroc_loss_mean", "ece_rise_mean"))
    return pearson(known["auroc_loss_mean"], known["ece_rise_mean"])


def _summary(degraded: pl.DataFrame) -> dict[str, Any]:
    peak = degraded["ece_rise"].arg_max()
    return {
        "auroc_loss_mean": degraded["auroc_loss"].mean(),
        "auroc_loss_worst": degraded["auroc_loss"].max(),
        "ece_rise_mean": degraded["ece_rise"].mean(),
        "ece_rise_peak": degraded["ece_rise"].max(),
        "peak_condition": None if peak is None else degraded["condition"][peak],
    }
