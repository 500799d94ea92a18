"""Chapters on the ranking: the leaderboard, how sure it is, two encoders side by side, AUROC against CRS."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from crs_assets.report.chapters.selections import certainty_of, headline, in_order, mean_profiles, score_rows
from crs_assets.report.content import Block, Comparison, Figure, Folded, Items, Text, number, plain_table, word
from crs_assets.report.drawings import ranking as drawings
from crs_assets.report.drawings import tradeoffs
from crs_assets.report.evidence import Evidence
from crs_assets.report.findings import rivals
from crs_assets.report.numbers import NONE, change, decimals, interval, listed, percent
from crs_assets.report.picture import leaderboard_drawing
from crs_assets.report.tables import Cell, Column, Section, Table, dataset_tables, headline_table
from crs_assets.report.wording import agreement_statements, ranking_statements
from crs_assets.science.analyses.uncertainty import AGGREGATE, CASE, CENTRED, COMPARED, JOINT, PANEL_FIXED, SEED
from crs_assets.science.leaderboard import CONTROL

ENCODER = Column("Encoder", is_number=False)
BETTER = {"auroc": 1, "ece": -1, "label_efficiency": 1, "robustness": -1, "crs": 1}
LABELS = {"auroc": "AUROC", "ece": "ECE", "label_efficiency": "Label efficiency", "robustness": "Drop", "crs": "CRS"}
DIGITS = 6
SHOWN = 3
"""Decimals of a score in a table."""


def leaderboard(evidence: Evidence) -> Sequence[Block]:
    """The ranking as the leaderboard page has it, then each data set."""
    page = evidence.page
    return [
        *(Text(statement) for statement in ranking_statements(page)),
        Figure(
            "leaderboard",
            "CRS as the sum of its three weighted terms, and the raw axes that it rests on.",
            "Stacked bars of the three weighted terms of each encoder's CRS, beside its four axes; null controls below "
            "a line. The same numbers stand in the table below.",
            leaderboard_drawing(page),
        ),
        headline_table(page, certainty_of(evidence)),
        *_brackets(evidence),
        Folded("Each data set by itself", dataset_tables(page)),
    ]


def certainty(evidence: Evidence) -> Sequence[Block]:
    """Intervals of the scores, probabilities of ranks, distribution of dominance."""
    ranked = [row["encoder"] for row in evidence.ranked]
    rows = score_rows(evidence)
    controls = [name for name in evidence.controls if name in rows["encoder"]]
    ranks = headline(evidence, "ranks")
    level = percent(evidence.page.protocol.statistics.interval)
    return [
        Text(
            f"Intervals hold {level} of the replicates. Over patients: test groups and seeds drawn anew, the same "
            "draws for all encoders. A resampled test set holds fewer distinct cases, so that calibration errors come "
            "out too large; each axis's replicates are therefore centred on its published value. Panel as published "
            "(primary): the panel stays what it is; joint: its members are resampled with the encoder. Over seeds: the "
            "test set as it is."
        ),
        Figure(
            "scores-and-ranks",
            "Scores with their intervals, and how often each rank comes up.",
            "Points with intervals of CRS per encoder, null controls below a line; beside them a heat map of the "
            "probability of each rank. The same numbers stand in the tables below.",
            drawings.score_intervals(ranked, controls, rows, ranks),
        ),
        *_beside(evidence, rows.filter(pl.col("kind") == CENTRED)),
        _interval_table(evidence),
        Folded("How probable is each rank?", (_rank_table(evidence, ranked, ranks),)),
        Folded("How is dominance distributed? It moves in steps.", (_dominance_table(evidence),)),
    ]


def side_by_side(evidence: Evidence) -> Sequence[Block]:
    """Two encoders with their paired differences."""
    return [Comparison(comparison_data(evidence))]


def auroc_against_crs(evidence: Evidence) -> Sequence[Block]:
    """Who moves where, and how far the rankings agree."""
    if len(evidence.ranked) < 2:
        return []
    blocks: list[Block] = [
        Figure(
            "auroc-to-crs",
            "Each line leads from an encoder's rank by AUROC to its rank by CRS.",
            "Lines between two columns of ranks: "
            + "; ".join(f"{row['encoder']} from {row['rank_auroc']:g} to {row['rank']:g}" for row in evidence.ranked)
            + ".",
            drawings.bump(evidence.ranked),
        ),
        Items(agreement_statements(evidence.page)),
    ]
    return blocks


def tradeoffs_and_profiles(evidence: Evidence) -> Sequence[Block]:
    """What is traded for AUROC, and each encoder's four axes."""
    whole = [row for row in evidence.ranked if row["discrimination"] is not None]
    profiles = mean_profiles(evidence)
    if not whole or not profiles:
        return []
    anchors = evidence.page.protocol.axes.anchors
    return [
        Figure(
            "pareto",
            "AUROC against each other axis over the common data sets; dominated encoders are grey.",
            "Three scatter plots of AUROC against calibration error, label efficiency and AUROC drop. The same numbers "
            "stand in the leaderboard's table.",
            tradeoffs.pareto(whole, anchors),
        ),
        Figure(
            "axis-profiles",
            "The four normalised axes of each encoder.",
            "A small panel per encoder with its four normalised axes between 0 and 1. The same numbers stand in the "
            "table below.",
            tradeoffs.axis_profiles(profiles, evidence.controls),
        ),
        _profile_table(evidence, profiles),
    ]


def comparison_data(evidence: Evidence) -> dict[str, Any]:
    """What the script of the comparison reads.

    Returns:
        ``encoders`` (id, title), ``quantities`` (label, 1 where more is better), ``places`` (titles), ``values``: per
        place, encoder -> a value per quantity; ``differences``: per place, ``"i,j"`` -> [difference, low, high] per
        quantity, the i-th encoder minus the j-th; ``first``: which two are shown at the start.
    """
    values, differences = headline(evidence, "intervals"), headline(evidence, "differences")
    known = set(values["encoder"])
    names = [row for row in evidence.rows if row["encoder"] in known]
    at = {row["encoder"]: place for place, row in enumerate(names)}
    quantities = ("crs", *(name for name in COMPARED if name != "crs"))
    places = {AGGREGATE: "Over the common data sets"}
    places |= {name: evidence.page.dataset_title(name) for name in evidence.page.scored_datasets}
    chosen = rivals(evidence.ranked) or tuple(at)[:2]
    return {
        "encoders": [
            [row["encoder"], row["title"] + (" (null control)" if row["section"] == CONTROL else "")] for row in names
        ],
        "quantities": [[LABELS[name], BETTER[name]] for name in quantities],
        "places": list(places.values()),
        "values": [_values(values, place, at, quantities) for place in places],
        "differences": [_differences(differences, place, at, quantities) for place in places],
        "first": [at[name] for name in chosen if name in at],
    }


def _values(
    table: pl.DataFrame, place: str, at: Mapping[str, int], quantities: Sequence[str]
) -> dict[str, list[float | None]]:
    rows = table.filter((pl.col("dataset") == place) & pl.col("quantity").is_in(quantities))
    found: dict[str, list[float | None]] = {}
    for encoder, quantity, value in rows.select("encoder", "quantity", "value").iter_rows():
        own = found.setdefault(str(at[encoder]), [None] * len(quantities))
        own[quantities.index(quantity)] = _rounded(value)
    return found


def _differences(
    table: pl.DataFrame, place: str, at: Mapping[str, int], quantities: Sequence[str]
) -> dict[str, list[list[float | None] | None]]:
    rows = table.filter((pl.col("dataset") == place) & pl.col("quantity").is_in(quantities))
    found: dict[str, list[list[float | None] | None]] = {}
    columns = ("encoder", "other", "quantity", "difference", "low", "high")
    for encoder, other, quantity, *numbers in rows.select(columns).iter_rows():
        own = found.setdefault(f"{at[encoder]},{at[other]}", [None] * len(quantities))
        own[quantities.index(quantity)] = [_rounded(value) for value in numbers]
    return found


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)


def _brackets(evidence: Evidence) -> Iterator[Block]:
    """What stands in brackets below a score, and whose score is not between them."""
    if evidence.has("uncertainty"):
        level = percent(evidence.page.protocol.statistics.interval)
        outside = _outside(evidence, score_rows(evidence).filter(pl.col("kind") == CENTRED))
        beside = f" It lies beside the score of {listed(outside)}: see the next chapter." if outside else ""
        text = f"In brackets: the {level} interval over patients and seeds, panel as published.{beside}"
        yield Text(text, is_note=True)


def _outside(evidence: Evidence, rows: pl.DataFrame) -> list[str]:
    """Encoders whose score is outside its own interval, as the tables show both."""
    value, low, high = (pl.col(name).round(SHOWN) for name in ("value", "low", "high"))
    return in_order(evidence, rows.filter((value < low) | (value > high)))["encoder"].to_list()


def _beside(evidence: Evidence, rows: pl.DataFrame) -> Iterator[Block]:
    """A word on scores that lie outside their own interval."""
    if outside := _outside(evidence, rows):
        yield Text(
            f"The score lies beside its interval for {listed(outside)}. Dominance moves in steps: where an axis is "
            "nearly tied with a panel member's, most resamples lose one. The interval then tells how unsure the score "
            "is, not where it is."
        )


def _interval_table(evidence: Evidence) -> Table:
    k = evidence.figure("uncertainty", "top_k")
    columns = (
        ENCODER,
        Column("CRS", "Clinical Reliability Score over the common data sets"),
        Column("Over patients", "Interval over test groups and seeds, panel as published"),
        Column("Joint", "The same with the panel's members resampled too"),
        Column("Over seeds", "Interval over seeds, the test set as it is"),
        Column("Over patients, not centred", "As the resamples fall, which makes calibration errors look larger"),
        Column("Its bias", "Mean of the scores that are not centred minus the score"),
        Column(f"P(first {k})", f"Share of resamples with a rank among the first {k}; the tier's measure"),
    )
    kinds = ((CENTRED, PANEL_FIXED), (CENTRED, JOINT), (SEED, PANEL_FIXED), (CASE, PANEL_FIXED))
    found = {
        (kind, peers): {
            row["encoder"]: row
            for row in headline(evidence, "intervals", kind=kind, peers=peers)
            .filter((pl.col("dataset") == AGGREGATE) & (pl.col("quantity") == "crs"))
            .iter_rows(named=True)
        }
        for kind, peers in kinds
    }
    top = (evidence.figure("uncertainty", "verdict") or {"top": {}})["top"]
    sections = []
    for section in headline_table(evidence.page).sections:
        names = [row["encoder"] for row in evidence.rows if row["section"] == section.id]
        rows = [
            (
                word(name),
                number(found[kinds[0]][name]["value"]),
                *(_interval_cell(found[kind].get(name)) for kind in kinds),
                Cell(change(found[kinds[-1]][name]["bias"]), found[kinds[-1]][name]["bias"]),
                Cell(percent(top[name]), top[name]) if name in top else Cell(NONE),
            )
            for name in names
            if name in found[kinds[0]]
        ]
        if rows:
            sections.append(Section(section.id, section.title, tuple(rows)))
    return Table("Scores with their intervals", columns, tuple(sections), row_header=0)


def _interval_cell(row: Mapping[str, Any] | None) -> Cell:
    return Cell(NONE) if row is None else Cell(interval(row["low"], row["high"]), row["low"])


def _rank_table(evidence: Evidence, ranked: Sequence[str], ranks: pl.DataFrame) -> Table:
    found = {(name, rank): p for name, rank, p in ranks.select("encoder", "rank", "probability").iter_rows()}
    columns = (ENCODER, *(Column(f"Rank {rank + 1}") for rank in range(len(ranked))))
    rows = [
        (word(name), *(Cell(percent(p), p) for rank in range(len(ranked)) for p in [found.get((name, rank + 1), 0.0)]))
        for name in ranked
    ]
    return plain_table(f"P(rank) under the protocol {evidence.page.protocol.id}", columns, rows)


def _dominance_table(evidence: Evidence) -> Table:
    steps = headline(evidence, "dominance").filter(pl.col("dataset") == AGGREGATE).sort("encoder", "dominance")
    rows = []
    for name in (*evidence.encoders, *evidence.controls):
        own = steps.filter(pl.col("encoder") == name).select("dominance", "probability").rows()
        if own:
            text = ", ".join(f"{decimals(step)} ({percent(probability)})" for step, probability in own)
            rows.append((word(name), Cell(text)))
    columns = (ENCODER, Column("Dominance (share of resamples)", is_number=False))
    return plain_table("Dominance over the common data sets under resampling", columns, rows)


def _profile_table(evidence: Evidence, profiles: Mapping[str, Mapping[str, float]]) -> Folded:
    columns = (ENCODER, *(Column(f"z {label}") for label in ("AUROC", "ECE", "label eff.", "drop")))

    def rows(names: Sequence[str]) -> Iterator[tuple[Cell, ...]]:
        return ((word(name), *(number(value) for value in profiles[name].values())) for name in names)

    sections = [
        Section(name, title, tuple(rows(names)))
        for name, title, names in (
            ("ranked", "Ranked", [name for name in profiles if name not in evidence.controls]),
            ("control", "Null controls", [name for name in profiles if name in evidence.controls]),
        )
        if names
    ]
    return Folded("The same as a table", (Table("Normalised axes", columns, tuple(sections), row_header=0),))
