"""Chapters for the record: the data, how to read the columns, where every number comes from."""

from collections.abc import Sequence

import polars as pl

from crs_assets.report.chapters.selections import certainty_of
from crs_assets.report.content import Block, Facts, Folded, Text, plain_table, word
from crs_assets.report.evidence import DatasetCard, Evidence
from crs_assets.report.numbers import NONE
from crs_assets.report.rendering import anchors, glossary, page_facts
from crs_assets.report.tables import Cell, Column, Table, dataset_tables, headline_table

KINDS = {
    "read": "read",
    "excluded": "left out",
    "noticed": "noticed",
    "quarantined": "quarantined",
    "flagged": "flagged",
    "used": "used",
    "positives": "positive images",
}


def data_cards(evidence: Evidence) -> Sequence[Block]:
    """A card per image set: terms, labels, counts, exclusions, citation."""
    cards = [Folded(f"{card.title} ({card.id})", (Facts(card.facts), *_card_tables(card))) for card in evidence.cards]
    note = "Counts of 1 to 9 images or patients are not told, nor a count that would give one away."
    return [_overview(evidence), Text(note, is_note=True), *cards]


def columns(evidence: Evidence) -> Sequence[Block]:
    """What the columns of the leaderboard mean, and the anchors of the axes."""
    page, weights = evidence.page, evidence.page.protocol.score
    meanings = glossary((headline_table(page, certainty_of(evidence)), *dataset_tables(page)))
    heads = (Column("Axis", is_number=False), Column("Value at 0"), Column("Value at 1"))
    rows = [
        (word(label, note=meaning), Cell(zero, float(zero)), Cell(one, float(one)))
        for label, meaning, zero, one in anchors(page.protocol)
    ]
    return [
        Text(
            f"CRS = {weights.dominance:g} D + {weights.closeness:g} I + {weights.worst_axis:g} W, from the four axes "
            "after each is mapped linearly to [0, 1] between two anchors and clipped. The panel is frozen: adding an "
            "encoder changes no published score."
        ),
        Facts(tuple((label, f"{meaning}.") for label, meaning in meanings.items())),
        plain_table(f"Anchors of {page.protocol.id}", heads, rows),
    ]


def provenance(evidence: Evidence) -> Sequence[Block]:
    """Protocol, panel, libraries, device, and versions of everything that is shown."""
    versions = tuple(sorted(evidence.versions.items()))
    return [
        Facts(tuple(page_facts(evidence.page))),
        Folded("Versions of what is shown", (Facts(versions),)),
    ]


def _overview(evidence: Evidence) -> Table:
    """Every image set in one line: how many images came of how many, what was left out, under which licence."""
    columns = (
        Column("Image set", is_number=False),
        Column("Used as", is_number=False),
        Column("Not read", "Images left out from the start, by reason", is_number=False),
        Column("Images read"),
        Column("Quarantined", "Images read and then left out, by reason", is_number=False),
        Column("Images used"),
        Column("Groups", "Patients, lesions or images that are never divided between splits"),
        Column("Licence", is_number=False),
    )
    rows = []
    for card in evidence.cards:
        counts = {(kind, name): text for kind, name, text in card.counts.select("kind", "name", "count").iter_rows()}
        facts = dict(card.facts)
        rows.append(
            (
                word(card.title, note=card.id),
                word(facts.get("used as")),
                _by_reason(card, "excluded"),
                _count(counts.get(("read", "images"), NONE)),
                _by_reason(card, "quarantined"),
                *(_count(counts.get(("used", name), NONE)) for name in ("images", "groups")),
                word(facts.get("licence")),
            )
        )
    return plain_table("Image sets", columns, rows)


def _by_reason(card: DatasetCard, kind: str) -> Cell:
    rows = card.counts.filter(pl.col("kind") == kind).select("name", "count").iter_rows()
    return word("; ".join(f"{name.replace('_', ' ')}: {text}" for name, text in rows) or None)


def _card_tables(card: DatasetCard) -> Sequence[Block]:
    heads = (Column("What", is_number=False), Column("Which", is_number=False), Column("Count"))
    rows = [
        (word(KINDS.get(kind, kind)), word(name.replace("_", " ")), _count(text))
        for kind, name, text in card.counts.select("kind", "name", "count").iter_rows()
    ]
    blocks: list[Block] = [plain_table(f"Counts of {card.id}", heads, rows)]
    if card.left_out:
        named = "; ".join(card.left_out)
        blocks.append(Text(f"Not scored, because a split has too few positives or negatives: {named}."))
    return blocks


def _count(text: str) -> Cell:
    return Cell(f"{int(text):,}", int(text)) if text.isdigit() else Cell(text, 0)
