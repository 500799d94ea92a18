"""The depth sweep in the graph: what it hangs below, why a partition is passed over, what metadata shows."""

import dagster as dg
import pytest

from crs_assets.assets.analyses.depth import depth_features, depth_sweep, describe_depth_sweep
from crs_assets.partitions import build_partitions, encoder_partitions_name
from crs_assets.resources.bench import default_resources
from crs_assets.stages.analyses.depth import DepthFeatures, DepthSweep
from crs_assets.stages.data import read_index


def test_the_sweep_hangs_below_its_own_features_which_wait_for_the_device(finished):
    partitions = build_partitions(finished.suite)
    features, sweep = depth_features(partitions), depth_sweep(partitions)
    (key,), (sweep_key,) = features.keys, sweep.keys
    assert key == dg.AssetKey(["tiny", "depth_features"])
    assert {dep.path[-1] for dep in features.asset_deps[key]} == {"encoder_weights", "dataset_index"}
    assert {dep.path[-1] for dep in sweep.asset_deps[sweep_key]} == {"depth_features", "splits"}
    assert features.group_names_by_key[key] == sweep.group_names_by_key[sweep_key] == "analyses"
    assert features.op.pool == "gpu"
    assert sweep.op.pool is None
    assert {check.name for check in features.check_specs} == {"features_finite", "one_row_per_image"}


def materialized(bench, asset, partition):
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(encoder_partitions_name("tiny"), list(bench.suite.encoders))
        result = dg.materialize(
            [asset], partition_key=partition, instance=instance, resources=default_resources("tiny", bench.home)
        )
        assert result.success
        recorded = [event for event in result.all_events if event.is_step_materialization]
        events = [event.step_materialization_data.materialization for event in recorded]
        return events, [record.message for record in instance.all_logs(result.run_id)], result


def test_features_are_recorded_with_their_depths_and_pass_their_checks(bench):
    events, _, result = materialized(bench, depth_features(build_partitions(bench.suite)), "vit-a|tiny-skin")
    (event,) = events
    table = event.metadata["depths"].value.splitlines()
    assert table[0] == "| share | block | pool | dim |"
    assert table[2:] == ["| 0.25 | 1 | gap | 32 |", "| 1 | 2 | cls | 32 |"]
    assert all(check.passed for check in result.get_asset_check_evaluations())


def test_an_encoder_without_blocks_is_passed_over_with_the_reason(bench):
    events, logs, _ = materialized(bench, depth_features(build_partitions(bench.suite)), "pixels-1|tiny-skin")
    assert events == []
    assert [line for line in logs if "pixels-1|tiny-skin: passed over; an encoder without blocks." in line]


@pytest.mark.parametrize("task", ["tiny-skin.s0"])
def test_metadata_shows_each_depth_and_no_identifier(bench, task):
    DepthFeatures().ensure(bench, "vit-a", "tiny-skin")
    shown = describe_depth_sweep(bench, DepthSweep().ensure(bench, "vit-a", task))
    table = shown["depths"].md_str
    assert table.startswith("| share | block | dim | lambda | validation_log_loss | auroc | ece | converged | chosen |")
    assert shown["share_chosen"] in (0.25, 1.0)
    assert shown["dagster/row_count"] == 2
    index = read_index(bench, "tiny-skin")
    assert not any(name in str(shown) + table for name in (*index["image_id"], *index["path"]))
