"""The first page: the questions that a reader comes with, answered from the numbers."""

from collections.abc import Iterator, Sequence

import polars as pl

from crs_assets.report import findings, findings_elsewhere
from crs_assets.report.chapters.selections import headline_pairs, of_common, overall_recalibration, transfer_pairs
from crs_assets.report.content import Answers, Block
from crs_assets.report.evidence import ANALYSES, Evidence
from crs_assets.report.findings import Finding
from crs_assets.report.numbers import minus_signs
from crs_assets.report.page import PHANTOM_WARNING
from crs_assets.report.wording import LIMITS
from crs_assets.science.analyses.external_validity import AT_TARGET, AUROC_PREDICTORS

CHANCE = (
    "Intervals are pointwise: among many comparisons some exclude 0 by chance. They hold for these data sets, this "
    "panel and this protocol alone."
)


def in_short(evidence: Evidence) -> Sequence[Block]:
    """Every question whose analysis is there, and what must not be concluded."""
    return [Answers(tuple(_findings(evidence)))]


def _findings(evidence: Evidence) -> Iterator[Finding]:
    yield Finding("Which encoders lead?", _leading(evidence))
    yield Finding("What would AUROC alone have chosen?", findings.auroc_choice(evidence.ranked))
    rivals = findings.rivals(evidence.ranked)
    if evidence.has("uncertainty") and rivals:
        told = findings.gains_and_losses(headline_pairs(evidence), *rivals)
        yield Finding("What does each gain and lose?", told)
    if evidence.has("recalibration_summary"):
        yield Finding("Can calibration be repaired?", findings_elsewhere.repair(overall_recalibration(evidence)))
    if evidence.has("perturbation_audit"):
        conditions = of_common(evidence, evidence.table("perturbation_audit", "conditions"))
        yield Finding("What degrades first?", findings_elsewhere.degrades_first(conditions))
        yield Finding("Does confidence break before ranking?", findings_elsewhere.confidence_before_ranking(conditions))
    if evidence.has("external_validity"):
        predictors = evidence.table("external_validity", "predictors").filter(
            (pl.col("reading") == evidence.reading)
            & (pl.col("question") == AT_TARGET)
            & (pl.col("predictor") == AUROC_PREDICTORS[0])
        )
        yield Finding("What transfers?", findings_elsewhere.transfers(transfer_pairs(evidence), predictors))
    yield Finding("What must not be concluded?", _limits(evidence))


def _leading(evidence: Evidence) -> tuple[str, ...]:
    if not evidence.has("uncertainty"):
        return (f"Not said: {ANALYSES['uncertainty']} have not been made. Ranks on this page are point estimates.",)
    figures = evidence.analyses["uncertainty"].figures
    return findings.leading_tier(figures["verdict"], threshold=figures["threshold"], top_k=figures["top_k"])


def _limits(evidence: Evidence) -> tuple[str, ...]:
    board = evidence.page.board
    at_null = evidence.cells.filter(pl.col("at_null") & pl.col("encoder").is_in(evidence.encoders))
    return findings.not_to_conclude(
        verdict=minus_signs(evidence.figure("external_validity", "verdict"))
        if evidence.has("external_validity")
        else "",
        unrankable=[evidence.page.dataset_title(name) for name in board.unrankable],
        at_null=[f"{encoder} on {dataset}" for encoder, dataset in at_null.select("encoder", "dataset").iter_rows()],
        phantom_warning=PHANTOM_WARNING if evidence.page.phantoms else "",
        limits=(CHANCE, *LIMITS),
    )
