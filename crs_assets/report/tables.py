"""The leaderboard's tables as plain cells: what stands where is decided here, how it looks in the template."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from crs_assets.report.numbers import NONE, decimals, percent, places, rank_text, signed
from crs_assets.report.page import Page
from crs_assets.science.leaderboard import CONTROL, INCOMPLETE, RANKED
from crs_assets.science.protocol import AXES, ScoreWeights

TERMS = ("dominance", "closeness", "worst_axis")
AXIS_LABELS = {
    "discrimination": ("AUROC", "Macro-AUROC at all labels, clean images; higher is better"),
    "calibration": ("ECE", "Expected calibration error; lower is better"),
    "label_efficiency": (
        "Label eff.",
        "Label efficiency: share of the full AUROC kept with fewer labels; higher is better",
    ),
    "robustness": ("Drop", "Robustness: loss of AUROC on degraded images and at the transfer target; lower is better"),
}
SECTION_TITLES = {
    RANKED: "Ranked",
    INCOMPLETE: "Not ranked: incomplete, or no data set in common that can rank",
    CONTROL: "Null controls: below the line, never ranked, never members of the panel",
}


@dataclass(frozen=True)
class Column:
    """A column: its heading, what it means, whether it holds numbers, or sentences that need room."""

    label: str
    meaning: str = ""
    is_number: bool = True
    is_status: bool = False


@dataclass(frozen=True)
class Cell:
    """One cell: its text, what it sorts by, a second line, and the widths in percent of a stacked bar."""

    text: str
    sort: float | str | None = None
    note: str = ""
    bar: tuple[float, ...] = ()


@dataclass(frozen=True)
class Section:
    """Rows that stand together, under a title if it has one; sorting never moves a row out of its section."""

    id: str
    title: str
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Table:
    """A table; the first column that holds the encoder is the header of its row."""

    caption: str
    columns: tuple[Column, ...]
    sections: tuple[Section, ...]
    row_header: int
    kind: ClassVar[str] = "table"


@dataclass(frozen=True)
class Certainty:
    """How sure scores and ranks are, where that was analysed.

    Attributes:
        intervals: Encoder -> interval of its score over patients and seeds, as text.
        top_k: Up to which rank is the top.
        top: Encoder -> probability of a rank in the top.
    """

    intervals: Mapping[str, str]
    top_k: int
    top: Mapping[str, float]


def headline_table(page: Page, certainty: Certainty | None = None) -> Table:
    """Every encoder once: rank, score with its terms, axes, coverage, AUROC's rank, the other readings, status.

    Args:
        page: The leaderboard.
        certainty: Adds the interval of each score, and how probable the first ranks are.
    """
    others = {reading: {row["encoder"]: row for row in page.rows(reading)} for reading in page.readings[1:]}
    shows_existing = differs_on_existing_cells(page)
    columns = (
        Column("Rank", "Rank by CRS; ties share the mean of their ranks"),
        Column("Encoder", is_number=False),
        Column("Family", "What the encoder was made for", is_number=False),
        *_score_columns(certainty),
        *_term_columns(),
        *(Column(*AXIS_LABELS[axis]) for axis in AXES),
        Column("Cells", "Scored data sets of those that exist for the encoder"),
        *(
            [
                Column("CRS, own cells", "Mean over the encoder's own cells"),
                Column("Rank, own cells", "Rank by that mean"),
            ]
            if shows_existing
            else []
        ),
        Column("AUROC rank", "Rank by AUROC over the same data sets"),
        Column("Move", "Places gained from the AUROC ranking to the CRS ranking"),
        *(column for reading in others for column in _reading_columns(page, reading, "Rank")),
        Column("Status", is_number=False, is_status=True),
    )
    rows = page.rows(page.readings[0])

    def cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
        other_rows = [rows[row["encoder"]] for rows in others.values()]
        return tuple(_headline_cells(row, other_rows, page, certainty, shows_existing=shows_existing))

    sections = _sections(rows, {row["encoder"]: row["section"] for row in rows}, cells)
    return Table(f"Encoders by CRS, protocol {page.protocol.id}", columns, sections, row_header=1)


def dataset_tables(page: Page) -> tuple[Table, ...]:
    """One table per data set: score, panel members dominated, terms, axes, state of the cell."""
    rows = page.rows(page.readings[0])
    return tuple(_dataset_table(page, name, rows) for name in page.scored_datasets)


def differs_on_existing_cells(page: Page) -> bool:
    """Whether any ranked encoder's mean over its own cells differs from its mean over the common data sets."""
    rows = [row for row in page.rows(page.readings[0]) if row["section"] == RANKED]
    return any(decimals(row["crs"]) != decimals(row["crs_existing"]) for row in rows)


def weighted_terms(row: Mapping[str, Any], weights: ScoreWeights) -> tuple[float, ...]:
    """The three parts that add up to the score; empty where the row has none."""
    if any(row[term] is None for term in TERMS):
        return ()
    return tuple(getattr(weights, term) * row[term] for term in TERMS)


def _headline_cells(
    row: Mapping[str, Any],
    others: Sequence[Mapping[str, Any]],
    page: Page,
    certainty: Certainty | None,
    *,
    shows_existing: bool,
) -> Iterator[Cell]:
    move = places(row["rank_auroc"], row["rank"])
    yield Cell(rank_text(row["rank"]), row["rank"])
    yield Cell(row["title"], row["title"].lower(), note=row["encoder"])
    yield Cell(row["family"], row["family"])
    yield from _score_cells(row, weighted_terms(row, page.protocol.score), certainty)
    yield from (_number(row[name]) for name in (*TERMS, *AXES))
    yield Cell(f"{row['covered']} of {row['expected']}", row["covered"])
    if shows_existing:
        yield _number(row["crs_existing"])
        yield Cell(rank_text(row["rank_existing"]), row["rank_existing"])
    yield Cell(rank_text(row["rank_auroc"]), row["rank_auroc"])
    yield Cell(signed(move), move)
    for other in others:
        yield _number(other["crs"])
        yield Cell(rank_text(other["rank"]), other["rank"])
    status = row["status"] or "complete"
    yield Cell(status, status)


def _dataset_table(page: Page, dataset: str, encoders: Sequence[Mapping[str, Any]]) -> Table:
    cells = page.board.cells.filter(pl.col("dataset") == dataset)
    by_reading = {
        reading: {cell["encoder"]: cell for cell in cells.filter(pl.col("reading") == reading).iter_rows(named=True)}
        for reading in page.readings
    }
    first, others = by_reading[page.readings[0]], [by_reading[reading] for reading in page.readings[1:]]
    columns = (
        Column("Encoder", is_number=False),
        Column("CRS", "Clinical Reliability Score on this data set; higher is better"),
        Column(
            "Dominates",
            "Members of the panel that the encoder is at least as good as on all four axes and better on one",
        ),
        *_term_columns()[1:],
        *(Column(*AXIS_LABELS[axis]) for axis in AXES),
        *(column for reading in page.readings[1:] for column in _reading_columns(page, reading, "Dominates")),
        Column("Cell", is_number=False, is_status=True),
    )

    def row_cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
        name = row["encoder"]
        return tuple(_dataset_cells(row, first[name], [other[name] for other in others]))

    scored = sorted(encoders, key=lambda row: -(first[row["encoder"]]["crs"] or 0.0))
    sections = _sections(scored, {row["encoder"]: row["section"] for row in encoders}, row_cells)
    return Table(page.dataset_title(dataset), columns, sections, row_header=0)


def _dataset_cells(
    row: Mapping[str, Any], cell: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> Iterator[Cell]:
    yield Cell(row["title"], row["title"].lower(), note=row["encoder"])
    yield _number(cell["crs"])
    yield _dominated(cell)
    yield from (_number(cell[name]) for name in ("closeness", "worst_axis", *AXES))
    for other in others:
        yield _number(other["crs"])
        yield _dominated(other)
    is_at_null = bool(cell["at_null"]) and row["section"] != CONTROL
    yield Cell(cell["state"], cell["state"], note="at null: AUROC not above its null controls" if is_at_null else "")


def _sections(rows: Sequence[Mapping[str, Any]], section_of: Mapping[str, str], cells: Any) -> tuple[Section, ...]:
    found = []
    for section, title in SECTION_TITLES.items():
        inside = tuple(cells(row) for row in rows if section_of[row["encoder"]] == section)
        if inside:
            found.append(Section(section, title, inside))
    return tuple(found)


def _reading_columns(page: Page, reading: str, second: str) -> tuple[Column, Column]:
    short = page.short_reading(reading)
    return (
        Column(f"CRS {short}", f"CRS under the reading {reading} of the same runs"),
        Column(f"{second} {short}", f"{second} under the reading {reading}"),
    )


def _term_columns() -> tuple[Column, ...]:
    return (
        Column("D", "Dominance: share of the panel that the encoder Pareto-dominates; higher is better"),
        Column("I", "Closeness to the ideal profile; higher is better"),
        Column("W", "Worst axis: the smallest of the four normalised axes; higher is better"),
    )


def _score_columns(certainty: Certainty | None) -> Iterator[Column]:
    meaning = "Clinical Reliability Score in [0, 1]; bar: its three weighted terms; higher is better"
    if certainty is None:
        yield Column("CRS", meaning)
        return
    yield Column("CRS", f"{meaning}; in brackets: its interval over patients and seeds")
    k = certainty.top_k
    yield Column(f"P(first {k})", f"How often the encoder is among the first {k} when patients and seeds are resampled")


def _score_cells(row: Mapping[str, Any], terms: tuple[float, ...], certainty: Certainty | None) -> Iterator[Cell]:
    name, bar = row["encoder"], tuple(round(100 * term, 2) for term in terms)
    note = certainty.intervals.get(name, "") if certainty else ""
    yield Cell(decimals(row["crs"]), row["crs"], note=note, bar=bar)
    if certainty:
        top = certainty.top.get(name)
        yield Cell(percent(top), top)


def _dominated(cell: Mapping[str, Any]) -> Cell:
    return Cell(NONE) if cell["peers"] is None else Cell(f"{cell['dominated']}/{cell['peers']}", cell["dominated"])


def _number(value: float | None) -> Cell:
    return Cell(decimals(value), value)
