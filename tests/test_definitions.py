"""The code location as Dagster loads it: by attribute, names with dashes and suites of one's own included."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

import crs_assets.definitions
from crs_assets.definitions import build_defs
from crs_assets.science.suite import load_suite

WORKSPACE = Path(__file__).parents[1] / "workspace.yaml"


def test_a_suite_of_ones_own_is_an_attribute_too(tmp_path, monkeypatch):
    suites = tmp_path / "catalog" / "suites"
    suites.mkdir(parents=True)
    (suites / "ours-too.toml").write_text('extends = "demo"\nid = "ours-too"\n')
    monkeypatch.setenv("CRS_HOME", str(tmp_path))
    definitions = getattr(crs_assets.definitions, "ours-too")
    assert {key.path[0] for key in definitions.resolve_all_asset_keys()} == {"ours-too"}


def test_what_is_no_suite_is_no_attribute():
    with pytest.raises(AttributeError, match="no suites entry 'nowhere'"):
        _ = crs_assets.definitions.nowhere


def test_a_broken_encoder_file_does_not_bar_the_code_location(tmp_path):
    folder = tmp_path / "encoders" / "demo"
    folder.mkdir(parents=True)
    (folder / "broken.toml").write_text("id = [")
    dg.Definitions.validate_loadable(build_defs("demo", home=tmp_path))


def test_assets_are_made_from_what_the_graph_says(tmp_path):
    graph = build_defs("demo", home=tmp_path).resolve_asset_graph()
    parents = {
        key.path[1]: {parent.path[1] for parent in graph.get(key).parent_keys} for key in graph.get_all_asset_keys()
    }
    assert parents["features"] == {"encoder_weights", "dataset_index"}
    assert parents["probe_predictions"] == {"features", "degraded_features", "splits"}
    assert parents["null_controls"] == {"features", "splits"}
    # The panel is a file: no edge from the profiles that it was once made of.
    assert parents["reference_panel"] == set()
    assert parents["crs"] == {"axis_profile", "reference_panel"}


def test_probes_of_a_source_depend_on_the_features_of_its_target(tmp_path):
    definitions = build_defs("demo", home=tmp_path)
    graph = definitions.resolve_asset_graph()
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("demo.encoder", ["a", "b"])
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            found = graph.get_parent_partition_keys_for_child(
                "a|demo-chest.s1", dg.AssetKey(["demo", "features"]), dg.AssetKey(["demo", "probe_predictions"])
            )
            assert set(found.partitions_subset.get_partition_keys()) == {"a|demo-chest", "a|demo-chest-b"}


@pytest.mark.slow
def test_the_workspace_validates_with_every_suite(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-w", str(WORKSPACE)],
        env={"CRS_HOME": str(tmp_path), "PATH": "", "HOME": str(tmp_path), "DAGSTER_DISABLE_TELEMETRY": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    for suite in ("demo", "demo-full", "paper"):
        assert f"Validation successful for code location {suite}." in result.stderr + result.stdout


def test_null_controls_hang_on_one_encoders_features_and_on_no_other(tmp_path):
    definitions = build_defs("demo", home=tmp_path)
    graph = definitions.resolve_asset_graph()
    features, nulls = (dg.AssetKey(["demo", name]) for name in ("features", "null_controls"))
    shuffled = load_suite("demo").spec.shuffled_labels_encoder
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("demo.encoder", [shuffled, "new"])
        with dg.partition_loading_context(dynamic_partitions_store=instance):
            parents = graph.get_parent_partition_keys_for_child("demo-skin.s0", features, nulls)
            assert set(parents.partitions_subset.get_partition_keys()) == {
                f"{shuffled}|{dataset}" for dataset in ("demo-skin", "demo-fundus", "demo-chest")
            }
            assert not parents.required_but_nonexistent_subset.get_partition_keys()

            def children(key):
                return set(graph.get_child_partition_keys_of_parent(key, features, nulls))

            assert children("new|demo-skin") == set()
            assert len(children(f"{shuffled}|demo-skin")) == 9
