"""Chapters closer to patients: subgroups, and what thresholds do."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from crs_assets.report.chapters.ranking import ENCODER
from crs_assets.report.content import Block, Figure, Folded, Text, number, plain_table, word
from crs_assets.report.drawings.elsewhere import subgroup_gaps
from crs_assets.report.evidence import Evidence
from crs_assets.report.names import subgroup_name
from crs_assets.report.numbers import NONE, decimals, percent
from crs_assets.report.tables import AXIS_LABELS, Cell, Column, Table
from crs_assets.science.analyses.cells import is_higher_better
from crs_assets.science.analyses.subgroup_columns import UNKNOWN
from crs_assets.science.analyses.subgroups import COMMON_CLASSES
from crs_assets.science.protocol import AXES, AxisType

SHOWN: tuple[AxisType, ...] = ("discrimination", "calibration")
GROUP = ("encoder", "dataset", "column", "group")
RECALIBRATED = "recalibrated"
"""Counts are given in steps of this where another group of the column is suppressed."""


def subgroups(evidence: Evidence) -> Sequence[Block]:
    """Groups of each data set, worst group and gap."""
    means = group_means(evidence.table("subgroups", "groups"))
    shown = pl.concat([means.clear(), *(means.filter(pl.col("encoder") == row["encoder"]) for row in evidence.ranked)])
    if shown.is_empty():
        return [Text("No data set of the suite has a subgroup column.")]
    minimum = evidence.page.protocol.analyses.subgroups.min_groups
    return [
        Text(
            f"Groups of fewer than {minimum} patients or lesions are named and not shown. A group is judged on the "
            "classes that it has enough cases of, so groups may rest on different classes; the worst of several small "
            "groups is worse than it is in truth."
        ),
        *(_picture(evidence, dataset, shown) for dataset in shown["dataset"].unique(maintain_order=True)),
        _gap_table(evidence, shown),
        Folded("All four axes of each group", (_group_table(shown),)),
    ]


def operating_points(evidence: Evidence) -> Sequence[Block]:
    """What thresholds that were chosen before the test set was read do on it."""
    points = evidence.table("operating_points", "points")
    settings = evidence.page.protocol.analyses.operating_points
    if not settings.sensitivities or points.is_empty():
        return []
    target, prevalence = settings.sensitivities[0], settings.prevalences[len(settings.prevalences) // 2]
    means = point_means(points, target=target, prevalence=prevalence)
    shown = [name for name in evidence.page.scored_datasets if name in means["dataset"].to_list()]
    if not shown:
        return [Text("No label has enough cases in every split for a threshold.")]
    return [
        Text(
            f"Thresholds of recalibrated scores, chosen on validation for a sensitivity of {percent(target)}, read on "
            "test. A class of a multiclass set is taken against the rest. Means over labels and seeds; predictive "
            f"values at a stated prevalence of {percent(prevalence)}, not at the data set's. Targets, prevalences and "
            "labels one by one, with intervals and net benefit, are in the tables of the asset operating_points."
        ),
        *(_point_table(evidence, dataset, means, target, prevalence) for dataset in shown),
    ]


def group_means(groups: pl.DataFrame) -> pl.DataFrame:
    """Means over seeds of every group's axes; null where a seed has none.

    Returns:
        ``encoder``, ``dataset``, ``column``, ``group``, ``axis``, ``value``, ``n_images``, ``n_groups``,
        ``suppressed``, ``reason``.
    """
    return groups.group_by(*GROUP, "axis", maintain_order=True).agg(
        pl.when(pl.col("value").is_not_null().all()).then(pl.col("value").mean()).alias("value"),
        pl.col("n_images", "n_groups", "suppressed").first(),
        pl.col("reason").drop_nulls().first(),
    )


def point_means(points: pl.DataFrame, *, target: float, prevalence: float) -> pl.DataFrame:
    """Means over labels and seeds at one target sensitivity; a label counts where every seed has a figure.

    Returns:
        ``encoder``, ``dataset``, ``sensitivity``, ``specificity``, ``ppv``, ``npv``, ``labels``, ``all_labels``.
    """
    chosen = points.filter(
        (pl.col("scores") == RECALIBRATED) & (pl.col("target_kind") == "sensitivity") & (pl.col("target") == target)
    )
    at = pl.col("prevalences").list.eval(pl.element() == prevalence).list.arg_max()
    values = chosen.with_columns(pl.col("ppv").list.get(at), pl.col("npv").list.get(at))
    names = ("sensitivity", "specificity", "ppv", "npv")
    per_label = values.group_by("encoder", "dataset", "label", maintain_order=True).agg(
        pl.col(names).mean(), whole=pl.col("reason").is_null().all()
    )
    means = per_label.group_by("encoder", "dataset", maintain_order=True).agg(
        *(pl.col(name).filter(pl.col("whole")).mean() for name in names),
        labels=pl.col("whole").sum(),
        all_labels=pl.len(),
    )
    return means.filter(pl.col("labels") > 0)


def _picture(evidence: Evidence, dataset: str, means: pl.DataFrame) -> Figure:
    title, here = evidence.page.dataset_title(dataset), means.filter(pl.col("dataset") == dataset)
    encoders = [row["encoder"] for row in evidence.ranked if row["encoder"] in here["encoder"].to_list()]
    return Figure(
        f"subgroups-{dataset}",
        f"AUROC and ECE of the subgroups of {title}; the line spans an encoder's groups.",
        f"Dots per encoder and subgroup of {title}, AUROC and ECE. The same numbers stand in the tables below.",
        subgroup_gaps(here.filter(~pl.col("suppressed")), encoders, title),
    )


def _gap_table(evidence: Evidence, means: pl.DataFrame) -> Table:
    gaps = evidence.table("subgroups", "gaps")
    own = gaps.filter(pl.col("basis").is_null() | (pl.col("basis") != COMMON_CLASSES))
    columns = [ENCODER, Column("Data set", is_number=False), Column("By", is_number=False)]
    for axis in SHOWN:
        name = AXIS_LABELS[axis][0]
        columns += [
            Column(f"Worst {name}", "Group with the worst mean over seeds, and that mean", is_number=False),
            Column(f"{name} gap", "Between the worst and the best group, means over seeds"),
            Column(
                f"{name}: apart",
                "Seeds whose interval of the gap between their own worst and best group excludes 0",
            ),
        ]
    rows = []
    for (encoder, dataset, column), frame in means.group_by("encoder", "dataset", "column", maintain_order=True):
        cells = [word(str(encoder)), word(str(dataset)), word(subgroup_name(str(column)))]
        seeds = own.filter(
            (pl.col("encoder") == encoder) & (pl.col("dataset") == dataset) & (pl.col("column") == column)
        )
        for axis in SHOWN:
            cells += _gap_cells(
                frame.filter(pl.col("axis") == axis), seeds.filter(pl.col("axis") == axis), evidence, axis
            )
        rows.append(cells)
    return plain_table("Gaps between subgroups", columns, rows)


def _gap_cells(groups: pl.DataFrame, seeds: pl.DataFrame, evidence: Evidence, axis: AxisType) -> list[Cell]:
    known = groups.drop_nulls("value").filter(pl.col("group") != UNKNOWN)
    if known.height < 2:
        return [Cell(NONE, note="fewer than two groups"), Cell(NONE), Cell(NONE)]
    higher = is_higher_better(evidence.page.protocol.axes.anchors[axis])
    worst = known.sort("value", "group", descending=[not higher, False]).row(0, named=True)
    values = known["value"].to_numpy()
    gap = float(values.max() - values.min())
    judged = seeds.drop_nulls(["low", "high"])
    apart = judged.filter((pl.col("low") > 0) | (pl.col("high") < 0)).height
    return [
        word(worst["group"], note=decimals(worst["value"])),
        number(gap),
        Cell(f"{apart} of {judged.height}", apart),
    ]


def _group_table(means: pl.DataFrame) -> Table:
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        Column("By", is_number=False),
        Column("Group", is_number=False),
        Column("Patients", "Patients or lesions in test; few are suppressed, and beside them others rounded"),
        Column("Images", "Test images"),
        *(Column(*AXIS_LABELS[axis]) for axis in AXES),
    )
    return plain_table("Axes within subgroups, means over seeds", columns, _group_rows(means))


def _group_rows(means: pl.DataFrame) -> Iterator[Sequence[Cell]]:
    for (encoder, dataset, column, group), frame in means.group_by(*GROUP, maintain_order=True):
        axes: Mapping[str, Mapping[str, Any]] = {row["axis"]: row for row in frame.iter_rows(named=True)}
        first = next(iter(axes.values()))
        reason = first["reason"] if first["suppressed"] else None
        yield (
            word(str(encoder)),
            word(str(dataset)),
            word(subgroup_name(str(column))),
            word(str(group), note=reason or ""),
            *(_shown(first[name]) for name in ("n_groups", "n_images")),
            *(number(axes[axis]["value"] if axis in axes else None) for axis in AXES),
        )


def _shown(text: str) -> Cell:
    first = text.split()[0]
    return Cell(text, int(first) if first.isdigit() else 0)


def _point_table(evidence: Evidence, dataset: str, means: pl.DataFrame, target: float, prevalence: float) -> Table:
    columns = (
        ENCODER,
        Column("Sensitivity", f"Reached on test where {percent(target)} was aimed at"),
        Column("Specificity"),
        Column(f"PPV at {percent(prevalence)}", "Share of positive calls that are right"),
        Column(f"NPV at {percent(prevalence)}", "Share of negative calls that are right"),
        Column("Labels", "Labels with enough cases in every split and seed, of all"),
    )
    here = {row["encoder"]: row for row in means.filter(pl.col("dataset") == dataset).iter_rows(named=True)}
    rows = [
        (
            word(name),
            *(number(here[name][column]) for column in ("sensitivity", "specificity", "ppv", "npv")),
            Cell(f"{here[name]['labels']} of {here[name]['all_labels']}", here[name]["labels"]),
        )
        for name in evidence.encoders
        if name in here
    ]
    return plain_table(f"Operating points: {evidence.page.dataset_title(dataset)}", columns, rows)
