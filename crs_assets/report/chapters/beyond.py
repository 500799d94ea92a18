"""Chapters beyond the frozen, clean view: other depths of the network, and degradations that no score knows."""

from collections.abc import Sequence

import polars as pl

from crs_assets.report.chapters.ranking import ENCODER
from crs_assets.report.content import Block, Folded, Text, number, plain_table, word
from crs_assets.report.evidence import Evidence
from crs_assets.report.numbers import percent
from crs_assets.report.tables import Cell, Column, Table
from crs_assets.science.analyses.depth_sweep import cell_depths, depth_gains
from crs_assets.science.images.modalities import modality_frame


def depth(evidence: Evidence) -> Sequence[Block]:
    """Whether an earlier block would have served better, chosen on validation and judged on test."""
    rows = evidence.table("depth_sweep", "depths")
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        Column("Chosen", "Share of the blocks that validation chose, seed by seed", is_number=False),
        Column("AUROC, own depth"),
        Column("AUROC, chosen", "Chosen on validation, judged on test; higher is better"),
        Column("Gain"),
        Column("ECE, own depth"),
        Column("ECE, chosen", "Lower is better"),
    )
    gains = [
        (
            word(row["encoder"]),
            word(row["dataset"]),
            word(", ".join(percent(share) for share in row["shares_chosen"])),
            *(number(row[name]) for name in ("auroc_own", "auroc_chosen", "auroc_gain", "ece_own", "ece_chosen")),
        )
        for row in depth_gains(rows).iter_rows(named=True)
    ]
    return [
        Text(
            "Probes on features of a quarter, half, three quarters and all of the blocks up to the encoder's own tap. "
            "Before the tap, features are the mean over positions."
        ),
        plain_table("The depth that validation chooses against the encoder's own", columns, gains),
        Folded("Every depth", (_every_depth(rows),)),
    ]


def further_degradations(evidence: Evidence) -> Sequence[Block]:
    """What sensor noise, defocus and exposure do to the published probes; beside every score."""
    rows = evidence.table("extra_degradation_metrics", "runs")
    usable = pl.col("converged").all()
    means = (
        rows.sort("encoder", "dataset", "condition", "seed")
        .group_by("encoder", "dataset", "condition", maintain_order=True)
        .agg(*(pl.when(usable).then(pl.col(name).mean()).alias(name) for name in ("auroc_drop", "ece_rise")))
    )
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        Column("Degradation", "Family and severity", is_number=False),
        Column("AUROC drop", "Against clean images; lower is better"),
        Column("ECE rise", "Against clean images; lower is better"),
    )
    cells = [
        (word(row["encoder"]), word(row["dataset"]), word(row["condition"].replace("_", " ")),
         number(row["auroc_drop"]), number(row["ece_rise"]))
        for row in means.iter_rows(named=True)
    ]  # fmt: skip
    return [
        Text("The published probes, not fitted anew. No score knows these degradations."),
        Folded("Every encoder, data set and severity", (plain_table("Beyond the protocol", columns, cells),)),
        _suitability(),
    ]


def _every_depth(rows: pl.DataFrame) -> Table:
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        Column("Blocks"),
        Column("Validation log loss", "Lower is better; decides"),
        Column("AUROC"),
        Column("ECE"),
        Column("Chosen", "In so many seeds"),
    )
    cells = [
        (
            word(row["encoder"]),
            word(row["dataset"]),
            Cell(percent(row["share"]), row["share"]),
            *(number(row[name]) for name in ("validation_log_loss", "auroc", "ece")),
            Cell(f"{row['times_chosen']} of {row['seeds']}", row["times_chosen"]),
        )
        for row in cell_depths(rows).iter_rows(named=True)
    ]
    return plain_table("Test AUROC and ECE at each depth, means over seeds", columns, cells)


def _suitability() -> Table:
    columns = (
        Column("Degradation", is_number=False),
        Column("Modality", is_number=False),
        Column("Suits", is_number=False),
        Column("Because", is_number=False),
    )
    cells = [
        (word(row["degradation"].replace("_", " ")), word(row["modality"]), word(row["suits"]), Cell(row["because"]))
        for row in modality_frame().iter_rows(named=True)
    ]
    return plain_table("Which degradation is physically sensible where", columns, cells)
