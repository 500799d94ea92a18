"""Pictures of recalibration: calibration error before and after each map, and against the number of cases."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from crs_assets.report import canvas
from crs_assets.report.canvas import Drawing
from crs_assets.report.drawings.looks import COLOURS, MARKERS, Grid, Look, heading, label, legend, legend_height, plain
from crs_assets.report.names import map_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEAD = 1400, 126


def before_and_after(summary: pl.DataFrame, groups: Mapping[str, str]) -> Drawing:
    """A panel per group of conditions, a line per map from the mean ECE before to the mean ECE after.

    Args:
        summary: ECE over all cells, maps fitted on all calibration cases: ``method``, ``condition_group``, ``before``,
            ``after``.
        groups: Group -> title, in the order of the panels.
    """
    methods = sorted(summary["method"].unique())
    names = [map_name(method) for method in methods]
    width = (WIDTH - 190 - 34 * len(groups)) // len(groups)
    grid = Grid(len(groups), 176, HEAD, width, 40 + 34 * len(methods), 34, 66)
    known = summary.drop_nulls(["before", "after"])
    ends = [value for column in ("before", "after") for value in known[column]]
    limits = (0.0, 1.12 * max(ends, default=1.0))
    with canvas.style():
        figure = canvas.new_figure(WIDTH, grid.bottom(len(groups)))
        heading(
            figure,
            "Calibration error before (hollow) and after (filled) recalibration",
            "Mean ECE over cells and seeds, fitted on clean calibration cases; multiclass and multilabel sets have "
            "maps of their own. Green: lower after; red: higher.",
        )
        for number, (group, title) in enumerate(groups.items()):
            axes = plain(grid.axes(figure, number), "x")
            rows = {
                row["method"]: row for row in known.filter(pl.col("condition_group") == group).iter_rows(named=True)
            }
            _arrows(axes, methods, rows)
            axes.set_yticks(range(len(methods)), names if number == 0 else [""] * len(methods))
            axes.set_xlim(*limits)
            label(axes, title, "ECE")
        return canvas.drawn(figure)


def against_cases(panels: Mapping[str, pl.DataFrame]) -> Drawing:
    """Change of ECE against the number of cases that a map was fitted on, with its seed interval; below 0 is better.

    Args:
        panels: Title -> ``method``, ``cases`` (numbers as text, or ``all``), ``difference``, ``low``, ``high``.
    """
    methods = sorted({name for table in panels.values() for name in table["method"]})
    looks = {
        name: Look(COLOURS[at % len(COLOURS)], MARKERS[at % len(MARKERS)], is_marked=True)
        for at, name in enumerate(methods)
    }
    grid = Grid(2, 90, HEAD, 560, 280, 110, 70)
    bottom = grid.bottom(len(panels))
    with canvas.style():
        figure = canvas.new_figure(WIDTH, bottom + legend_height(looks, columns=6))
        heading(
            figure,
            "How many cases does a map need?",
            "Mean change of ECE, after minus before, over the cells that have so many cases; bars: seed intervals.",
        )
        for number, (title, table) in enumerate(panels.items()):
            axes = plain(grid.axes(figure, number))
            _change_by_cases(axes, table, looks)
            label(axes, title, "cases fitted on", "change of ECE")
        legend(figure, {map_name(name): look for name, look in looks.items()}, bottom - 8, columns=6)
        return canvas.drawn(figure)


def case_order(cases: Sequence[str]) -> list[str]:
    """Numbers of cases in ascending order, ``all`` last."""
    return sorted(set(cases), key=lambda text: (not text.isdigit(), int(text) if text.isdigit() else 0))


def _arrows(axes: "Axes", methods: Sequence[str], rows: Mapping[str, Mapping[str, Any]]) -> None:
    axes.set_ylim(len(methods) - 0.5, -0.5)
    for place, method in enumerate(methods):
        row = rows.get(method)
        if row is None:
            continue
        colour = canvas.GREEN if row["after"] < row["before"] else canvas.VERMILLION
        axes.plot([row["before"], row["after"]], [place, place], color=colour, linewidth=2)
        axes.plot(row["before"], place, "o", color=colour, markerfacecolor="white", markersize=8)
        axes.plot(row["after"], place, "o", color=colour, markersize=8)


def _change_by_cases(axes: "Axes", table: pl.DataFrame, looks: Mapping[str, Look]) -> None:
    known = table.drop_nulls("difference")
    order = case_order(known["cases"].to_list())
    axes.axhline(0, color=canvas.INK, linewidth=1)
    for at, (method, look) in enumerate(looks.items()):
        rows = {row["cases"]: row for row in known.filter(pl.col("method") == method).iter_rows(named=True)}
        shift = 0.07 * (at - (len(looks) - 1) / 2)
        places = [place + shift for place, cases in enumerate(order) if cases in rows]
        own = [rows[cases] for cases in order if cases in rows]
        if not own:
            continue
        axes.plot(places, [row["difference"] for row in own], color=look.colour, marker=look.marker, markersize=6)
        bars = [(place, row) for place, row in zip(places, own, strict=True) if row["low"] is not None]
        axes.vlines(
            [place for place, _ in bars],
            [row["low"] for _, row in bars],
            [row["high"] for _, row in bars],
            color=look.colour,
            linewidth=1.2,
            alpha=0.7,
        )
    axes.set_xticks(range(len(order)), order)
