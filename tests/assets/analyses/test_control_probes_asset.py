"""The control probes as an asset: what it depends on, and what a person sees of a partition."""

import dagster as dg
import pytest

from crs_assets.assets.analyses.control_probes import control_probes
from crs_assets.partitions import build_partitions, encoder_partitions_name
from crs_assets.resources.bench import default_resources
from crs_assets.stages.analyses.control_probes import read_control_runs
from crs_assets.stages.data import read_index

KEY = dg.AssetKey(["tiny", "control_probes"])


def test_a_materialization_shows_each_probe_and_nothing_of_a_patient(bench):
    asset = control_probes(build_partitions(bench.suite))
    (spec,) = asset.specs
    assert spec.group_name == "analyses"
    assert {dep.asset_key.path[-1] for dep in spec.deps} == {"features", "degraded_features", "splits"}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(encoder_partitions_name("tiny"), list(bench.suite.encoders))
        result = dg.materialize(
            [asset],
            partition_key="vit-a|tiny-skin.s0",
            instance=instance,
            resources=default_resources("tiny", bench.home),
        )
        assert result.success
        event = instance.get_latest_materialization_event(KEY)
    metadata = event.asset_materialization.metadata
    table = metadata["clean_at_all_labels"].value.splitlines()
    assert table[0] == "| probe | n_eval | auroc | ece | log_loss |"
    runs = read_control_runs(bench, "vit-a", "tiny-skin.s0")
    clean = runs.filter((runs["condition"] == "clean") & (runs["fraction"] == 1.0))
    for row in clean.iter_rows(named=True):
        (line,) = [line for line in table if line.startswith(f"| {row['probe']} |")]
        assert float(line.split("|")[3]) == pytest.approx(row["auroc"], abs=5e-5)
    assert metadata["dagster/row_count"].value == runs.height == 2 * 3 * 4
    assert not [image for image in read_index(bench, "tiny-skin")["image_id"] if image in str(metadata)]
