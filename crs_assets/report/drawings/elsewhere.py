"""Pictures of encoders elsewhere: at a transfer target, in subgroups, under other choices of the score."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from crs_assets.report import canvas
from crs_assets.report.canvas import Drawing
from crs_assets.report.drawings.looks import COLOURS, MARKERS, Grid, heading, label, plain
from crs_assets.report.names import subgroup_name
from crs_assets.report.numbers import rank_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEAD = 1400, 126
TRANSFER = Grid(columns=2, left=90, top=HEAD, width=400, height=330, gap_across=120, gap_down=86)
ROW, NAMES, LEGEND_BELOW = 26, 270, 34


def transfer_scatter(panels: Sequence[Mapping[str, Any]]) -> Drawing:
    """AUROC at a target against what is known at the source: AUROC, and CRS without its transfer term.

    Args:
        panels: One per picture: ``title``, ``across`` (what x is), ``up`` (what y is) and ``points``, each
            ``(rank, x, y)``.
    """
    with canvas.style():
        figure = canvas.new_figure(1080, TRANSFER.bottom(len(panels)))
        heading(
            figure,
            "At another institution",
            "Each point is a ranked encoder, numbered by its rank by CRS.",
        )
        for number, panel in enumerate(panels):
            axes = plain(TRANSFER.axes(figure, number))
            for rank, x, y in panel["points"]:
                axes.plot(x, y, "o", color=canvas.BLUE, markersize=8)
                axes.annotate(rank_text(rank), (x, y), (7, 5), textcoords="offset points", fontsize=9.5)
            axes.margins(0.12)
            label(axes, panel["title"], panel["across"], panel["up"])
        return canvas.drawn(figure)


def subgroup_gaps(groups: pl.DataFrame, encoders: Sequence[str], title: str) -> Drawing:
    """A column of panels per subgroup column: AUROC, then ECE, of each group; a line spans the groups of an encoder.

    Args:
        groups: ``column``, ``group``, ``axis`` (``discrimination`` or ``calibration``), ``encoder``, ``value``.
        encoders: In the order of their rank.
        title: The data set's name.
    """
    columns = list(groups["column"].unique(maintain_order=True))
    known = groups.drop_nulls("value")
    names = {
        column: list(known.filter(pl.col("column") == column)["group"].unique(maintain_order=True))
        for column in columns
    }
    height = 20 + ROW * len(encoders)
    width = min(420, (WIDTH - NAMES - 40) // len(columns) - 50)
    grid = Grid(len(columns), NAMES, HEAD + 20, width, height, 50, 96)
    with canvas.style():
        figure = canvas.new_figure(WIDTH, grid.bottom(2 * len(columns)))
        heading(
            figure, f"Subgroups: {title}", "Means over seeds, clean test images; groups of few patients are left out."
        )
        for row, (axis, name) in enumerate((("discrimination", "AUROC"), ("calibration", "ECE"))):
            for number, column in enumerate(columns):
                axes = plain(grid.axes(figure, row * len(columns) + number), "x")
                own = groups.filter((pl.col("column") == column) & (pl.col("axis") == axis))
                _spans(axes, own, encoders, names[column])
                axes.set_yticks(range(len(encoders)), encoders if number == 0 else [""] * len(encoders))
                label(axes, f"{name} by {subgroup_name(column)}", name)
        return canvas.drawn(figure)


def rank_ranges(weightings: pl.DataFrame) -> Drawing:
    """Best and worst rank of each encoder over every weighting of the score's terms, its published rank as a point.

    Args:
        weightings: ``encoder``, ``rank_best``, ``rank_worst``, ``rank_published``, ``share_first``.
    """
    ordered = weightings.sort("rank_published", "encoder")
    body = 20 + ROW * ordered.height
    with canvas.style():
        figure = canvas.new_figure(1000, HEAD + body + 60)
        heading(
            figure,
            "Other weights of the score",
            "Line: ranks over the whole simplex of weights; point: published rank; at the right: share of weightings "
            "that put the encoder first.",
        )
        axes = plain(canvas.add_axes(figure, NAMES, HEAD, 600, body), "x")
        axes.set_ylim(ordered.height - 0.5, -0.5)
        axes.set_yticks(range(ordered.height), ordered["encoder"].to_list())
        axes.set_xticks(range(1, ordered.height + 1))
        axes.set_xlim(0.6, ordered.height + 0.4)
        for place, row in enumerate(ordered.iter_rows(named=True)):
            axes.plot([row["rank_best"], row["rank_worst"]], [place, place], color=canvas.SKY, linewidth=5, alpha=0.7)
            axes.plot(row["rank_published"], place, "o", color=canvas.BLUE, markersize=8)
            axes.text(ordered.height + 0.5, place, f"{100 * row['share_first']:.0f} %", va="center", fontsize=9.5)
        label(axes, "", "rank by CRS")
        return canvas.drawn(figure)


def _spans(axes: "Axes", groups: pl.DataFrame, encoders: Sequence[str], names: Sequence[str]) -> None:
    """Dots of one axis and column; a group looks the same under every axis."""
    from matplotlib.lines import Line2D

    shown = set(groups.drop_nulls("value")["group"])
    if not shown:
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no group has enough cases", ha="center", transform=axes.transAxes, color=canvas.SOFT)
    axes.set_ylim(len(encoders) - 0.5, -0.5)
    for place, encoder in enumerate(encoders):
        own = groups.filter(pl.col("encoder") == encoder).drop_nulls("value")
        values = own["value"].to_list()
        if values:
            axes.plot([min(values), max(values)], [place, place], color=canvas.FAINT, linewidth=2, zorder=1)
        for group, value in own.select("group", "value").iter_rows():
            at = names.index(group)
            axes.plot(value, place, MARKERS[at % 6], color=COLOURS[at % 6], markersize=6.5)
    handles: list[Any] = [
        Line2D([], [], linestyle="none", marker=MARKERS[at % 6], color=COLOURS[at % 6], label=name)
        for at, name in enumerate(names)
        if name in shown
    ]
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(-0.02, -LEGEND_BELOW / axes.get_window_extent().height),
        ncols=3,
        frameon=False,
        fontsize=9,
        columnspacing=1.0,
        handletextpad=0.2,
    )
