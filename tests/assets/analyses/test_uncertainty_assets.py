import dagster as dg
import pytest

from crs_assets.assets.analyses.uncertainty import axis_replicates
from crs_assets.assets.graph import build_assets
from crs_assets.automation.runner import QUIET, asset_job, register_encoders
from crs_assets.cli.session import open_instance
from crs_assets.partitions import build_partitions
from crs_assets.resources.bench import default_resources
from crs_assets.resources.home import Home
from crs_assets.stages.analyses.axis_replicates import AxisReplicates

SUITE = "tiny"


@pytest.fixture
def home(make_home):
    return make_home()


def test_a_cell_hangs_on_every_seed_of_its_own_encoder_and_data_set(home, tiny):
    suite = tiny.open_bench(home).suite
    cells = axis_replicates(build_partitions(suite))
    mapping = cells.get_partition_mapping(dg.AssetKey([SUITE, "run_metrics"]))
    runs = build_partitions(suite).encoder_by_task
    with dg.DagsterInstance.ephemeral() as instance:
        register_encoders(instance, suite)
        keys = cells.partitions_def.get_partition_keys(dynamic_partitions_store=instance)
        upstream = mapping.get_upstream_mapped_partitions_result_for_partitions(
            cells.partitions_def.subset_with_partition_keys(["vit-b|tiny-chest"]),
            cells.partitions_def,
            runs,
            dynamic_partitions_store=instance,
        )
        found = set(upstream.partitions_subset.get_partition_keys())
    assert found == {"vit-b|tiny-chest.s0", "vit-b|tiny-chest.s1"}
    # Nothing is fitted on a target: it is no cell.
    assert {key.partition("|")[2] for key in keys} == {"tiny-skin", "tiny-chest"}


def test_they_are_made_through_dagster_with_their_figures_and_the_check(home, tiny):
    bench = tiny.open_bench(home)
    job = asset_job(build_assets(build_partitions(bench.suite)), default_resources(SUITE, Home(home)))
    with open_instance(Home(home)) as instance:
        register_encoders(instance, bench.suite)
        for encoder in bench.suite.encoders:
            datasets = bench.suite.existing_datasets(encoder)
            tags = {
                "dagster/asset_partition_range_start": f"{encoder}|{datasets[0]}",
                "dagster/asset_partition_range_end": f"{encoder}|{datasets[-1]}",
            }
            key = dg.AssetKey([SUITE, "axis_replicates"])
            assert job.execute_in_process(asset_selection=[key], instance=instance, run_config=QUIET, tags=tags).success
        assert instance.get_materialized_partitions(key) == {
            "|".join(cell) for cell in AxisReplicates().partitions(bench)
        }
        result = job.execute_in_process(
            asset_selection=[dg.AssetKey([SUITE, "uncertainty"])], instance=instance, run_config=QUIET
        )
        (evaluation,) = result.get_asset_check_evaluations()
        event = instance.get_latest_materialization_event(dg.AssetKey([SUITE, "uncertainty"]))
    assert evaluation.check_name == "winner_separable"
    assert evaluation.severity is dg.AssetCheckSeverity.WARN
    metadata = event.asset_materialization.metadata
    assert evaluation.passed == (metadata["winner"].value != "none")
    assert "vit-a" in metadata["crs"].value
