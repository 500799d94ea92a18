"""Group ``report``: the page that people look at, with everything that has been analysed."""

import dagster as dg

from crs_assets.assets.describe import Metadata
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Recorded
from crs_assets.partitions import Partitions
from crs_assets.resources.bench import Bench
from crs_assets.stages.report import FIGURES_FOLDER, HTML_FILE, Report
from crs_assets.stages.report_material import SOURCES
from crs_assets.stages.stage import Outcome

GROUP = "report"
UPSTREAM = ("leaderboard", "reference_panel", "dataset_index", "splits", "run_metrics", *SOURCES)


def report(partitions: Partitions) -> dg.AssetsDefinition:
    """One self-contained page of everything that the store holds of the suite, and its figures."""
    prefix = partitions.suite.id
    deps = tuple(dg.AssetDep(dg.AssetKey([prefix, name])) for name in UPSTREAM)
    recorded = Recorded(Report(), dg.AssetKey([prefix, Report.name]), describe_report)
    declared = Declared(recorded, GROUP, frozenset({"html"}), deps)
    return stage_assets(partitions.suite, Shared(Report.name), [declared])


def describe_report(bench: Bench, outcome: Outcome) -> Metadata:
    """Chapters, what is not analysed yet, and where page and figures are."""
    summary = outcome.manifest.summary
    page = bench.store.open(bench.key(Report.name)).file(HTML_FILE)
    # Below CRS_HOME: where a site keeps its state is nobody else's business.
    below = page.relative_to(bench.home.path)
    return {
        "chapters": ", ".join(summary["chapters"]),
        "not_analysed_yet": ", ".join(summary["not_analysed"]) or "nothing",
        "page": str(below),
        "page_bytes": summary["page_bytes"],
        "figures": str(below.parent / FIGURES_FOLDER),
        "figure_count": len(summary["figures"]),
    }
