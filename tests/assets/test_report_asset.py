"""The report as Dagster has it: behind the leaderboard and every analysis, in one partition."""

import dagster as dg
import pytest

from crs_assets.assets.report import report
from crs_assets.partitions import build_partitions
from crs_assets.science.suite import load_suite
from crs_assets.stages.report_material import SOURCES


def test_follows_the_leaderboard_and_every_analysis_that_it_shows():
    asset = report(build_partitions(load_suite("demo")))
    key = dg.AssetKey(["demo", "report"])
    spec = asset.get_asset_spec(key)
    assert (asset.partitions_def, spec.group_name, spec.kinds) == (None, "report", {"html"})
    upstream = {found.path[1] for found in asset.asset_deps[key]}
    assert {"leaderboard", "run_metrics", *SOURCES} <= upstream
    assert "phantoms" in spec.description


@pytest.mark.slow
def test_records_where_page_and_figures_are_and_what_is_missing(small_made):
    asset = report(build_partitions(small_made.bench.suite))
    with small_made.instance() as instance:
        assert dg.materialize([asset], instance=instance, resources=small_made.resources).success
        shown = instance.get_latest_materialization_event(small_made.key("report")).asset_materialization.metadata
    assert shown["page"].value.endswith("report.html")
    assert not shown["page"].value.startswith("/")
    assert shown["figure_count"].value > 3
    assert "recalibration" in shown["not_analysed_yet"].value
