"""Pictures of the four axes together: what is traded for AUROC, and the profile of each encoder."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crs_assets.report import canvas
from crs_assets.report.canvas import Drawing
from crs_assets.report.drawings.looks import Grid, heading, label, plain
from crs_assets.report.numbers import decimals, rank_text
from crs_assets.report.picture import AXIS_TITLES
from crs_assets.science.analyses.cells import is_higher_better
from crs_assets.science.protocol import AXES, Anchor, AxisType

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH, HEAD = 1400, 120
SCATTER = Grid(columns=3, left=80, top=HEAD, width=380, height=340, gap_across=80, gap_down=0)
PROFILES = Grid(columns=5, left=90, top=HEAD, width=186, height=104, gap_across=76, gap_down=62)
KEY_COLUMNS = 3
SHORT = {"discrimination": "AUROC", "calibration": "ECE", "label_efficiency": "labels", "robustness": "drop"}


def non_dominated(values: Mapping[str, Sequence[float]]) -> set[str]:
    """Encoders that no other is at least as good as on every axis and better on one.

    Args:
        values: Encoder -> values, higher is better on each.
    """

    def dominates(one: Sequence[float], other: Sequence[float]) -> bool:
        pairs = list(zip(one, other, strict=True))
        return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)

    return {name for name, own in values.items() if not any(dominates(other, own) for other in values.values())}


def pareto(rows: Sequence[Mapping[str, Any]], anchors: Mapping[AxisType, Anchor]) -> Drawing:
    """AUROC against each other axis, better to the right and up; who is dominated on all four axes is grey.

    Args:
        rows: Ranked encoders in the order of their rank: ``encoder``, ``rank`` and the four raw axes.
        anchors: The protocol's: they tell which direction is better.
    """
    signs = [1 if is_higher_better(anchors[axis]) else -1 for axis in AXES]
    values = {row["encoder"]: [sign * row[axis] for sign, axis in zip(signs, AXES, strict=True)] for row in rows}
    free = non_dominated(values)
    names = [f"{rank_text(row['rank'])}  {row['encoder']}" for row in rows]
    lines, key_top = -(-len(names) // KEY_COLUMNS), SCATTER.bottom(3) + 62
    with canvas.style():
        figure = canvas.new_figure(WIDTH, key_top + 20 * lines + 12)
        heading(
            figure,
            "What is traded for AUROC?",
            "Each point is an encoder, numbered by its rank by CRS. Line: the front of these two axes. Grey: another "
            "encoder is at least as good on all four axes.",
        )
        for number, axis in enumerate(AXES[1:]):
            _scatter(plain(SCATTER.axes(figure, number)), rows, axis, anchors, free)
        for position, name in enumerate(names):
            column, line = divmod(position, lines)
            canvas.write(figure, SCATTER.left + 440 * column, key_top + 20 * line, name, fontsize=10)
        return canvas.drawn(figure)


def axis_profiles(profiles: Mapping[str, Mapping[str, float]], controls: Sequence[str]) -> Drawing:
    """A small panel per encoder: its four normalised axes, over the range of the ranked ones.

    Args:
        profiles: Encoder -> axis -> z in [0, 1], mean over the common data sets; ranked ones first, then controls.
        controls: Those of them that are null controls.
    """
    ranked = [name for name in profiles if name not in controls]
    span: dict[AxisType, list[float]] = {axis: [profiles[name][axis] for name in ranked] for axis in AXES}
    below = replace(PROFILES, top=PROFILES.bottom(len(ranked)) + 44)
    with canvas.style():
        figure = canvas.new_figure(WIDTH, below.bottom(len(controls)) if controls else PROFILES.bottom(len(ranked)))
        heading(
            figure,
            "Axis profiles",
            "Normalised axes, 0 to 1, longer is better; mean over the common data sets. Grey band: range of the "
            "ranked encoders.",
        )
        for number, name in enumerate(ranked):
            _profile(PROFILES.axes(figure, number), name, profiles[name], span, canvas.BLUE)
        if controls:
            canvas.write(figure, 30, below.top - 66, "Null controls, never ranked", color=canvas.SOFT)
        for number, name in enumerate(controls):
            _profile(below.axes(figure, number), name, profiles[name], span, canvas.SOFT)
        return canvas.drawn(figure)


def _scatter(
    axes: "Axes",
    rows: Sequence[Mapping[str, Any]],
    axis: AxisType,
    anchors: Mapping[AxisType, Anchor],
    free: set[str],
) -> None:
    higher = is_higher_better(anchors[axis])
    front = non_dominated({r["encoder"]: [r["discrimination"], r[axis] if higher else -r[axis]] for r in rows})
    line = sorted((row["discrimination"], row[axis]) for row in rows if row["encoder"] in front)
    axes.step(*np.array(line).T, where="pre", color=canvas.SKY, linewidth=1.2, zorder=1)
    for row in rows:
        colour = canvas.BLUE if row["encoder"] in free else canvas.FAINT
        axes.plot(row["discrimination"], row[axis], "o", color=colour, markersize=8)
        ink = canvas.INK if row["encoder"] in free else canvas.SOFT
        axes.annotate(
            rank_text(row["rank"]),
            (row["discrimination"], row[axis]),
            (7, 5),
            textcoords="offset points",
            fontsize=9.5,
            color=ink,
        )
    axes.margins(0.12)
    if not higher:
        axes.invert_yaxis()
    title, direction = AXIS_TITLES[axis].split("\n")
    label(axes, f"{title} ({direction}, towards the top)", "AUROC", title)


def _profile(
    axes: "Axes", name: str, profile: Mapping[str, float], span: Mapping[AxisType, Sequence[float]], colour: str
) -> None:
    axes.set_xlim(0, 1.3)
    axes.set_ylim(len(AXES) - 0.5, -0.5)
    axes.set_yticks(range(len(AXES)), [SHORT[axis] for axis in AXES])
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.tick_params(length=0)
    axes.grid(axis="x", color=canvas.GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for place, axis in enumerate(AXES):
        if span[axis]:
            low, high = min(span[axis]), max(span[axis])
            axes.barh(place, high - low, 0.72, left=low, color=canvas.GRID, linewidth=0)
        axes.plot([0, profile[axis]], [place, place], color=colour, linewidth=2)
        axes.plot(profile[axis], place, "o", color=colour, markersize=6)
        look: dict[str, Any] = {"va": "center", "fontsize": 8.5}
        axes.annotate(decimals(profile[axis]), (profile[axis], place), (7, 0), textcoords="offset points", **look)
    axes.set_title(name, loc="left", fontsize=9.5, pad=5)
