"""The leaderboard page: one HTML file that needs no network, no script and no other file."""

import base64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from crs_assets.report.page import PHANTOM_WARNING, Page
from crs_assets.report.picture import leaderboard_png
from crs_assets.report.tables import AXIS_LABELS, Table, dataset_tables, headline_table
from crs_assets.report.wording import CRS_IS_NOT, agreement_statements, ranking_statements
from crs_assets.science.protocol import AXES, Protocol

TEMPLATES = Path(__file__).parent / "templates"
TEMPLATE = "leaderboard.html.j2"


def render_html(page: Page) -> str:
    """The leaderboard of a suite as one self-contained HTML file; the same page gives the same text.

    Args:
        page: What to show. Titles, reasons and versions are escaped.
    """
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    headline, datasets = headline_table(page), dataset_tables(page)
    picture = base64.b64encode(leaderboard_png(page)).decode("ascii")
    return environment.get_template(TEMPLATE).render(
        page=page,
        warning=PHANTOM_WARNING if page.phantoms else "",
        headline=headline,
        datasets=datasets,
        glossary=_glossary((headline, *datasets)),
        ranking=ranking_statements(page),
        agreement=agreement_statements(page),
        crs_is_not=CRS_IS_NOT,
        anchors=_anchors(page.protocol),
        facts=[*_protocol_facts(page), *_flat(page.provenance)],
        picture=f"data:image/png;base64,{picture}",
    )


def _glossary(tables: Iterable[Table]) -> dict[str, str]:
    """Heading -> meaning, each heading as its first table explains it."""
    meanings: dict[str, str] = {}
    for table in tables:
        for column in table.columns:
            if column.meaning:
                meanings.setdefault(column.label, column.meaning)
    return meanings


def _anchors(protocol: Protocol) -> list[tuple[str, str, str, str]]:
    anchors = protocol.axes.anchors
    return [(*AXIS_LABELS[axis], f"{anchors[axis].zero:g}", f"{anchors[axis].one:g}") for axis in AXES]


def _protocol_facts(page: Page) -> list[tuple[str, str]]:
    protocol, weights = page.protocol, page.protocol.score
    return [
        ("suite", page.suite),
        ("protocol", f"{protocol.id}: {protocol.title}"),
        ("readings", ", ".join(page.readings)),
        ("panel", f"{page.panel}: {', '.join(page.panel_members)}"),
        ("data sets", "; ".join(f"{name}: {page.dataset_title(name)}" for name in page.scored_datasets)),
        ("transfer targets", "; ".join(f"{name}: {page.dataset_title(name)}" for name in page.targets) or "none"),
        ("seeds", ", ".join(map(str, protocol.data.seeds))),
        ("label fractions", ", ".join(f"{100 * fraction:g} %" for fraction in protocol.data.fractions)),
        (
            "perturbations",
            ", ".join(f"{item.id} {'/'.join(map(str, item.severities))}" for item in protocol.perturbations),
        ),
        (
            "weights",
            f"dominance {weights.dominance:g}, closeness {weights.closeness:g}, worst axis {weights.worst_axis:g}",
        ),
    ]


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested facts as lines, in alphabetical order so that equal provenance gives equal bytes."""
    for name, value in sorted(facts.items()):
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name} ")
        elif prefix or name not in ("suite", "protocol"):
            yield f"{prefix}{name}", _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


__all__ = ["Page", "leaderboard_png", "render_html"]
