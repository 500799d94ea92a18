"""What a chapter of the report is made of: texts, lists, tables, figures, and blocks that fold."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from markupsafe import Markup

from crs_assets.report.canvas import Drawing
from crs_assets.report.evidence import Evidence
from crs_assets.report.findings import Finding
from crs_assets.report.numbers import NONE, decimals
from crs_assets.report.tables import Cell, Column, Section, Table


@dataclass(frozen=True)
class Text:
    """A paragraph; a note is set smaller."""

    text: str
    is_note: bool = False
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Items:
    """A list of sentences."""

    items: tuple[str, ...]
    kind: ClassVar[str] = "items"


@dataclass(frozen=True)
class Facts:
    """Terms with what is to be said of each."""

    items: tuple[tuple[str, str], ...]
    kind: ClassVar[str] = "facts"


@dataclass(frozen=True)
class Answers:
    """Questions, each with the sentences that answer it."""

    findings: tuple[Finding, ...]
    kind: ClassVar[str] = "answers"


@dataclass(frozen=True)
class Figure:
    """A picture of the page, which is a file of its own too.

    Attributes:
        name: Stem of its files.
        caption: What it shows and how to read it.
        alt: What a person who cannot see it should know; where the numbers stand.
        drawing: The picture.
        as_png: Whether the page holds the raster picture, which is smaller where there are many points.
    """

    name: str
    caption: str
    alt: str
    drawing: Drawing
    as_png: bool = False
    kind: ClassVar[str] = "figure"

    @property
    def width(self) -> int:
        """Pixels across, so that the page does not jump while it loads."""
        return self.drawing.size[0]

    @property
    def height(self) -> int:
        """Pixels down."""
        return self.drawing.size[1]

    @property
    def source(self) -> str:
        """The picture itself, as an address that needs no other file."""
        return self.drawing.png_address() if self.as_png else self.drawing.svg_address()


@dataclass(frozen=True)
class Folded:
    """Blocks behind a line that opens them."""

    summary: str
    blocks: tuple["Block", ...]
    kind: ClassVar[str] = "folded"


@dataclass(frozen=True)
class Comparison:
    """The form that sets two encoders side by side; ``data`` is what its script reads."""

    data: Any
    kind: ClassVar[str] = "comparison"

    @property
    def json(self) -> Markup:
        """The data as JSON that cannot end the element it stands in."""
        text = json.dumps(self.data, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


Block = Text | Items | Facts | Answers | Figure | Folded | Comparison | Table


@dataclass(frozen=True)
class Chapter:
    """A chapter: an anchor, a heading, its blocks."""

    id: str
    title: str
    blocks: tuple[Block, ...]

    def figures(self) -> list[Figure]:
        """Every figure of it, folded ones too."""
        return list(_figures(self.blocks))


@dataclass(frozen=True)
class ChapterPlan:
    """How a chapter comes about.

    Attributes:
        id: Its anchor.
        title: Its heading.
        make: Its blocks; none where the suite gives no occasion for it.
        needs: Analyses without which it is left out.
    """

    id: str
    title: str
    make: Callable[[Evidence], Sequence[Block]]
    needs: tuple[str, ...] = ()


def plain_table(
    caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Cell]], *, row_header: int = 0
) -> Table:
    """A table of one section without a heading of its own."""
    return Table(caption, tuple(columns), (Section("rows", "", tuple(tuple(row) for row in rows)),), row_header)


def number(value: float | None, note: str = "") -> Cell:
    """A number that sorts by itself."""
    return Cell(decimals(value), value, note=note)


def word(text: str | None, note: str = "") -> Cell:
    """A word that sorts by the alphabet; a dash for None."""
    return Cell(NONE, note=note) if text is None else Cell(text, text.lower(), note=note)


def count(value: int | None) -> Cell:
    """A count."""
    return Cell(NONE) if value is None else Cell(f"{value:,}", value)


def _figures(blocks: Iterable[Block]) -> Iterable[Figure]:
    for block in blocks:
        if isinstance(block, Figure):
            yield block
        elif isinstance(block, Folded):
            yield from _figures(block.blocks)
