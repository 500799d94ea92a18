"""What Dagster has on record after a run is what the store holds, partition by partition."""

import re

import dagster as dg
import polars as pl
import pytest
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from graph_site import CHEST, SKIN, TARGET, Site

from crs_assets.automation.planner import Selection
from crs_assets.stages import data as data_stage
from crs_assets.stages.encoders import Features

pytestmark = pytest.mark.slow

A_CHEST, A_SKIN, D_CHEST, D_SKIN = f"vit-a|{CHEST}", f"vit-a|{SKIN}", f"vit-d|{CHEST}", f"vit-d|{SKIN}"


def statuses(site: Site, instance: dg.DagsterInstance) -> dict[tuple[str, str], StaleStatus]:
    graph = site.defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, loading_context=LoadingContextForTest(instance))
    found = {}
    for key in graph.get_all_asset_keys():
        definition = graph.get(key).partitions_def
        keys = definition.get_partition_keys(dynamic_partitions_store=instance) if definition else [None]
        found |= {(key.path[1], str(part or "")): resolver.get_status(key, part) for part in keys}
    return found


def description(result: dg.ExecuteInProcessResult) -> str:
    (event,) = result.get_step_failure_events()
    return str(event.step_failure_data.user_failure_data.description)


def test_new_weights_make_exactly_their_encoder_stale(small_made: Site) -> None:
    with small_made.instance() as instance:
        before = statuses(small_made, instance)
        assert {partition for (asset, partition), status in before.items() if status is StaleStatus.FRESH} >= {
            "vit-a", A_SKIN, A_CHEST, f"{A_SKIN}.s0",
        }  # fmt: skip
        assert StaleStatus.STALE not in before.values()
        small_made.publish("vit-a", seed=77)
        assert small_made.materialize(instance, ["encoder_weights"], "vit-a", "vit-d").success
        after = statuses(small_made, instance)
        stale = {pair for pair, status in after.items() if status is StaleStatus.STALE}
        # Dagster tells the next layer; what is behind it turns stale when that layer has been made anew.
        encoded = [f"vit-a|{image_set}" for image_set in (SKIN, CHEST, TARGET)]
        assert stale == {(asset, cell) for asset in ("features", "degraded_features") for cell in encoded}


def test_absent_cells_are_passed_over_and_stay_unmaterialized(small_bare: Site) -> None:
    small_bare.run(Selection(encoders=()))
    with small_bare.instance() as instance:
        assert small_bare.materialize(instance, ["encoder_weights"], "vit-d").success
        result = small_bare.materialize(instance, ["features", "degraded_features"], D_SKIN, f"vit-d|{TARGET}")
        assert result.success
        assert instance.get_materialized_partitions(small_bare.key("features")) == {D_SKIN}
        told = [event.user_message for event in instance.all_logs(result.run_id)]
        assert any("passed over; absent by the catalogue: drawn without a chest" in line for line in told)
        weights = instance.get_latest_data_version_record(small_bare.key("encoder_weights"), partition_key="vit-d")
        assert weights.asset_materialization.metadata["absent_cells"].value == {CHEST: "drawn without a chest"}


def test_a_failing_partition_loses_no_other_and_fails_the_run_with_its_reason(small_bare: Site, monkeypatch) -> None:
    small_bare.run(Selection(encoders=()))
    whole = Features.build

    def broken(stage, bench, staging, *parts):
        if parts[1] == CHEST:
            row = data_stage.read_index(bench, CHEST).row(3, named=True)
            raise KeyError(f"{row['image_id']} of {row['group_id']} in {bench.roots.path(CHEST) / row['path']}")
        return whole(stage, bench, staging, *parts)

    monkeypatch.setattr(Features, "build", broken)
    with small_bare.instance() as instance:
        assert small_bare.materialize(instance, ["encoder_weights"], "vit-a").success
        result = small_bare.materialize(instance, ["features", "degraded_features"], A_SKIN, f"vit-a|{TARGET}")
        assert not result.success
        assert instance.get_run_by_id(result.run_id).status is dg.DagsterRunStatus.FAILURE
        assert instance.get_materialized_partitions(small_bare.key("features")) == {A_SKIN, f"vit-a|{TARGET}"}
        text = description(result)
        assert f"{A_CHEST}: KeyError" in text
        assert "<withheld>" in text
        logged = "\n".join(str(event) for event in instance.all_logs(result.run_id))
        assert not re.search(rf"{CHEST}/c\d|c\d+\.png|::q\d|{small_bare.home}/data", logged)


def test_a_leaking_split_is_refused_and_the_check_says_so(small_bare: Site, monkeypatch) -> None:
    whole = data_stage.split_seed

    def leaking(index, spec, seed, protocol):
        splits = whole(index, spec, seed, protocol)
        if spec.id != SKIN:
            return splits
        (group, _), *_ = index.group_by("group_id").len().filter(pl.col("len") > 1).sort("group_id").iter_rows()
        members = index.filter(pl.col("group_id") == group)["image_id"].to_list()
        roles = pl.when(pl.col("image_id") == members[0]).then(pl.lit("train"))
        roles = roles.when(pl.col("image_id") == members[1]).then(pl.lit("test")).otherwise("role")
        return type(splits)(**{**splits.__dict__, "frame": splits.frame.with_columns(role=roles)})

    monkeypatch.setattr(data_stage, "split_seed", leaking)
    with small_bare.instance() as instance:
        assert small_bare.materialize(instance, ["dataset_index"], SKIN, TARGET).success
        result = small_bare.materialize(instance, ["splits"], f"{SKIN}.s0", f"{CHEST}.s1")
        assert not result.success
        assert "2 partition(s) failed" in description(result)
        assert "groups are on two sides" in description(result)
        assert instance.get_materialized_partitions(small_bare.key("splits")) == {f"{CHEST}.s0", f"{CHEST}.s1"}
        checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
        assert not checks["no_group_on_two_sides"].passed
        assert checks["no_group_on_two_sides"].severity is dg.AssetCheckSeverity.ERROR
        assert set(checks["no_group_on_two_sides"].metadata["first"].value) == {f"{SKIN}.s0", f"{SKIN}.s1"}


def test_a_missing_upstream_fails_the_run_and_is_no_leak(small_bare: Site) -> None:
    with small_bare.instance() as instance:
        result = small_bare.materialize(instance, ["splits"], f"{SKIN}.s0")
        assert not result.success
        assert "materialize upstream first" in description(result)
        checks = {check.check_name: check for check in result.get_asset_check_evaluations()}
        assert checks["no_group_on_two_sides"].passed


def test_one_partition_of_two_dependent_assets_goes_through_one_run(small_made: Site) -> None:
    with small_made.instance() as instance:
        result = small_made.job.execute_in_process(
            asset_selection=[small_made.key("splits"), small_made.key("null_controls")],
            instance=instance,
            partition_key=f"{SKIN}.s0",
            raise_on_error=False,
        )
        assert result.success
        made = {(event.asset_key.path[1], event.partition) for event in result.get_asset_materialization_events()}
        assert made == {("splits", f"{SKIN}.s0"), ("null_controls", f"{SKIN}.s0")}
        found = statuses(small_made, instance)
        assert {found[asset, f"{SKIN}.s0"] for asset in ("splits", "null_controls")} == {StaleStatus.FRESH}
        assert StaleStatus.STALE not in found.values()


def test_several_partitions_of_two_dependent_assets_are_never_green_and_missing(small_made: Site) -> None:
    with small_made.instance() as instance:
        result = small_made.materialize(instance, ["splits", "null_controls"], f"{SKIN}.s0", f"{SKIN}.s1")
        assert not result.success
        assert "Launch the assets as a backfill" in description(result)


def test_a_backfill_never_puts_dependent_assets_of_the_same_partitions_into_one_run(
    small_made: Site,
) -> None:
    graph = small_made.defs.resolve_asset_graph()
    together = {
        (parent.path[1], key.path[1])
        for key in graph.get_all_asset_keys()
        for parent in graph.get(key).parent_keys
        if graph.get(key).partitions_def is not None
        and graph.get(key).partitions_def == graph.get(parent).partitions_def
        and graph.get(key).backfill_policy == graph.get(parent).backfill_policy
    }
    # Made in one step, so that none is skipped.
    assert together == {("probe_predictions", "run_metrics")}
    assert all(graph.get(key).backfill_policy for key in graph.get_all_asset_keys() if graph.get(key).partitions_def)


def test_nothing_on_record_names_a_patient_an_image_or_a_file(small_made: Site) -> None:
    bench = small_made.bench
    forbidden = set()
    for image_set in (SKIN, CHEST, TARGET):
        index = data_stage.read_index(bench, image_set)
        for column in ("image_id", "group_id", "path"):
            forbidden |= set(index[column])
    database = b"".join(
        path.read_bytes()
        for path in (small_made.home / "dagster").rglob("*")
        if path.is_file() and path.suffix != ".yaml"
    ).decode("latin-1")
    # Enough to be sure that the events are in there.
    assert f"{SKIN}.s0" in database
    assert {name for name in forbidden if name in database} == set()
    assert not re.search(r"\b[scpq]\d{3}\.png", database)
    assert str(small_made.home / "data") not in database
