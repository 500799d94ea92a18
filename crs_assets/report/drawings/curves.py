"""Pictures of what labels and degraded images do: label-efficiency curves, severity curves of AUROC and ECE."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from crs_assets.report import canvas
from crs_assets.report.canvas import Drawing
from crs_assets.report.drawings.looks import Grid, Look, heading, label, legend, legend_height, plain
from crs_assets.science.protocol import CLEAN, Protocol

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEAD = 1400, 126
LEARNING = Grid(columns=3, left=76, top=HEAD, width=370, height=250, gap_across=84, gap_down=84)
CELLS_TOP = 126


def label_curves(curves: pl.DataFrame, datasets: Sequence[str], looks: Mapping[str, Look]) -> Drawing:
    """AUROC against the share of training labels, a panel per data set; bars: seed intervals of the marked encoders.

    Args:
        curves: ``encoder``, ``dataset``, ``fraction``, ``auroc``, ``lower``, ``upper``.
        datasets: In the order of the panels.
        looks: Encoder -> look; others are left out.
    """
    bottom = LEARNING.bottom(len(datasets))
    with canvas.style():
        figure = canvas.new_figure(WIDTH, bottom + legend_height(looks))
        heading(figure, "Fewer labels", "AUROC on clean images by share of training labels; mean over seeds.")
        for number, dataset in enumerate(datasets):
            axes = plain(LEARNING.axes(figure, number))
            _learning(axes, curves.filter(pl.col("dataset") == dataset), looks)
            label(axes, dataset, "share of training labels", "AUROC")
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
        for row, (metric, name) in enumerate((("auroc", "AUROC"), ("ece", "ECE"))):
            limits = _limits(conditions, metric, looks)
            for column, family in enumerate(families):
                axes = plain(grid.axes(figure, row * len(families) + column))
                for encoder, look in looks.items():
                    points = list(_points(conditions, encoder, metric, family.id, family.severities))
                    axes.plot(*zip(*points, strict=True), **_line(look)) if points else None
                axes.set_xticks([0, *family.severities], ["clean", *map(str, family.severities)])
                axes.set_ylim(*limits)
                label(axes, family.id.replace("_", " "), "severity", name if column == 0 else "")
        legend(figure, looks, bottom - 8)
        return canvas.drawn(figure)


def _learning(axes: "Axes", curves: pl.DataFrame, looks: Mapping[str, Look]) -> None:
    axes.set_xscale("log")
    for encoder, look in looks.items():
        own = curves.filter(pl.col("encoder") == encoder).drop_nulls("auroc").sort("fraction")
        if own.is_empty():
            continue
        fractions, aurocs = own["fraction"].to_numpy(), own["auroc"].to_numpy()
        axes.plot(fractions, aurocs, **_line(look))
        if look.is_marked:
            bars = own.drop_nulls(["lower", "upper"])
            axes.vlines(bars["fraction"], bars["lower"], bars["upper"], color=look.colour, linewidth=1, alpha=0.6)
    ticks = sorted(set(curves["fraction"]))
    axes.set_xticks(ticks, [f"{100 * fraction:g} %" for fraction in ticks])
    axes.set_xticks([], minor=True)


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
