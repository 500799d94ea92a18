"""Chapters on what encoders make of fewer labels and of degraded images."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from crs_assets.report.chapters.ranking import ENCODER
from crs_assets.report.chapters.selections import label_ece, mean_curves, of_common
from crs_assets.report.content import Block, Figure, Folded, Items, Text, number, plain_table, word
from crs_assets.report.drawings.curves import METRICS, label_curves, severity_curves
from crs_assets.report.drawings.looks import looks
from crs_assets.report.evidence import Evidence
from crs_assets.report.findings_elsewhere import confidence_before_ranking
from crs_assets.report.names import condition_name, degradation_name
from crs_assets.report.numbers import NONE, change
from crs_assets.report.tables import Cell, Column, Table
from crs_assets.science.protocol import CLEAN

ANALYSIS = "label_efficiency_audit"


def fewer_labels(evidence: Evidence) -> Sequence[Block]:
    """Learning curves, what the measures of them measure, who reaches whom."""
    page, ece = evidence.page, label_ece(evidence)
    curves = evidence.table(ANALYSIS, "curves").join(ece, on=["encoder", "dataset", "fraction"], how="left")
    shown = [name for name in page.scored_datasets if name in curves["dataset"].to_list()]
    return [
        Text(
            "The axis is the share of the full AUROC that is kept with fewer labels. It flatters encoders near chance, "
            "which have little to lose; the level itself stands beside it."
        ),
        Figure(
            "label-efficiency",
            "AUROC and ECE on clean images by share of training labels.",
            "Learning curves of each ranked encoder, AUROC above and ECE below, a panel per data set. The same numbers "
            "stand in the tables below.",
            label_curves(curves, shown, looks(evidence.ranked)),
        ),
        Folded("The same as tables", tuple(_curve_table(evidence, curves, *metric) for metric in METRICS)),
        Items(tuple(_correlations(evidence))),
        *_reach(evidence),
    ]


def degraded_images(evidence: Evidence) -> Sequence[Block]:
    """Curves of AUROC and ECE, the change of each cell, and where confidence breaks before ranking."""
    conditions = of_common(evidence, evidence.table("perturbation_audit", "conditions"))
    figures = evidence.analyses["perturbation_audit"].figures
    r = figures["pearson_r"]
    told = (
        f"Over {figures['cells']} cells, Pearson's r of mean AUROC loss and mean ECE rise is {change(r)}; cells of one "
        "encoder or data set are not independent, so there is no interval."
        if r is not None
        else f"The correlation of AUROC loss and ECE rise is not estimable: {figures['reason']}."
    )
    return [
        Figure(
            "degradations",
            "AUROC and ECE by family and severity of the degradation.",
            "Curves of AUROC above and ECE below against severity, a column per family of degradations. Losses and "
            "rises of each cell stand in the table below.",
            severity_curves(mean_curves(evidence), evidence.page.protocol, looks(evidence.ranked)),
        ),
        Items((*confidence_before_ranking(conditions), told)),
        _change_table(evidence),
        Folded("Each degradation", (_condition_table(evidence, conditions),)),
    ]


def _curve_table(evidence: Evidence, curves: pl.DataFrame, metric: str, label: str) -> Table:
    fractions = sorted(set(curves["fraction"]))
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        *(Column(f"{label} at {100 * fraction:g} %", "Mean over seeds; below it the mean number of images fitted on")
          for fraction in fractions),
    )  # fmt: skip
    rows = []
    for name in evidence.encoders:
        for dataset in evidence.page.scored_datasets:
            own = {
                row["fraction"]: row
                for row in curves.filter((pl.col("encoder") == name) & (pl.col("dataset") == dataset)).iter_rows(
                    named=True
                )
            }
            if own:
                cells = [_level(own.get(fraction), metric) for fraction in fractions]
                rows.append((word(name), word(dataset), *cells))
    return plain_table(f"{label} by share of training labels", columns, rows)


def _level(row: Mapping[str, Any] | None, metric: str) -> Cell:
    """A metric at a label fraction, and how many images that is."""
    return Cell(NONE) if row is None else number(row[metric], f"{row['n_fit']:.0f} images")


def _correlations(evidence: Evidence) -> Iterator[str]:
    for row in evidence.table(ANALYSIS, "correlations").iter_rows(named=True):
        name = "the area under the curve" if row["measure"] == "aulc" else row["measure"]
        found = f"Spearman {change(row['rho'])}" if row["rho"] is not None else f"not estimable ({row['reason']})"
        yield f"{name[0].upper()}{name[1:]} with the AUROC at all labels, over {row['n']} {row['scope']}: {found}."


def _reach(evidence: Evidence) -> Iterator[Block]:
    """At which share of labels others reach what AUROC's first has with all of them."""
    if not evidence.ranked:
        return
    reference = min(evidence.ranked, key=lambda row: (row["rank_auroc"], row["encoder"]))["encoder"]
    table = evidence.table(ANALYSIS, "reach").filter(pl.col("reference") == reference)
    if table.is_empty():
        return
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        Column("To reach", f"AUROC of {reference} with all labels"),
        Column("Share, mean", "Smallest share of labels at which the mean over seeds reaches it"),
        Column("Share, lower bound", "The same for the lower end of the seed interval"),
    )
    order = {name: place for place, name in enumerate(evidence.encoders)}
    rows = [
        (
            word(row["encoder"]),
            word(row["dataset"]),
            number(row["reference_auroc"]),
            _share(row["fraction"]),
            _share(row["fraction_lower_bound"]),
        )
        for row in sorted(
            table.filter(pl.col("encoder").is_in(list(order))).iter_rows(named=True),
            key=lambda row: (row["dataset"], order[row["encoder"]]),
        )
    ]
    caption = f"Share of labels that reaches the AUROC of {reference} with all labels"
    yield Folded(f"With how few labels is {reference} reached?", (plain_table(caption, columns, rows),))


def _share(fraction: float | None) -> Cell:
    return Cell("not reached") if fraction is None else Cell(f"{100 * fraction:g} %", fraction)


def _change_table(evidence: Evidence) -> Table:
    cells = evidence.table("perturbation_audit", "cells")
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        Column("AUROC, clean"),
        Column("Mean loss", "Mean loss of AUROC over all degradations; lower is better"),
        Column("Worst loss", "Largest loss of AUROC; lower is better"),
        Column("ECE, clean"),
        Column("Mean rise", "Mean rise of ECE over all degradations; lower is better"),
        Column("Peak rise", "Largest rise of ECE, and where"),
    )
    order = {name: place for place, name in enumerate(evidence.encoders)}
    rows = [
        (
            word(row["encoder"]),
            word(row["dataset"]),
            number(row["auroc_clean"]),
            Cell(change(row["auroc_loss_mean"]), row["auroc_loss_mean"]),
            Cell(change(row["auroc_loss_worst"]), row["auroc_loss_worst"]),
            number(row["ece_clean"]),
            Cell(change(row["ece_rise_mean"]), row["ece_rise_mean"]),
            Cell(change(row["ece_rise_peak"]), row["ece_rise_peak"], note=_where(row)),
        )
        for row in sorted(
            cells.filter(pl.col("encoder").is_in(list(order))).iter_rows(named=True),
            key=lambda row: (order[row["encoder"]], row["dataset"]),
        )
    ]
    return plain_table("What degraded images cost, by cell", columns, rows)


def _where(row: Mapping[str, Any]) -> str:
    """Under which degradation ECE rises most, or why that is not known."""
    return condition_name(row["peak_condition"]) if row["peak_condition"] else row["reason"] or ""


def _condition_table(evidence: Evidence, conditions: pl.DataFrame) -> Table:
    known = conditions.filter(pl.col("condition") != CLEAN).drop_nulls(["auroc_loss", "ece_rise"])
    means = known.group_by("condition", "perturbation", "severity", maintain_order=True).agg(
        pl.col("auroc_loss", "ece_rise").mean(), cells=pl.len()
    )
    columns = (
        Column("Family", is_number=False),
        Column("Severity"),
        Column("Strength", "What the protocol degrades images by", is_number=False),
        Column("Mean loss of AUROC"),
        Column("Mean rise of ECE"),
        Column("Cells"),
    )
    protocol = evidence.page.protocol
    rows = [
        (
            word(degradation_name(row["perturbation"])),
            Cell(str(row["severity"]), row["severity"]),
            Cell(f"{protocol.perturbation(row['perturbation']).strength(row['severity']):g}"),
            Cell(change(row["auroc_loss"]), row["auroc_loss"]),
            Cell(change(row["ece_rise"]), row["ece_rise"]),
            Cell(str(row["cells"]), row["cells"]),
        )
        for row in means.iter_rows(named=True)
    ]
    return plain_table("Means over the ranked encoders and common data sets", columns, rows)
