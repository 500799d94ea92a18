"""How an encoder looks, the same in every picture: colour and marker for the first few, grey for the others."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from crs_assets.report import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (canvas.BLUE, canvas.VERMILLION, canvas.GREEN, canvas.PURPLE, canvas.ORANGE, canvas.SKY)
MARKERS = ("o", "s", "^", "D", "v", "P")
LEFT, TOP = 30, 24


@dataclass(frozen=True)
class Look:
    """Colour, marker, and whether the encoder is told apart from the others at a glance."""

    colour: str
    marker: str
    is_marked: bool

    @property
    def order(self) -> int:
        """What is marked is drawn over the rest."""
        return 3 if self.is_marked else 2


OTHER = Look(canvas.FAINT, ".", is_marked=False)


def looks(rows: Sequence[Mapping[str, Any]]) -> dict[str, Look]:
    """Looks of ranked encoders, best first: the first few by CRS, and whoever is first by AUROC, are marked.

    Args:
        rows: Ranked encoders in the order of their rank: ``encoder``, ``rank_auroc``.
    """
    names = [row["encoder"] for row in rows]
    marked = names[: len(COLOURS)]
    if len(names) > len(COLOURS):
        by_auroc = min(rows, key=lambda row: row["rank_auroc"])["encoder"]
        if by_auroc not in marked:
            marked[-1] = by_auroc
    given = {
        name: Look(colour, marker, is_marked=True)
        for name, colour, marker in zip(marked, COLOURS, MARKERS, strict=False)
    }
    return {name: given.get(name, OTHER) for name in names}


def heading(figure: "Figure", title: str, subtitle: str) -> None:
    """Title and a line of explanation in the top left corner."""
    canvas.write(figure, LEFT, TOP, title, fontsize=14, weight="bold")
    canvas.write(figure, LEFT, TOP + 30, subtitle, fontsize=10, color=canvas.SOFT)


def plain(axes: "Axes", grid: Literal["both", "x", "y"] = "both") -> "Axes":
    """Axes with a faint grid and no tick marks."""
    axes.grid(axis=grid, color=canvas.GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    return axes


def label(axes: "Axes", title: str, across: str = "", up: str = "") -> None:
    """Title at the left, names of the axes."""
    axes.set_title(title, loc="left", fontsize=10.5, pad=7)
    axes.set_xlabel(across, labelpad=3)
    axes.set_ylabel(up, labelpad=3)


def legend(figure: "Figure", entries: Mapping[str, Look], top: int, *, columns: int = 4) -> None:
    """Names of the marked encoders in rows of a few, below a picture; the grey ones as one entry."""
    from matplotlib.lines import Line2D

    shown: dict[str, Look] = {name: look for name, look in entries.items() if look.is_marked}
    if len(shown) < len(entries):
        shown["other encoders"] = OTHER
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, markersize=5.5, linestyle="-", label=name)
        for name, look in shown.items()
    ]
    across, down = figure.get_size_inches() * figure.dpi
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=((LEFT - 8) / across, 1 - top / down),
        ncols=columns,
        frameon=False,
        fontsize=10,
        columnspacing=1.6,
        handletextpad=0.5,
    )


def legend_height(entries: Mapping[str, Look], *, columns: int = 4) -> int:
    """Pixels that the legend takes."""
    shown = sum(look.is_marked for look in entries.values())
    shown += shown < len(entries)
    return 30 + 22 * -(-shown // columns)


@dataclass(frozen=True)
class Grid:
    """Small multiples, row by row: how many across, the first box, the gaps between boxes; all in pixels."""

    columns: int
    left: int
    top: int
    width: int
    height: int
    gap_across: int
    gap_down: int

    def axes(self, figure: "Figure", number: int) -> "Axes":
        """The axes of one box, counted from 0."""
        row, column = divmod(number, self.columns)
        left = self.left + column * (self.width + self.gap_across)
        top = self.top + row * (self.height + self.gap_down)
        return canvas.add_axes(figure, left, top, self.width, self.height)

    def bottom(self, count: int) -> int:
        """Where so many boxes and the gap below them end."""
        return self.top + -(-count // self.columns) * (self.height + self.gap_down)


def known(values: Iterable[float | None]) -> list[float]:
    """Values that are there, in order."""
    return [value for value in values if value is not None and value == value]
