"""Pictures of the ranking: scores with their intervals, probabilities of ranks, moves between two rankings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from crs_assets.report import canvas
from crs_assets.report.canvas import Drawing
from crs_assets.report.drawings.looks import heading, label, plain
from crs_assets.report.numbers import decimals, rank_text
from crs_assets.science.analyses.uncertainty import CENTRED, SEED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, NAMES, SCORES, RANKS = 1400, 292, (300, 430), (800, 560)
HEAD, FOOT, ROW = 128, 66, 34
BUMP_WIDTH, BUMP_LEFT, BUMP_SPAN = 1000, 330, 340


def score_intervals(
    ranked: Sequence[str], controls: Sequence[str], intervals: pl.DataFrame, ranks: pl.DataFrame
) -> Drawing:
    """Scores with the intervals over patients and over seeds; beside them how probable each rank is.

    Args:
        ranked: Encoders, best first.
        controls: Null controls, drawn below a line.
        intervals: One row per encoder and kind (``case-centred``, ``seed``): ``encoder``, ``kind``, ``value``, ``low``,
            ``high``.
        ranks: ``encoder``, ``rank``, ``probability`` of the ranked ones.
    """
    lines = [*ranked, *controls]
    places = {name: place + (place >= len(ranked)) * 0.6 for place, name in enumerate(lines)}
    body = round(ROW * (len(lines) + 0.6))
    with canvas.style():
        figure = canvas.new_figure(WIDTH, HEAD + body + FOOT)
        heading(
            figure,
            "How sure are scores and ranks?",
            "Left: CRS with its intervals, panel as published. Right: how often each rank comes up, in % of resamples.",
        )
        scores = plain(canvas.add_axes(figure, SCORES[0], HEAD, SCORES[1], body), "x")
        label(scores, "CRS: thick over patients and seeds, thin over seeds alone", "CRS")
        scores.set_ylim(max(places.values(), default=0) + 0.6, -0.6)
        scores.set_yticks(list(places.values()), list(places))
        scores.set_xlim(0, _upper(intervals))
        for name, place in places.items():
            _interval(scores, place, intervals.filter(pl.col("encoder") == name), is_ranked=name in ranked)
        if ranked and controls:
            scores.axhline(len(ranked) - 0.2, -0.62, 1, color=canvas.INK, linewidth=1, clip_on=False)
        if ranks.height:
            heat = canvas.add_axes(figure, RANKS[0], HEAD, RANKS[1], round(ROW * (len(ranked) + 0.2)))
            _heat(heat, ranked, ranks)
        return canvas.drawn(figure)


def bump(rows: Sequence[Mapping[str, Any]]) -> Drawing:
    """Lines from each encoder's rank by AUROC to its rank by CRS.

    Args:
        rows: Ranked encoders: ``encoder``, ``rank``, ``rank_auroc``.
    """
    body = max(ROW * len(rows), ROW)
    left = {row["encoder"]: at for at, row in enumerate(sorted(rows, key=lambda r: (r["rank_auroc"], r["encoder"])))}
    right = {row["encoder"]: at for at, row in enumerate(sorted(rows, key=lambda r: (r["rank"], r["encoder"])))}
    with canvas.style():
        figure = canvas.new_figure(BUMP_WIDTH, HEAD + body + 24)
        heading(figure, "From the ranking by AUROC to the ranking by CRS", "Blue: placed higher by CRS; red: lower.")
        axes = canvas.add_axes(figure, BUMP_LEFT, HEAD, BUMP_SPAN, body)
        axes.set_axis_off()
        axes.set_xlim(0, 1)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        for x, text in ((0, "by AUROC"), (1, "by CRS")):
            axes.text(x, -0.72, text, ha="center", weight="bold", fontsize=10.5)
        for row in rows:
            _move(axes, row, left[row["encoder"]], right[row["encoder"]])
        return canvas.drawn(figure)


def _interval(axes: "Axes", place: float, rows: pl.DataFrame, *, is_ranked: bool) -> None:
    by_kind = {row["kind"]: row for row in rows.iter_rows(named=True)}
    case, seed = by_kind.get(CENTRED), by_kind.get(SEED)
    if case is None or case["value"] is None:
        axes.text(0.01, place, "no CRS over the common data sets", va="center", fontsize=9, color=canvas.SOFT)
        return
    colour = canvas.BLUE if is_ranked else canvas.SOFT
    if case["low"] is not None:
        axes.plot([case["low"], case["high"]], [place, place], color=colour, linewidth=4, alpha=0.4)
    if seed is not None and seed["low"] is not None:
        axes.plot([seed["low"], seed["high"]], [place, place], color=colour, linewidth=1.4)
    axes.plot(case["value"], place, "o", color=colour, markerfacecolor=colour if is_ranked else "white", markersize=7)
    text = decimals(case["value"])
    ends = [row[side] for row in by_kind.values() for side in ("high", "value") if row[side] is not None]
    axes.annotate(text, (max(ends), place), (8, 0), textcoords="offset points", va="center", fontsize=9)


def _upper(intervals: pl.DataFrame) -> float:
    """Where the scale of scores ends: a tenth of CRS beyond the highest interval."""
    highest = max([value for side in ("value", "high") for value in intervals[side].drop_nulls()], default=0.9)
    return min(float(np.ceil(10 * highest) / 10) + 0.1, 1.1)


def _heat(axes: "Axes", ranked: Sequence[str], ranks: pl.DataFrame) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    n = len(ranked)
    table = np.zeros((n, n))
    for name, rank, probability in ranks.select("encoder", "rank", "probability").iter_rows():
        if name in ranked and rank <= n:
            table[ranked.index(name), rank - 1] = probability
    blues = LinearSegmentedColormap.from_list("blues", ["white", canvas.SKY, canvas.BLUE])
    axes.pcolormesh(table, cmap=blues, vmin=0, vmax=1, edgecolors="white", linewidth=1.5)
    axes.set_ylim(n + 0.1, -0.1)
    axes.set_yticks([])
    axes.set_xticks(np.arange(n) + 0.5, [str(rank + 1) for rank in range(n)])
    axes.tick_params(length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)
    for (row, column), probability in np.ndenumerate(table):
        if probability >= 0.005:
            ink = "white" if probability > 0.6 else canvas.INK
            text = f"{100 * probability:.0f}"
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=9, color=ink)
    label(axes, "P(rank), % of resamples of patients and seeds", "rank by CRS")


def _move(axes: "Axes", row: Mapping[str, Any], left: int, right: int) -> None:
    gained = row["rank_auroc"] - row["rank"]
    colour = canvas.BLUE if gained > 0 else canvas.VERMILLION if gained < 0 else canvas.SOFT
    axes.plot([0, 1], [left, right], color=colour, linewidth=2.2, marker="o", markersize=7, clip_on=False)
    for x, place, rank, side, shift in ((0, left, "rank_auroc", "right", -12), (1, right, "rank", "left", 12)):
        text = f"{row['encoder']}  {rank_text(row[rank])}" if x == 0 else f"{rank_text(row[rank])}  {row['encoder']}"
        axes.annotate(text, (x, place), (shift, 0), textcoords="offset points", ha=side, va="center", fontsize=10)
