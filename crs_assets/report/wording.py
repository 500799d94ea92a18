"""Statements in words, generated from the board's numbers and never saying more than they do."""

from collections.abc import Sequence

from crs_assets.report.numbers import counted, decimals
from crs_assets.report.page import Page
from crs_assets.science.leaderboard import RANKED
from crs_assets.science.statistics import RankAgreement

LIMITS = (
    "The weights and anchors of CRS are design parameters, not clinical utilities.",
    "Calibration errors of the top label and of single labels differ in scale: they are not compared between "
    "specialties.",
    "Nothing is imputed: an encoder with a missing cell has no rank, and an absent cell is stated with its reason.",
)
"""What holds of every CRS, whatever the page."""

CRS_IS_NOT = (
    "A CRS is a comparative summary against a frozen panel, not a predictor of performance at another hospital; in the "
    "article it predicted transfer worse than AUROC (0.529 against 0.864).",
    "Ranks follow point estimates. This page holds no intervals, so neighbouring ranks are not a demonstrated "
    "difference, and no winner is named.",
    *LIMITS,
)


def ranking_statements(page: Page) -> tuple[str, ...]:
    """What the ranking rests on, and which data sets are left out of it and why."""
    board = page.board
    ranked = sum(row["section"] == RANKED for row in page.rows(page.readings[0]))
    others = [name for name in page.scored_datasets if name not in board.common and name not in board.unrankable]
    statements = []
    if ranked:
        statements.append(
            f"{counted(ranked, 'encoder')} ranked by mean CRS over {counted(len(board.common), 'data set')}: "
            f"{_titles(page, board.common)}."
        )
    else:
        statements.append("No encoder is ranked: no complete encoder shares a data set that can rank.")
    if board.unrankable:
        statements.append(
            "Left out of the ranking, because no encoder of the panel is above its null controls there: "
            f"{_titles(page, board.unrankable)}."
        )
    if others:
        statements.append(f"Left out of the ranking, because not every ranked encoder has it: {_titles(page, others)}.")
    return tuple(statements)


def agreement_statements(page: Page) -> tuple[str, ...]:
    """One statement per pair of rankings that the board compares; the reason where it compares none."""
    agreement = page.board.agreement
    if not agreement:
        return ("Fewer than two encoders are ranked, so there are no rankings to compare.",)
    return tuple(_agreement(name, value) for name, value in agreement.items())


def agreement_brief(agreement: RankAgreement) -> str:
    """Tau and the reversed pairs of one comparison, for a line under a picture."""
    reversed_pairs = f"{agreement.reversed_pairs} of {counted(agreement.pairs, 'pair')} reversed"
    return f"Kendall's tau-b {_coefficient(agreement.kendall_tau)}, {reversed_pairs}"


def _agreement(name: str, value: RankAgreement) -> str:
    shared = round(value.top_k_overlap * value.top_k)
    tie = " (a tie at this border was broken by id)" if value.is_top_k_tied else ""
    tied = f", {value.tied_pairs} tied" if value.tied_pairs else ""
    return (
        f"{name}, {len(value.moves)} ranked encoders: "
        f"{value.reversed_pairs} of {counted(value.pairs, 'pair')} reversed{tied}; "
        f"Kendall's tau-b {_coefficient(value.kendall_tau)}, Spearman's rho {_coefficient(value.spearman_rho)}; "
        f"mean displacement {decimals(value.mean_displacement)} places; "
        f"{shared} of the first {value.top_k} in both{tie}."
    )


def _coefficient(value: float) -> str:
    return decimals(value) if value == value else "undefined (one ranking is a single tie)"


def _titles(page: Page, names: Sequence[str]) -> str:
    return "; ".join(page.dataset_title(name) for name in names)
