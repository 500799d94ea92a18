"""Recalibration in the graph: keys, group, what it hangs on, what a person is shown."""

import dagster as dg
import pytest

from crs_assets.assets import data, encoders, probes
from crs_assets.assets.analyses.recalibration import (
    describe_recalibration,
    describe_summary,
    recalibration,
    recalibration_summary,
)
from crs_assets.partitions import build_partitions
from crs_assets.resources.bench import BenchResource, default_resources
from crs_assets.resources.home import Home
from crs_assets.science.suite import load_suite
from crs_assets.stages.analyses.recalibration import Recalibration, RecalibrationSummary


def test_the_assets_hang_on_predictions_and_runs_and_load(tmp_path):
    partitions = build_partitions(load_suite("demo"))
    mine = [recalibration(partitions), recalibration_summary(partitions)]
    upstream = [
        data.dataset_index(partitions),
        data.splits(partitions),
        encoders.encoder_weights(partitions),
        encoders.features(partitions),
        probes.probes(partitions),
    ]
    resources = default_resources("demo", Home(tmp_path))
    assert isinstance(resources["bench"], BenchResource)
    definitions = dg.Definitions(assets=[*upstream, *mine], resources=resources)
    dg.Definitions.validate_loadable(definitions)
    graph = definitions.resolve_asset_graph()
    parents = {
        name: {parent.path[1] for parent in graph.get(dg.AssetKey(["demo", name])).parent_keys}
        for name in ("recalibration", "recalibration_summary")
    }
    assert parents == {
        "recalibration": {"probe_predictions", "run_metrics", "splits"},
        "recalibration_summary": {"recalibration"},
    }
    specs = [spec for asset in mine for spec in asset.specs]
    assert {spec.group_name for spec in specs} == {"analyses"}
    assert all("phantoms" in spec.description for spec in specs)


@pytest.mark.slow
def test_a_person_sees_tables_before_and_after(tiny, bench):
    for stage in (Recalibration(), RecalibrationSummary()):
        outcomes = tiny.ensure_all(bench, [stage])
        describe = describe_recalibration if isinstance(stage, Recalibration) else describe_summary
        shown = describe(bench, outcomes[0])
        table = shown["before_and_after"].value
        assert "temperature" in table
        assert shown["dagster/row_count"] > 0
