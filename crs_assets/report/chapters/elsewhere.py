"""Chapters on encoders elsewhere: at transfer targets, and whether anything told so beforehand."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from crs_assets.report.chapters.ranking import ENCODER
from crs_assets.report.chapters.selections import transfer_pairs
from crs_assets.report.content import Block, Figure, Text, count, number, plain_table, word
from crs_assets.report.drawings.elsewhere import transfer_scatter
from crs_assets.report.evidence import Evidence
from crs_assets.report.numbers import NONE, change, change_interval, minus_signs
from crs_assets.report.tables import Cell, Column, Table
from crs_assets.science.analyses.external_validity import AT_TARGET, AUROC_PREDICTORS, CRS_PREDICTORS

ANALYSIS = "external_validity"


def transfer(evidence: Evidence) -> Sequence[Block]:
    """AUROC at the targets, what predicted it, held-out data sets, medical against generalist encoders."""
    pairs = transfer_pairs(evidence)
    predictors = evidence.table(ANALYSIS, "predictors").filter(pl.col("reading") == evidence.reading)
    blocks: list[Block] = [Text(minus_signs(evidence.figure(ANALYSIS, "verdict")))]
    if pairs.height:
        blocks += [
            Figure(
                "transfer",
                "AUROC at the target against the AUROC, and the CRS without its transfer term, at the source.",
                "Scatter plots of the AUROC at the target against what is known at the source. AUROCs stand in the "
                "table below, rank correlations in the next.",
                transfer_scatter(list(_panels(evidence, pairs, predictors))),
            ),
            _pair_table(pairs),
        ]
    blocks.append(_predictor_table(predictors))
    families = evidence.table(ANALYSIS, "families")
    if families.height:
        blocks.append(_family_table(families))
    return blocks


def _panels(evidence: Evidence, pairs: pl.DataFrame, predictors: pl.DataFrame) -> Iterator[Mapping[str, Any]]:
    ranks = {row["encoder"]: row["rank"] for row in evidence.ranked}
    at_source = evidence.cells.select("encoder", "discrimination", "crs_without_transfer", source="dataset")
    for (source, target), rows in pairs.group_by("source", "target", maintain_order=True):
        known = rows.join(at_source, on=["encoder", "source"], how="left").drop_nulls("auroc_target")
        for column, predictor, across in (
            ("discrimination", AUROC_PREDICTORS[0], f"AUROC at {source}"),
            ("crs_without_transfer", CRS_PREDICTORS[0], f"CRS at {source} without its transfer term"),
        ):
            whole = known.drop_nulls(column)
            points = [(ranks[name], x, y) for name, x, y in whole.select("encoder", column, "auroc_target").iter_rows()]
            title = _correlation(predictors.filter((pl.col("source") == source) & (pl.col("predictor") == predictor)))
            yield {"title": title, "across": across, "up": f"AUROC at {target}", "points": points}


def _correlation(rows: pl.DataFrame) -> str:
    """Rank correlation of a predictor, for the title of its panel."""
    row = rows.row(0, named=True) if rows.height else None
    if row is None or row["rho"] is None:
        return "no rank correlation"
    return f"Spearman {change(row['rho'])} {change_interval(row['lower'], row['upper'])}, n = {row['n']}"


def _pair_table(pairs: pl.DataFrame) -> Table:
    columns = (
        ENCODER,
        Column("From", is_number=False),
        Column("To", is_number=False),
        Column("AUROC at the source", "On the classes that the target shares"),
        Column("AUROC at the target", "Mean over seeds"),
        Column("Change", "Target minus source; higher is better"),
        Column("ECE at the target", "Lower is better"),
        Column("Null band to", "What a perfectly calibrated predictor would reach there by chance"),
    )

    def moved(row: Mapping[str, Any]) -> float | None:
        known = row["auroc_target"] is not None and row["auroc_source"] is not None
        return row["auroc_target"] - row["auroc_source"] if known else None

    rows = [
        (
            word(row["encoder"]),
            word(row["source"]),
            word(row["target"]),
            number(row["auroc_source"]),
            number(row["auroc_target"]),
            Cell(change(moved(row)), moved(row)),
            number(row["ece_target"]),
            number(row["ece_null_target"]),
        )
        for row in pairs.iter_rows(named=True)
    ]
    return plain_table("Ranked encoders at the transfer targets", columns, rows)


def _predictor_table(predictors: pl.DataFrame) -> Table:
    columns = (
        Column("What is predicted", is_number=False),
        Column("By", is_number=False),
        Column("n", "Encoders"),
        Column("Spearman", "Rank correlation with the AUROC there"),
        Column("Interval", "Over resampled encoders"),
        Column("Minus AUROC's", "Interval of the difference to the correlation that AUROC has"),
        Column("Names the winner", is_number=False),
        Column("Why not", is_number=False, is_status=True),
    )
    rows = [
        (
            word(_question(row)),
            word(row["predictor"]),
            count(row["n"]),
            Cell(change(row["rho"]), row["rho"]),
            Cell(change_interval(row["lower"], row["upper"]), row["lower"]),
            Cell(change_interval(row["minus_auroc_lower"], row["minus_auroc_upper"]), row["minus_auroc_lower"]),
            word(_yes_no(row["winner_recovered"]), note="tie, broken by id" if row["is_winner_tied"] else ""),
            word(row["reason"]),
        )
        for row in predictors.iter_rows(named=True)
    ]
    return plain_table("What tells how encoders fare elsewhere?", columns, rows)


def _question(row: Mapping[str, Any]) -> str:
    place = row["target"] or NONE
    return f"transfer to {place}" if row["question"] == AT_TARGET else f"{place}, held out"


def _yes_no(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"


def _family_table(families: pl.DataFrame) -> Table:
    columns = (
        Column("From", is_number=False),
        Column("To", is_number=False),
        Column("Group", is_number=False),
        Column("n", "Encoders of the group, and generalists"),
        Column("Mean AUROC", "Of the group, at the target"),
        Column("Generalists", "Mean AUROC of the generalists there"),
        Column("Difference", "Group minus generalists"),
        Column("Interval", "Welch's, encoders as units"),
        Column("p", "Welch's test, two-sided"),
        Column("Why not", is_number=False, is_status=True),
    )
    rows = [
        (
            word(row["source"]),
            word(row["target"]),
            word(row["group"]),
            Cell(f"{row['n']} and {row['n_against']}", row["n"]),
            number(row["mean"]),
            number(row["mean_against"]),
            Cell(change(row["difference"]), row["difference"]),
            Cell(change_interval(row["lower"], row["upper"]), row["lower"]),
            number(row["p_value"]),
            word(row["reason"]),
        )
        for row in families.iter_rows(named=True)
    ]
    return plain_table("Medical encoders against generalists at the targets", columns, rows)
