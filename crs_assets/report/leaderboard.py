"""The leaderboard page: one HTML file that needs no network, no script and no other file."""

from crs_assets.report.canvas import png_address
from crs_assets.report.page import PHANTOM_WARNING, Page
from crs_assets.report.picture import leaderboard_png
from crs_assets.report.rendering import anchors, glossary, page_facts, render
from crs_assets.report.tables import dataset_tables, headline_table
from crs_assets.report.wording import CRS_IS_NOT, agreement_statements, ranking_statements

TEMPLATE = "leaderboard.html.j2"


def render_html(page: Page) -> str:
    """The leaderboard of a suite as one self-contained HTML file; the same page gives the same text.

    Args:
        page: What to show. Titles, reasons and versions are escaped.
    """
    headline, datasets = headline_table(page), dataset_tables(page)
    return render(
        TEMPLATE,
        page=page,
        warning=PHANTOM_WARNING if page.phantoms else "",
        headline=headline,
        datasets=datasets,
        glossary=glossary((headline, *datasets)),
        ranking=ranking_statements(page),
        agreement=agreement_statements(page),
        crs_is_not=CRS_IS_NOT,
        anchors=anchors(page.protocol),
        facts=page_facts(page),
        picture=png_address(leaderboard_png(page)),
    )


__all__ = ["Page", "leaderboard_png", "render_html"]
