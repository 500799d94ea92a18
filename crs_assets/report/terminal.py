"""The leaderboard for a terminal."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from crs_assets.report.numbers import decimals, places, rank_text, signed
from crs_assets.report.tables import AXIS_LABELS, TERMS
from crs_assets.science.leaderboard import Board
from crs_assets.science.protocol import AXES

if TYPE_CHECKING:
    from rich.table import Table

NAME_WIDTH = 22
FULL_WIDTH = 100
LEGEND = "CRS = weighted D dominance, I closeness to the ideal, W worst axis; ECE and Drop: lower is better."


def leaderboard_table(board: Board | pl.DataFrame, reading: str, *, narrow: bool = False) -> "Table":
    """The headline table; with one further reading it fits ``FULL_WIDTH`` columns, narrow it fits 80.

    Args:
        board: The board, or its stored rows.
        reading: Which reading ranks; the others stand at the right with their score and rank.
        narrow: Leave out the terms of the score and the other readings.

    Returns:
        A rich table: ranked, then incomplete with their reasons below the table, then the null controls.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    rows = board.rows if isinstance(board, Board) else board
    first = rows.filter(pl.col("reading") == reading).to_dicts()
    others = [] if narrow else [name for name in rows["reading"].unique(maintain_order=True) if name != reading]
    terms = () if narrow else TERMS
    by_reading = [{row["encoder"]: row for row in rows.filter(pl.col("reading") == name).to_dicts()} for name in others]
    table = Table(box=box.SIMPLE_HEAD, padding=0, pad_edge=False, show_edge=False, caption_justify="left")
    table.add_column("Rank", justify="right")
    table.add_column("Encoder", width=NAME_WIDTH, overflow="fold")
    labels = ("CRS", *("D", "I", "W")[: len(terms)], *(AXIS_LABELS[axis][0] for axis in AXES), "Sets", "AUROC rank")
    for label in (*labels, *(f"{_short(name, reading)} {kind}" for name in others for kind in ("CRS", "rank"))):
        table.add_column(label.replace(" ", "\n"), justify="right", no_wrap=True)
    for position, row in enumerate(first):
        ends = position + 1 < len(first) and first[position + 1]["section"] != row["section"]
        texts = _cells(row, terms, [rows_of[row["encoder"]] for rows_of in by_reading])
        style = None if row["rank"] is not None else "dim"
        table.add_row(*(Text(text) for text in texts), style=style, end_section=ends)
    table.caption = Text("\n".join(_notes(first)))
    return table


def _cells(row: Mapping[str, Any], terms: Sequence[str], others: Sequence[Mapping[str, Any]]) -> list[str]:
    move = signed(places(row["rank_auroc"], row["rank"]))
    ranks = rank_text(row["rank_auroc"]) + ("" if row["rank"] is None else f" {move}")
    numbers = [decimals(row[name]) for name in ("crs", *terms, *AXES)]
    tail = [text for other in others for text in (decimals(other["crs"]), rank_text(other["rank"]))]
    name = _broken(row["encoder"])
    return [rank_text(row["rank"]), name, *numbers, f"{row['covered']}/{row['expected']}", ranks, *tail]


def _broken(name: str) -> str:
    """An id that is too long, broken at its hyphens; textwrap would spare those behind a digit."""
    lines = [""]
    for part in re.findall(r"[^-]*-|[^-]+", name):
        if lines[-1] and len(lines[-1]) + len(part) > NAME_WIDTH:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _notes(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the letters mean; why encoders are not ranked, or are marked; controls are marked as such."""
    notes = [f"{row['encoder']}: {row['status']}" for row in rows if row["status"] and row["section"] != "control"]
    controls = [row["encoder"] for row in rows if row["section"] == "control"]
    return [LEGEND, *notes, *([f"null controls, never ranked: {', '.join(controls)}"] if controls else [])]


def _short(name: str, reading: str) -> str:
    return name.removeprefix(f"{reading}-")
