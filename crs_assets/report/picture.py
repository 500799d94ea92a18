"""The leaderboard as a picture: scores by their three terms, and the four axes that they come from."""

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from crs_assets.report import canvas
from crs_assets.report.numbers import decimals, places, rank_text, signed
from crs_assets.report.page import Page
from crs_assets.report.tables import weighted_terms
from crs_assets.report.wording import agreement_brief
from crs_assets.science.leaderboard import CONTROL, INCOMPLETE, RANKED
from crs_assets.science.protocol import AXES, Anchor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The layout, in pixels.
WIDTH, MARGIN = 1400, 30
RANK_RIGHT, NAMES_LEFT, BARS_LEFT, BARS_WIDTH = 52, 66, 318, 372
MOVE_CENTRE, AXES_LEFT, AXIS_WIDTH, AXIS_GAP = 770, 838, 112, 28
ROWS_TOP, FOOTER = 172, 96
ROWS_HEIGHT, ROW_MIN, ROW_MAX = 440, 34, 52
SECTION_GAP = 1.0

TERMS = (("Dominance", canvas.BLUE), ("Closeness", canvas.SKY), ("Worst axis", canvas.ORANGE))
AXIS_TITLES = {
    "discrimination": "AUROC\nhigh is better",
    "calibration": "ECE\nlow is better",
    "label_efficiency": "Label efficiency\nhigh is better",
    "robustness": "AUROC drop\nlow is better",
}
SECTION_LABELS = {INCOMPLETE: "not ranked", CONTROL: "null controls, never ranked"}


@dataclass(frozen=True)
class Line:
    """One encoder of the picture, and how far down it stands, in rows."""

    row: Mapping[str, Any]
    height: float

    @property
    def is_ranked(self) -> bool:
        """Whether the encoder has a rank."""
        return bool(self.row["section"] == RANKED)

    @property
    def ink(self) -> str:
        """Colour of its texts."""
        return canvas.INK if self.is_ranked else canvas.SOFT


def leaderboard_png(page: Page) -> bytes:
    """Bars of the three weighted terms per encoder, and the raw axes beside them; controls below a line.

    Returns:
        PNG, 1400 pixels wide; the same page gives the same bytes.
    """
    with canvas.style():
        return canvas.png_bytes(_figure(page))


def leaderboard_drawing(page: Page) -> canvas.Drawing:
    """The same picture in both forms."""
    with canvas.style():
        return canvas.drawn(_figure(page))


def _figure(page: Page) -> "Figure":
    lines = list(_lines(page.rows(page.readings[0])))
    span = (lines[-1].height if lines else 0) + 1
    body = round(span * min(max(ROWS_HEIGHT / span, ROW_MIN), ROW_MAX))
    figure = canvas.new_figure(WIDTH, ROWS_TOP + body + FOOTER)
    _headings(figure, page)
    ground = _rows(figure, 0, WIDTH, body, span)
    ground.set_axis_off()
    ground.set_xlim(0, WIDTH)
    ground.set_zorder(1)
    _sections(ground, lines)
    bars = _rows(figure, BARS_LEFT, BARS_WIDTH, body, span)
    bars.set_xlim(0, 1)
    bars.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    for line in lines:
        _names(ground, line)
        _bar(bars, line, page)
    for position, axis in enumerate(AXES):
        panel = _rows(figure, AXES_LEFT + position * (AXIS_WIDTH + AXIS_GAP), AXIS_WIDTH, body, span)
        panel.set_title(AXIS_TITLES[axis], fontsize=9.5, color=canvas.SOFT, pad=9, linespacing=1.4)
        _dots(panel, axis, lines, page.protocol.axes.anchors[axis])
    _footer(figure, page, lines, ROWS_TOP + body + 44)
    return figure


def _lines(rows: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    height, section = -1.0, None
    for row in rows:
        height += 1 if section in (None, row["section"]) else 1 + SECTION_GAP
        section = row["section"]
        yield Line(row, height)


def _rows(figure: "Figure", left: int, width: int, body: int, span: float) -> "Axes":
    """Axes whose vertical unit is one row, counted downwards."""
    axes = canvas.add_axes(figure, left, ROWS_TOP, width, body)
    axes.set_ylim(span - 0.5, -0.5)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(axis="x", color=canvas.GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.patch.set_alpha(0)
    return axes


def _headings(figure: "Figure", page: Page) -> None:
    keys = f"suite {page.suite}  ·  protocol {page.protocol.id}  ·  panel {page.panel or 'none'}"
    canvas.write(figure, MARGIN, 24, "Clinical Reliability Score", fontsize=19, weight="bold")
    canvas.write(figure, MARGIN, 64, keys, fontsize=11.5, color=canvas.SOFT)
    if page.phantoms:
        box = {"boxstyle": "round,pad=0.5", "facecolor": "#fff4ec", "edgecolor": canvas.WARNING}
        look = {"fontsize": 11.5, "weight": "bold", "color": canvas.WARNING, "ha": "right", "bbox": box}
        canvas.write(figure, WIDTH - MARGIN - 8, 32, "procedural phantoms, not medical images", **look)
    heading = {"fontsize": 11, "weight": "bold", "va": "center"}
    canvas.write(figure, BARS_LEFT, ROWS_TOP - 64, "CRS, the sum of three weighted terms", **heading)
    canvas.write(figure, AXES_LEFT, ROWS_TOP - 64, "The four axes it rests on, raw, better to the right", **heading)
    small = {"fontsize": 9.5, "color": canvas.SOFT, "va": "center"}
    canvas.write(
        figure, MOVE_CENTRE, ROWS_TOP - 30, "AUROC rank\n(move to CRS)", **small | {"ha": "center", "linespacing": 1.4}
    )
    weights = page.protocol.score
    shares = (weights.dominance, weights.closeness, weights.worst_axis)
    for position, ((name, colour), share) in enumerate(zip(TERMS, shares, strict=True)):
        left = BARS_LEFT + 137 * position
        canvas.write(figure, left, ROWS_TOP - 31, "■", **small | {"color": colour, "fontsize": 13})
        canvas.write(figure, left + 19, ROWS_TOP - 30, f"{share:.2f} {name}", **small)


def _sections(ground: "Axes", lines: Sequence[Line]) -> None:
    """A rule and a label above the first row of each section below the ranked one."""
    previous = RANKED
    for line in lines:
        section = line.row["section"]
        if section != previous:
            rule = line.height - (1 + SECTION_GAP) / 2
            ground.plot([MARGIN, WIDTH - MARGIN], [rule, rule], color=canvas.INK, linewidth=1)
            label = SECTION_LABELS[section]
            ground.text(MARGIN, rule + 0.08, label, va="top", fontsize=9, style="italic", color=canvas.SOFT)
        elif line.height:
            ground.axhline(line.height - 0.5, MARGIN / WIDTH, 1 - MARGIN / WIDTH, color=canvas.GRID, linewidth=0.6)
        previous = section


def _names(ground: "Axes", line: Line) -> None:
    row = line.row
    name = "\n".join(textwrap.wrap(row["title"], 30, max_lines=2, placeholder=" …"))
    mark = "*" if _is_at_null(line) else ""
    ground.text(NAMES_LEFT, line.height, name + mark, va="center", color=line.ink, linespacing=1.15)
    if line.is_ranked:
        ground.text(RANK_RIGHT, line.height, rank_text(row["rank"]), va="center", ha="right", weight="bold")
        move = signed(places(row["rank_auroc"], row["rank"]))
        ground.text(MOVE_CENTRE, line.height, f"{rank_text(row['rank_auroc'])}  ({move})", va="center", ha="center")


def _bar(bars: "Axes", line: Line, page: Page) -> None:
    left = 0.0
    terms = weighted_terms(line.row, page.protocol.score)
    opacity = 1.0 if line.is_ranked else 0.45
    for (_, colour), term in zip(TERMS, terms, strict=False):
        bars.barh(line.height, term, 0.5, left=left, color=colour, alpha=opacity, linewidth=0)
        left += term
    text = decimals(line.row["crs"]) if terms else "no CRS over the common data sets"
    weight = "bold" if line.is_ranked else "normal"
    bars.text(left + 0.014, line.height, text, va="center", weight=weight, color=line.ink)


def _dots(panel: "Axes", axis: str, lines: Sequence[Line], anchor: Anchor) -> None:
    """Values between the axis's anchors, the worse one at the left; a value beyond them is an arrow at the edge."""
    panel.set_xlim(anchor.zero, anchor.one)
    ticks = (anchor.zero, (anchor.zero + anchor.one) / 2, anchor.one)
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    # The labels of neighbouring panels would touch if each were centred on its tick.
    first, _, last = panel.get_xticklabels()
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    low, high = sorted((anchor.zero, anchor.one))
    for line in lines:
        value = line.row[axis]
        if value is None:
            continue
        inside = min(max(value, low), high)
        colour = canvas.BLUE if line.is_ranked else canvas.SOFT
        face = colour if line.is_ranked else "white"
        marker = "o" if inside == value else "<" if inside == anchor.zero else ">"
        panel.plot(inside, line.height, marker, markersize=7, color=colour, markerfacecolor=face, clip_on=False)
        # The value stands on the side of the dot that has room for it.
        is_right = abs(inside - anchor.zero) > abs(inside - anchor.one)
        look: dict[str, Any] = {"va": "center", "fontsize": 8.5, "color": line.ink}
        look["ha"], offset = ("right", (-7, 0)) if is_right else ("left", (7, 0))
        panel.annotate(decimals(value), (inside, line.height), offset, textcoords="offset points", **look)


def _footer(figure: "Figure", page: Page, lines: Sequence[Line], top: int) -> None:
    titles = "; ".join(page.dataset_title(name) for name in page.board.common) or "no data set"
    notes = [f"Means over: {titles}."]
    if page.board.agreement:
        name, agreement = next(iter(page.board.agreement.items()))
        notes.append(
            f"{name}: {agreement_brief(agreement)}. Point estimates: neighbouring ranks are no demonstrated difference."
        )
    if any(_is_at_null(line) for line in lines):
        notes[-1] += "  * not above its null controls on a data set."
    for position, note in enumerate(notes):
        text = textwrap.shorten(note, 205, placeholder=" …")
        canvas.write(figure, MARGIN, top + 21 * position, text, fontsize=9.5, color=canvas.SOFT)


def _is_at_null(line: Line) -> bool:
    return "at null on" in line.row["status"]
