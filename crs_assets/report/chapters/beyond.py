"""Chapters beyond the frozen, clean view: other depths of the network, and degradations that no score knows."""

from collections.abc import Iterator, Sequence

import polars as pl

from crs_assets.report.chapters.ranking import ENCODER
from crs_assets.report.chapters.selections import depth_means, in_order, of_common
from crs_assets.report.content import Block, Figure, Folded, Text, count, number, plain_table, word
from crs_assets.report.drawings.curves import depth_curves
from crs_assets.report.drawings.looks import looks
from crs_assets.report.evidence import Evidence
from crs_assets.report.names import condition_name, degradation_name
from crs_assets.report.numbers import change, interval, listed, percent
from crs_assets.report.tables import Cell, Column, Table
from crs_assets.science.analyses.depth_sweep import depth_gains
from crs_assets.science.images.modalities import modality_frame

CHANGES = ("auroc_drop", "ece_rise")


def depth(evidence: Evidence) -> Sequence[Block]:
    """Whether an earlier block would have served better, chosen on validation and judged on test."""
    rows, means = evidence.table("depth_sweep", "depths"), depth_means(evidence)
    shares = listed([percent(share) for share in sorted(set(means["share"]))])
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        Column("Chosen", "Share of the blocks that validation chose, seed by seed", is_number=False),
        Column("AUROC, own depth"),
        Column("AUROC, chosen", "Chosen on validation, judged on test; higher is better"),
        Column("Gain", "AUROC at the chosen depth minus at its own; higher is better"),
        Column("ECE, own depth"),
        Column("ECE, chosen", "Lower is better"),
    )
    gains = [
        (
            word(row["encoder"]),
            word(row["dataset"]),
            word(", ".join(percent(share) for share in row["shares_chosen"])),
            number(row["auroc_own"]),
            number(row["auroc_chosen"]),
            Cell(change(row["auroc_gain"]), row["auroc_gain"]),
            number(row["ece_own"]),
            number(row["ece_chosen"]),
        )
        for row in in_order(evidence, depth_gains(rows)).iter_rows(named=True)
    ]
    return [
        Text(
            f"Probes on features after {shares} of the blocks; 100 % is where the encoder's own features are taken. At "
            "earlier blocks they are the mean over positions."
        ),
        *_depth_picture(evidence, means),
        plain_table("The depth that validation chooses against the encoder's own", columns, gains),
        Folded("Every depth as a table", (_every_depth(means),)),
    ]


def further_degradations(evidence: Evidence) -> Sequence[Block]:
    """What sensor noise, defocus and exposure do to the published probes; beside every score."""
    rows = evidence.table("extra_degradation_metrics", "runs")
    usable = pl.col("converged").all()
    means = (
        rows.sort("encoder", "dataset", "condition", "seed")
        .group_by("encoder", "dataset", "condition", maintain_order=True)
        .agg(pl.when(usable).then(pl.col(*CHANGES).mean()))
    )
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        Column("Degradation", "Family and severity", is_number=False),
        Column("AUROC drop", "Against clean images; lower is better"),
        Column("ECE rise", "Against clean images; lower is better"),
    )
    cells = [
        (
            word(row["encoder"]),
            word(row["dataset"]),
            word(condition_name(row["condition"])),
            *(Cell(change(row[name]), row[name]) for name in CHANGES),
        )
        for row in in_order(evidence, means).iter_rows(named=True)
    ]
    return [
        Text("The published probes, not fitted anew. No score knows these degradations."),
        _mean_changes(of_common(evidence, means)),
        Folded("Every encoder, data set and severity", (plain_table("Beyond the protocol", columns, cells),)),
        Folded("Which degradation is physically sensible where?", (_suitability(),)),
    ]


def _depth_picture(evidence: Evidence, means: pl.DataFrame) -> Iterator[Block]:
    """Curves of the ranked encoders; none where no ranked encoder was swept."""
    styles = looks(evidence.ranked)
    swept = means.filter(pl.col("encoder").is_in(list(styles)))["dataset"].to_list()
    shown = [name for name in evidence.page.scored_datasets if name in swept]
    if shown:
        yield Figure(
            "depth",
            "AUROC on clean test images by share of the blocks, with the depths that validation chose.",
            "Curves of each ranked encoder's AUROC against the share of its blocks, a panel per data set; bars span "
            "the seeds, rings mark the depths that validation chose. The same numbers stand in the tables below.",
            depth_curves(means, shown, styles),
        )


def _every_depth(means: pl.DataFrame) -> Table:
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        Column("Blocks"),
        Column("Validation log loss", "Lower is better; decides"),
        Column("AUROC", "On test; higher is better"),
        Column("Over seeds", "Lowest and highest AUROC of the seeds"),
        Column("ECE", "On test; lower is better"),
        Column("Chosen", "In so many seeds"),
    )
    cells = [
        (
            word(row["encoder"]),
            word(row["dataset"]),
            Cell(percent(row["share"]), row["share"]),
            *(number(row[name]) for name in ("validation_log_loss", "auroc")),
            Cell(interval(row["auroc_low"], row["auroc_high"]), row["auroc_low"]),
            number(row["ece"]),
            Cell(f"{row['times_chosen']} of {row['seeds']}", row["times_chosen"]),
        )
        for row in means.iter_rows(named=True)
    ]
    return plain_table("Test AUROC and ECE at each depth, means over seeds", columns, cells)


def _mean_changes(means: pl.DataFrame) -> Table:
    columns = (
        Column("Degradation", "Family and severity", is_number=False),
        Column("Mean loss of AUROC", "Against clean images; lower is better"),
        Column("Mean rise of ECE", "Against clean images; lower is better"),
        Column("Cells"),
    )
    known = means.drop_nulls(CHANGES).group_by("condition", maintain_order=True)
    cells = [
        (
            word(condition_name(row["condition"])),
            *(Cell(change(row[name]), row[name]) for name in CHANGES),
            count(row["cells"]),
        )
        for row in known.agg(pl.col(*CHANGES).mean(), cells=pl.len()).sort("condition").iter_rows(named=True)
    ]
    return plain_table("Means over the ranked encoders and common data sets, beyond the protocol", columns, cells)


def _suitability() -> Table:
    columns = (
        Column("Degradation", is_number=False),
        Column("Modality", is_number=False),
        Column("Suits", is_number=False),
        Column("Because", is_number=False, is_status=True),
    )
    cells = [
        (word(degradation_name(row["degradation"])), word(row["modality"]), word(row["suits"]), Cell(row["because"]))
        for row in modality_frame().iter_rows(named=True)
    ]
    return plain_table("Which degradation is physically sensible where", columns, cells)
