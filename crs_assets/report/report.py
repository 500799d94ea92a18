"""The report: one self-contained HTML file with every chapter that there is evidence for, and its figures."""

from collections.abc import Iterable
from dataclasses import dataclass

from crs_assets.report.canvas import Drawing
from crs_assets.report.chapters import CHAPTERS
from crs_assets.report.content import Chapter, ChapterPlan
from crs_assets.report.evidence import ANALYSES, Evidence
from crs_assets.report.page import PHANTOM_WARNING
from crs_assets.report.rendering import render

TEMPLATE = "report.html.j2"


@dataclass(frozen=True)
class Report:
    """A rendered report.

    Attributes:
        html: The page; it needs no network and no other file.
        figures: Name -> picture, the same as on the page.
        chapters: Ids of its chapters.
        missing: What has not been analysed, as readers call it.
    """

    html: str
    figures: dict[str, Drawing]
    chapters: tuple[str, ...]
    missing: tuple[str, ...]


def render_report(evidence: Evidence) -> Report:
    """Every chapter that there is evidence for; the same evidence gives the same bytes.

    Args:
        evidence: What to show. Titles, reasons and versions are escaped.
    """
    chapters = tuple(_made(evidence, CHAPTERS))
    missing = tuple(name for key, name in ANALYSES.items() if not evidence.has(key))
    figures = {figure.name: figure.drawing for chapter in chapters for figure in chapter.figures()}
    html = render(
        TEMPLATE,
        page=evidence.page,
        warning=PHANTOM_WARNING if evidence.page.phantoms else "",
        chapters=chapters,
        missing=missing,
        is_board_outdated=evidence.is_board_outdated,
        outdated=tuple(ANALYSES[key] for key in evidence.outdated),
    )
    return Report(html, figures, tuple(chapter.id for chapter in chapters), missing)


def _made(evidence: Evidence, plans: Iterable[ChapterPlan]) -> Iterable[Chapter]:
    for plan in plans:
        if evidence.has(*plan.needs) and (blocks := plan.make(evidence)):
            yield Chapter(plan.id, plan.title, tuple(blocks))
