"""Pictures of what labels, degraded images and depth do: AUROC and calibration error along each of them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from crs_assets.report import canvas
from crs_assets.report.canvas import Drawing
from crs_assets.report.drawings.looks import Grid, Look, heading, label, legend, legend_height, plain
from crs_assets.report.names import degradation_name
from crs_assets.science.protocol import CLEAN, Protocol

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEAD = 1400, 126
PANELS = Grid(columns=3, left=76, top=HEAD, width=370, height=250, gap_across=84, gap_down=84)
METRICS = (("auroc", "AUROC"), ("ece", "ECE"))
BESIDE = 0.012
"""How far the marks of one encoder stand beside those of the next, as a share of the blocks."""
RING = 12


def label_curves(curves: pl.DataFrame, datasets: Sequence[str], looks: Mapping[str, Look]) -> Drawing:
    """AUROC, and below it ECE, against the share of training labels, a panel per data set.

    Args:
        curves: ``encoder``, ``dataset``, ``fraction``, ``auroc`` with its seed interval ``lower``, ``upper`` (bars of
            the marked encoders), ``ece``.
        datasets: In the order of the panels.
        looks: Encoder -> look; others are left out.
    """
    panels = -(-len(datasets) // PANELS.columns) * PANELS.columns
    bottom = PANELS.bottom(len(METRICS) * panels)
    with canvas.style():
        figure = canvas.new_figure(WIDTH, bottom + legend_height(looks))
        heading(
            figure,
            "Fewer labels",
            "Clean images, AUROC and ECE by share of training labels; means over seeds, bars: seed intervals of AUROC.",
        )
        for row, (metric, name) in enumerate(METRICS):
            for number, dataset in enumerate(datasets):
                axes = plain(PANELS.axes(figure, row * panels + number))
                _learning(axes, curves.filter(pl.col("dataset") == dataset), metric, looks)
                label(axes, dataset, "share of training labels", name)
        legend(figure, looks, bottom - 8)
        return canvas.drawn(figure)


def severity_curves(conditions: pl.DataFrame, protocol: Protocol, looks: Mapping[str, Look]) -> Drawing:
    """AUROC above, ECE below, against severity; a column per family of degradations, mean over data sets.

    Args:
        conditions: ``encoder``, ``condition``, ``auroc``, ``ece``, one row each: means over the same data sets.
        protocol: Families and severities.
        looks: Encoder -> look; others are left out.
    """
    families = protocol.perturbations
    width = (WIDTH - 90 - 46 * len(families)) // len(families)
    grid = Grid(len(families), 76, HEAD, width, 210, 46, 78)
    bottom = grid.bottom(2 * len(families))
    with canvas.style():
        figure = canvas.new_figure(WIDTH, bottom + legend_height(looks))
        heading(
            figure,
            "Degraded images",
            "AUROC and ECE by severity, all labels; means over the common data sets and seeds.",
        )
        for row, (metric, name) in enumerate(METRICS):
            limits = _limits(conditions, metric, looks)
            for column, family in enumerate(families):
                axes = plain(grid.axes(figure, row * len(families) + column))
                for encoder, look in looks.items():
                    points = list(_points(conditions, encoder, metric, family.id, family.severities))
                    axes.plot(*zip(*points, strict=True), **_line(look)) if points else None
                axes.set_xticks([0, *family.severities], ["clean", *map(str, family.severities)])
                axes.set_ylim(*limits)
                label(axes, degradation_name(family.id), "severity", name if column == 0 else "")
        legend(figure, looks, bottom - 8)
        return canvas.drawn(figure)


def depth_curves(depths: pl.DataFrame, datasets: Sequence[str], looks: Mapping[str, Look]) -> Drawing:
    """AUROC on test against the share of the blocks, a panel per data set.

    Bars of the marked encoders span their seeds; rings are around the depths that validation chose, the fainter the
    fewer seeds chose them.

    Args:
        depths: ``encoder``, ``dataset``, ``share``, ``auroc``, ``auroc_low``, ``auroc_high``, ``times_chosen``,
            ``seeds``.
        datasets: In the order of the panels.
        looks: Encoder -> look; others are left out.
    """
    bottom = PANELS.bottom(len(datasets))
    with canvas.style():
        figure = canvas.new_figure(WIDTH, bottom + legend_height(looks))
        heading(
            figure,
            "Depth",
            "AUROC on clean test images by share of the blocks; mean over seeds, bars: their range. Ring: chosen on "
            "validation, the fainter the fewer seeds chose it.",
        )
        for number, dataset in enumerate(datasets):
            axes = plain(PANELS.axes(figure, number))
            _depths(axes, depths.filter(pl.col("dataset") == dataset), looks)
            label(axes, dataset, "share of the blocks", "AUROC")
        legend(figure, looks, bottom - 8)
        return canvas.drawn(figure)


def _learning(axes: "Axes", curves: pl.DataFrame, metric: str, looks: Mapping[str, Look]) -> None:
    axes.set_xscale("log")
    for encoder, look in looks.items():
        own = curves.filter(pl.col("encoder") == encoder).drop_nulls(metric).sort("fraction")
        if own.is_empty():
            continue
        axes.plot(own["fraction"].to_numpy(), own[metric].to_numpy(), **_line(look))
        if look.is_marked and metric == "auroc":
            bars = own.drop_nulls(["lower", "upper"])
            axes.vlines(bars["fraction"], bars["lower"], bars["upper"], color=look.colour, linewidth=1, alpha=0.6)
    ticks = sorted(set(curves["fraction"]))
    axes.set_xticks(ticks, [f"{100 * fraction:g} %" for fraction in ticks])
    axes.set_xticks([], minor=True)


def _depths(axes: "Axes", depths: pl.DataFrame, looks: Mapping[str, Look]) -> None:
    marked = [encoder for encoder, look in looks.items() if look.is_marked]
    for encoder, look in looks.items():
        own = depths.filter((pl.col("encoder") == encoder) & pl.col("auroc").is_finite()).sort("share")
        beside = BESIDE * (marked.index(encoder) - (len(marked) - 1) / 2) if look.is_marked else 0.0
        shares, aurocs = own["share"].to_numpy() + beside, own["auroc"].to_numpy()
        axes.plot(shares, aurocs, **_line(look))
        if look.is_marked:
            axes.vlines(shares, own["auroc_low"], own["auroc_high"], color=look.colour, linewidth=1, alpha=0.6)
            for share, auroc, chosen in zip(shares, aurocs, own["times_chosen"] / own["seeds"], strict=True):
                ring: dict[str, Any] = {"markerfacecolor": "none", "markeredgewidth": 1.6, "alpha": chosen}
                axes.plot(share, auroc, "o", color=look.colour, markersize=RING, **ring) if chosen else None
    ticks = sorted(set(depths["share"]))
    axes.set_xticks(ticks, [f"{100 * share:g} %" for share in ticks])


def _points(
    conditions: pl.DataFrame, encoder: str, metric: str, family: str, severities: Sequence[int]
) -> Iterator[tuple[int, float]]:
    """(severity, value) of one encoder and family, clean first; what is not estimable is left out."""
    own = dict(conditions.filter(pl.col("encoder") == encoder).select("condition", metric).iter_rows())
    for severity, condition in ((0, CLEAN), *((severity, f"{family}-{severity}") for severity in severities)):
        if own.get(condition) is not None:
            yield severity, own[condition]


def _limits(conditions: pl.DataFrame, metric: str, looks: Mapping[str, Look]) -> tuple[float, float]:
    """One scale for a row of panels."""
    values = conditions.filter(pl.col("encoder").is_in(list(looks)))[metric].drop_nulls()
    if values.is_empty():
        return 0.0, 1.0
    low, high = float(values.to_numpy().min()), float(values.to_numpy().max())
    margin = max(0.06 * (high - low), 0.005)
    return low - margin, high + margin


def _line(look: Look) -> dict[str, Any]:
    size = 5 if look.is_marked else 3
    width = 1.7 if look.is_marked else 1.0
    return {"color": look.colour, "marker": look.marker, "markersize": size, "linewidth": width, "zorder": look.order}
