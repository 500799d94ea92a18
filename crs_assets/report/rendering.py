"""Templates, and what every page says of itself: the protocol, its anchors, what travels with the numbers."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from crs_assets.report.page import Page
from crs_assets.report.tables import AXIS_LABELS, Table
from crs_assets.science.protocol import AXES, Protocol

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, **content: Any) -> str:
    """A page as one self-contained HTML file; the same content gives the same text, and every text is escaped."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**content)


def glossary(tables: Iterable[Table]) -> dict[str, str]:
    """Heading -> meaning, each heading as its first table explains it."""
    meanings: dict[str, str] = {}
    for table in tables:
        for column in table.columns:
            if column.meaning:
                meanings.setdefault(column.label, column.meaning)
    return meanings


def anchors(protocol: Protocol) -> list[tuple[str, str, str, str]]:
    """Axis, what it means, and the raw values that map to 0 and to 1."""
    found = protocol.axes.anchors
    return [(*AXIS_LABELS[axis], f"{found[axis].zero:g}", f"{found[axis].one:g}") for axis in AXES]


def page_facts(page: Page) -> list[tuple[str, str]]:
    """What a page rests on: protocol, panel, data sets, then whatever travels with the numbers."""
    return [*_protocol_facts(page), *_flat(page.provenance)]


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
