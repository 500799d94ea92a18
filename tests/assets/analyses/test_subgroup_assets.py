"""How subgroups and operating points appear in the graph, and what their metadata shows."""

import dagster as dg
import pytest

from crs_assets.assets.analyses.operating_points import describe_operating_points, operating_points
from crs_assets.assets.analyses.subgroups import describe_subgroups, subgroups
from crs_assets.partitions import build_partitions
from crs_assets.stages.analyses.operating_points import OperatingPoints
from crs_assets.stages.analyses.subgroups import Subgroups
from crs_assets.stages.data import read_index


@pytest.mark.parametrize("build", [subgroups, operating_points])
def test_assets_hang_below_the_predictions(finished, build):
    partitions = build_partitions(finished.suite)
    definition = build(partitions)
    (key,) = definition.keys
    assert key == dg.AssetKey(["tiny", build.__name__])
    assert definition.group_names_by_key[key] == "analyses"
    assert dg.AssetKey(["tiny", "probe_predictions"]) in definition.asset_deps[key]
    assert definition.partitions_def == partitions.encoder_by_task


def test_metadata_shows_tables_and_no_identifier(bench):
    made = [
        describe_subgroups(bench, Subgroups().ensure(bench, "vit-a", "tiny-skin.s0")),
        describe_operating_points(bench, OperatingPoints().ensure(bench, "vit-a", "tiny-skin.s0")),
    ]
    assert "| site | arm |" in made[0]["groups"].md_str
    assert "| site | discrimination | own |" in made[0]["gaps"].md_str
    index = read_index(bench, "tiny-skin")
    for metadata in made:
        text = " ".join(getattr(value, "md_str", str(value)) for value in metadata.values())
        assert not any(name in text for name in (*index["image_id"], *index["path"]))


def test_a_data_set_without_subgroups_says_so(bench):
    shown = describe_subgroups(bench, Subgroups().ensure(bench, "vit-a", "tiny-chest.s0"))
    assert shown == {
        "dagster/row_count": 0,
        "groups_shown": 0,
        "groups_suppressed": 0,
        "note": "tiny-chest has no subgroup column",
    }
