"""Pictures without a display: one style, one palette, bytes that depend on the content only."""

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1b2430"
SOFT = "#55606e"
FAINT = "#aab2bd"
GRID = "#e3e7ec"
WARNING = "#8a2c00"
# Okabe and Ito's palette, distinct under every common colour vision.
BLUE, SKY, ORANGE, GREEN, VERMILLION, PURPLE = "#0072b2", "#56b4e9", "#e69f00", "#009e73", "#d55e00", "#cc79a7"

_DPI = 100
_COLOURS = 64
_COMPRESSION = 7
_WHITE = 253
_STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": 10.5,
    "text.color": INK,
    "text.parse_math": False,  # a dollar sign in a title is a dollar sign
    "axes.edgecolor": FAINT,
    "axes.labelcolor": SOFT,
    "axes.labelsize": 10,
    "axes.titley": 1.0,  # a fixed place saves measuring every tick label
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": SOFT,
    "ytick.labelcolor": SOFT,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "lines.linewidth": 1.6,
    "svg.fonttype": "path",  # a reader's machine need not have the font
    "svg.hashsalt": "crs",  # names of parts follow from the content alone
}
_DOCTYPE = re.compile(r"<!DOCTYPE[^>]*>\s*")


@dataclass(frozen=True)
class Drawing:
    """One picture in two forms."""

    png: bytes
    svg: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Pixels across and down."""
        return Image.open(BytesIO(self.png)).size

    def png_address(self) -> str:
        """The raster form as an address that holds its own bytes."""
        return png_address(self.png)

    def svg_address(self) -> str:
        """The vector form as an address that holds its own bytes."""
        return _address("image/svg+xml", self.svg)


def png_address(png: bytes) -> str:
    """A PNG as an address that holds its own bytes."""
    return _address("image/png", png)


@contextmanager
def style() -> Iterator[None]:
    """The pictures' own settings inside the block, whatever a user's matplotlibrc says."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        parameters: Any = matplotlib.rcParams
        parameters.update(_STYLE)
        yield


def new_figure(width: int, height: int) -> "Figure":
    """An empty white figure of that many pixels."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def add_axes(figure: "Figure", left: float, top: float, width: float, height: float) -> "Axes":
    """Axes by their box in pixels, measured from the top left corner of the figure."""
    across, down = figure.get_size_inches() * _DPI
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def write(figure: "Figure", left: float, top: float, text: str, **options: Any) -> None:
    """Text with its top left corner (or the named alignment) at a pixel from the top left corner of the figure."""
    across, down = figure.get_size_inches() * _DPI
    figure.text(left / across, 1 - top / down, text, **{"va": "top", "ha": "left", **options})


def png_bytes(figure: "Figure") -> bytes:
    """The figure as PNG with an adaptive palette: a third of the size, no metadata, equal bytes for equal content."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    reduced = picture.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    # The octree averages white with its neighbours; the page around the picture is white.
    reduced.putpalette([255 if level >= _WHITE else level for level in reduced.getpalette() or []])
    buffer = BytesIO()
    reduced.save(buffer, format="PNG", compress_level=_COMPRESSION)
    return buffer.getvalue()


def svg_bytes(figure: "Figure") -> bytes:
    """The figure as SVG with letters as outlines; no metadata, no address, equal bytes for equal content."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = BytesIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(buffer, metadata=nothing)
    return _DOCTYPE.sub("", buffer.getvalue().decode("utf-8")).encode("utf-8")


def drawn(figure: "Figure") -> Drawing:
    """The figure in both forms."""
    return Drawing(png_bytes(figure), svg_bytes(figure))


def _address(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
