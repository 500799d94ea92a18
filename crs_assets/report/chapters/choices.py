"""Chapters on choices: another probe, other weights and anchors, another panel."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from crs_assets.report.chapters.ranking import ENCODER
from crs_assets.report.content import Block, Figure, Folded, Text, count, number, plain_table, word
from crs_assets.report.drawings.arrivals import displacements
from crs_assets.report.drawings.elsewhere import rank_ranges
from crs_assets.report.evidence import Evidence
from crs_assets.report.numbers import NONE, change, decimals, minus_signs, percent, rank_text
from crs_assets.report.tables import AXIS_LABELS, Cell, Column, Table
from crs_assets.science.analyses.agreement import COMMON
from crs_assets.science.analyses.invariance import COHORT, FROZEN
from crs_assets.science.analyses.penalty_choices import PENALTY
from crs_assets.science.protocol import AXES

PROBES = {"linear": "linear", "mlp": "perceptron", "knn": "nearest neighbours"}
ANCHORS = {"zero": "value at 0", "one": "value at 1"}
AGREEMENT_COLUMNS = (
    Column("n", "Encoders in both rankings"),
    Column("Kendall's tau-b", "1 where the rankings are the same"),
    Column("Spearman's rho", "1 where the rankings are the same"),
    Column("Reversed", "Pairs of encoders that the rankings order the other way round"),
    Column("Places", "Mean absolute displacement"),
    Column("Top in both", "How many of the first are among the first in both"),
)


def rank_agreement(evidence: Evidence) -> Sequence[Block]:
    """How far rankings by each axis and reading agree with CRS."""
    table = evidence.table("rank_agreement", "agreement").filter(~_is_probe())
    columns = (
        Column("Over", is_number=False),
        Column("Reading", is_number=False),
        Column("Ranking by", is_number=False),
        Column("Against", is_number=False),
        *AGREEMENT_COLUMNS,
    )

    def rows(part: pl.DataFrame) -> list[Sequence[Cell]]:
        return [
            (
                word(row["dataset"] or row["scope"]),
                word(row["reading"]),
                word(_called(row["a"])),
                word(_called(row["b"])),
                *agreement_cells(row),
            )
            for row in part.iter_rows(named=True)
        ]

    common, rest = table.filter(pl.col("scope") == COMMON), table.filter(pl.col("scope") != COMMON)
    return [
        Text(
            "Each row compares two rankings of the encoders. Tau-b and rho are +1 where they are the same and "
            "\N{MINUS SIGN}1 where one is the other turned round."
        ),
        plain_table("Agreement of rankings over the common data sets", columns, rows(common)),
        Folded(
            "Over existing cells, and on each data set",
            (plain_table("Agreement of rankings over other cells", columns, rows(rest)),),
        ),
    ]


def control_probes(evidence: Evidence) -> Sequence[Block]:
    """Whether another probe would rank the encoders alike."""
    blocks: list[Block] = [
        Text(
            "The same features under a perceptron with one hidden layer and under nearest neighbours. Neither enters "
            "any score; they show how much of a ranking is the linear probe's."
        )
    ]
    if evidence.has("rank_agreement"):
        table = evidence.table("rank_agreement", "agreement").filter(_is_probe() & (pl.col("scope") == COMMON))
        columns = (Column("Axis", is_number=False), Column("Probe", is_number=False), *AGREEMENT_COLUMNS)
        rows = [
            (
                word(_called(row["a"])),
                word(PROBES.get(row["b"].rpartition(" of ")[2], row["b"])),
                *agreement_cells(row),
            )
            for row in table.iter_rows(named=True)
        ]
        if rows:
            blocks.append(plain_table("Rankings by other probes against the linear one", columns, rows))
    return [*blocks, _probe_table(evidence)]


def sensitivity(evidence: Evidence) -> Sequence[Block]:
    """Other axes, anchors, readings and weights."""
    variants = evidence.table("score_sensitivity", "variants")
    weightings = evidence.table("score_sensitivity", "weightings").filter(pl.col("reading") == evidence.reading)
    columns = (
        Column("Changed", is_number=False),
        Column("To", is_number=False, is_status=True),
        Column("Ranking by", is_number=False),
        Column("Largest change", "Of any encoder's value"),
        *AGREEMENT_COLUMNS,
    )

    def rows(part: pl.DataFrame) -> list[Sequence[Cell]]:
        return [
            (
                word(row["kind"]),
                word(_variant(row["variant"]), note=row["reason"] or ""),
                word(_called(row["quantity"])),
                number(row["max_change"]),
                *agreement_cells({**row, "reason": ""}),
            )
            for row in part.iter_rows(named=True)
        ]

    is_penalty = pl.col("kind") == PENALTY
    title = "The published ranking against rankings under other choices"
    tables: list[Block] = [plain_table(title, columns, rows(variants.filter(~is_penalty)))]
    if penalties := rows(variants.filter(is_penalty)):
        title = "The published ranking against rankings under other penalties of the probe"
        tables.append(Folded("Under every penalty of the grid", (plain_table(title, columns, penalties),)))
    if weightings.is_empty():
        return tables
    return [
        Figure(
            "weightings",
            "Ranks over every weighting of dominance, closeness and worst axis.",
            "Lines from the best to the worst rank of each encoder over all weightings. The same numbers stand in the "
            "table below.",
            rank_ranges(weightings),
        ),
        Folded("The same as a table", (_weighting_table(weightings),)),
        *tables,
    ]


def invariance(evidence: Evidence) -> Sequence[Block]:
    """What arriving encoders do to published scores, under a cohort rule and under the frozen panel."""
    table = evidence.table("reference_invariance", "displacement").filter(pl.col("reading") == evidence.reading)
    by_rule: Mapping[str, Mapping[str, Any]] = {row["rule"]: row for row in table.iter_rows(named=True)}
    cohort, frozen = by_rule[COHORT], by_rule[FROZEN]
    trials = evidence.table("reference_invariance", "trials")
    columns = (
        Column("Rule", is_number=False),
        Column("Mean displacement", "Of a published score, in CRS"),
        Column("Largest"),
        Column("Scores", "Over trials and encoders"),
    )
    rows = [
        (word(name), number(row["mean_displacement"]), number(row["max_displacement"]), count(row["scores"]))
        for name, row in by_rule.items()
    ]
    return [
        Text(
            f"Trials: {cohort['draws']} ({cohort['distinct_draws']} distinct); newcomers in each: "
            f"{cohort['arriving']} of the panel's {cohort['panel']} encoders. Were scores taken relative to the "
            f"current cohort, published ones would move by {decimals(cohort['mean_displacement'])} on average and up "
            f"to {decimals(cohort['max_displacement'])}. Under the frozen panel they move by "
            f"{decimals(frozen['max_displacement'])}, by construction: a score reads the panel and the encoder's own "
            "profile."
        ),
        Figure(
            "invariance",
            "How far published scores move when encoders arrive, relative to the cohort and under the frozen panel.",
            "Histograms of the displacement of published scores over trials and encoders under both rules. Mean and "
            "largest displacement stand in the table below.",
            displacements(trials.filter(pl.col("reading") == evidence.reading), (COHORT, FROZEN)),
        ),
        plain_table("Displacement of published scores when encoders arrive", columns, rows),
    ]


def agreement_cells(row: Mapping[str, Any]) -> tuple[Cell, ...]:
    """The figures of one comparison of two rankings, in the order of ``AGREEMENT_COLUMNS``."""
    if row["pairs"] is None:
        return (count(row["n"]), *(Cell(NONE, note=row["reason"] if at == 0 else "") for at in range(5)))
    tied = f", {row['tied_pairs']} tied" if row["tied_pairs"] else ""
    shared = f"{round(row['top_k_overlap'] * row['top_k'])} of {row['top_k']}"
    border = "tie at the border, broken by id" if row["is_top_k_tied"] else ""
    return (
        count(row["n"]),
        Cell(change(row["kendall_tau"]), row["kendall_tau"]),
        Cell(change(row["spearman_rho"]), row["spearman_rho"]),
        Cell(f"{row['reversed_pairs']} of {row['pairs']}{tied}", row["reversed_pairs"]),
        number(row["mean_displacement"]),
        Cell(shared, row["top_k_overlap"], note=border),
    )


def _is_probe() -> pl.Expr:
    return pl.col("b").str.contains(r" of (mlp|knn)$")


def _called(name: str) -> str:
    return AXIS_LABELS[name][0] if name in AXES else name.replace("crs", "CRS", 1)


def _variant(text: str) -> str:
    """What was changed, with the axis as the tables call it."""
    axis, colon, change_made = text.partition(": ")
    if axis not in AXES or not colon:
        return text
    anchor, _, by = change_made.partition(" ")
    return f"{AXIS_LABELS[axis][0]}: {ANCHORS.get(anchor, anchor)} {minus_signs(by.replace('%', ' %'))}"


def _probe_table(evidence: Evidence) -> Table:
    means = evidence.table("control_probes", "auroc")
    probes = [name for name in PROBES if name in means["probe"].to_list()]
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        *(Column(f"AUROC, {PROBES[name]}", "Clean images, all labels, mean over seeds") for name in probes),
    )
    found = {(row["encoder"], row["dataset"], row["probe"]): row["auroc"] for row in means.iter_rows(named=True)}
    rows = [
        (word(name), word(dataset), *(number(found.get((name, dataset, probe))) for probe in probes))
        for name in evidence.encoders
        for dataset in evidence.page.scored_datasets
        if any((name, dataset, probe) in found for probe in probes)
    ]
    return plain_table("AUROC under each probe", columns, rows)


def _weighting_table(weightings: pl.DataFrame) -> Table:
    columns = (
        ENCODER,
        Column("Published rank"),
        Column("Best rank", "Over all weightings"),
        Column("Worst rank", "Over all weightings"),
        Column("First in", "Share of the weightings that put the encoder first"),
    )
    rows = [
        (
            word(row["encoder"]),
            *(Cell(rank_text(row[name]), row[name]) for name in ("rank_published", "rank_best", "rank_worst")),
            Cell(percent(row["share_first"]), row["share_first"]),
        )
        for row in weightings.sort("rank_published", "encoder").iter_rows(named=True)
    ]
    return plain_table(f"Ranks over {weightings['weightings'][0]} weightings", columns, rows)
