"""Axes under other penalties in the graph: what they hang on, and what a person is shown."""

import dagster as dg

from crs_assets.assets.analyses.penalties import describe_penalty_axes, penalty_axes
from crs_assets.partitions import build_partitions
from crs_assets.stages.analyses.penalty_axes import PenaltyAxes


def test_they_hang_on_the_stored_path_and_the_features(finished):
    asset = penalty_axes(build_partitions(finished.suite))
    (spec,) = asset.specs
    assert spec.key == dg.AssetKey(["tiny", "penalty_axes"])
    assert {dep.asset_key.path[-1] for dep in spec.deps} == {
        "probe_predictions", "features", "degraded_features", "splits"
    }  # fmt: skip
    assert (spec.group_name, asset.op.pool) == ("analyses", None)


def test_a_person_sees_the_axes_under_each_choice(bench):
    shown = describe_penalty_axes(bench, PenaltyAxes().ensure(bench, "vit-a", "tiny-skin.s0"))
    lines = shown["axes"].md_str.splitlines()
    assert lines[0] == "| penalty | converged | discrimination | calibration | label_efficiency | robustness |"
    # Two ways to choose, five penalties.
    assert len(lines) - 2 == shown["dagster/row_count"] == shown["choices"] == 7
    assert lines[2].startswith("| as published |")
    assert shown["auroc_lowest"] <= shown["auroc_highest"]
