"""Degradations beside the score in the graph, and what their metadata shows."""

import dagster as dg

from crs_assets.assets.analyses.degradations import (
    describe_extra_metrics,
    extra_degradation_metrics,
    extra_degraded_features,
)
from crs_assets.partitions import build_partitions
from crs_assets.stages.analyses.extra_degradations import ExtraDegradationMetrics, ExtraDegradedFeatures
from crs_assets.stages.data import read_index


def test_metrics_hang_below_the_published_probes_and_encoding_waits_for_the_device(finished):
    partitions = build_partitions(finished.suite)
    features, metrics = extra_degraded_features(partitions), extra_degradation_metrics(partitions)
    (key,), (metrics_key,) = features.keys, metrics.keys
    assert key == dg.AssetKey(["tiny", "extra_degraded_features"])
    assert {dep.path[-1] for dep in metrics.asset_deps[metrics_key]} == {
        "extra_degraded_features",
        "probe_predictions",
        "run_metrics",
        "splits",
    }
    assert features.group_names_by_key[key] == metrics.group_names_by_key[metrics_key] == "analyses"
    assert (features.op.pool, metrics.op.pool) == ("gpu", None)


def test_metadata_says_what_suits_the_images_and_names_none(bench):
    ExtraDegradedFeatures().ensure(bench, "vit-a", "tiny-skin")
    outcome = ExtraDegradationMetrics().ensure(bench, "vit-a", "tiny-skin.s0")
    shown = describe_extra_metrics(bench, outcome)
    lines = shown["at_all_labels"].md_str.splitlines()
    assert lines[0].endswith("| converged | suits_the_images |")
    # Drawn stains are of no specialty that anybody judged.
    assert all(line.endswith("| not judged |") for line in lines[2:])
    assert len(lines) - 2 == shown["dagster/row_count"] == 9
    index = read_index(bench, "tiny-skin")
    assert not any(name in "\n".join(lines) for name in (*index["image_id"], *index["path"]))
