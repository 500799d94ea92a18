"""The report stage: everything that the store holds of a suite as one page, and its figures as files."""

from collections.abc import Iterator
from typing import Any

from crs_assets.report.report import render_report
from crs_assets.resources.artifact_store import Staging, write_atomic
from crs_assets.resources.bench import Bench
from crs_assets.stages.data import DatasetIndex, Splits
from crs_assets.stages.leaderboard import Leaderboard
from crs_assets.stages.panel_in_force import active_panel
from crs_assets.stages.report_material import SOURCES, outdated, read_evidence, run_versions
from crs_assets.stages.stage import Built, Stage

HTML_FILE = "report.html"
FIGURES_FOLDER = "figures"
# What the catalogue says of an image set on the page, beside what its index depends on.
TEXTS = ("title", "licence", "access", "citation", "label_source", "group")


class Report(Stage):
    """One self-contained page: findings in words, then a chapter per analysis that there is; its figures as files."""

    name = "report"
    code_version = "2"
    libraries = ("jinja2", "matplotlib", "numpy", "polars", "scipy")
    keeps_old_versions = False

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:  # noqa: ARG002  (one partition in every suite)
        """One."""
        return iter([()])

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:  # noqa: ARG002
        """Versions of everything that is shown; the leaderboard has to be there, an analysis may be missing."""
        leaderboard, panel = Leaderboard().version(bench), active_panel(bench)
        if leaderboard is None or panel is None:
            return None
        suite = bench.suite
        return {
            "leaderboard": leaderboard,
            "panel": panel["sha256"],
            "runs": run_versions(bench),
            "indexes": {name: DatasetIndex().version(bench, name) for name in suite.image_sets},
            "splits": {task: Splits().version(bench, task) for task in suite.tasks},
            "analyses": {name: source.version(bench) for name, source in SOURCES.items()},
            "outdated": outdated(bench),
            "is_board_outdated": not Leaderboard().is_current(bench),
            "protocol": suite.protocol.model_dump(mode="json"),
            "title": suite.spec.title,
            "texts": {
                name: spec.model_dump(mode="json", include=set(TEXTS)) for name, spec in suite.image_sets.items()
            },
        }

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:  # noqa: ARG002
        """Read what is there, say what it comes to, draw, and write page and figures."""
        report = render_report(read_evidence(bench))
        write_atomic(staging.path(HTML_FILE), report.html)
        for name, drawing in report.figures.items():
            staging.path(f"{FIGURES_FOLDER}/{name}.png").write_bytes(drawing.png)
            staging.path(f"{FIGURES_FOLDER}/{name}.svg").write_bytes(drawing.svg)
        return Built(
            {
                "chapters": list(report.chapters),
                "not_analysed": list(report.missing),
                "figures": sorted(report.figures),
                "page_bytes": len(report.html.encode("utf-8")),
            }
        )
