"""The sensor and the schedule on what sites do to them: broken files, missing weights, changed data."""

from datetime import UTC, datetime

import dagster as dg
import numpy as np
import pytest
from graph_site import CHEST, Site, events

from crs_assets.automation.planner import Selection

pytestmark = pytest.mark.slow

SUNDAY = datetime(2030, 1, 6, 3, tzinfo=UTC)
SUNDAY_AFTER = datetime(2030, 1, 13, 3, tzinfo=UTC)


def tick(site: Site, instance: dg.DagsterInstance):
    repository = site.defs.get_repository_def()
    context = dg.build_sensor_context(instance=instance, repository_def=repository, resources=site.resources)
    # As the code server evaluates it: a request may name a partition that the same tick adds.
    with context, dg.partition_loading_context(dynamic_partitions_store=instance):
        return repository.get_sensor_def("new_encoders").evaluate_tick(context)


def weekly(site: Site, instance: dg.DagsterInstance, moment: datetime = SUNDAY):
    repository = site.defs.get_repository_def()
    with dg.build_schedule_context(
        instance=instance,
        repository_def=repository,
        scheduled_execution_time=moment,
        resources=site.resources,
    ) as context:
        return repository.get_schedule_def("rebenchmark").evaluate_tick(context)


def asked(result) -> list[str]:
    return [request.partition_key for request in result.run_requests or ()]


def test_a_broken_file_bars_neither_the_good_one_beside_it_nor_any_run(small_made: Site) -> None:
    small_made.add("vit-b")
    small_made.add("broken", "id = 3")
    small_made.add("vit-a", small_made.tiny.network_entry("vit-a"))
    with small_made.instance() as instance:
        before, files = events(instance), small_made.files()
        result = tick(small_made, instance)
        assert asked(result) == ["vit-b"]
        assert result.dynamic_partitions_requests[0].partition_keys == ["vit-b"]
        instance.add_dynamic_partitions("small.encoder", ["vit-b"])
        job = small_made.defs.get_repository_def().get_job("benchmark_encoder")
        assert job.execute_in_process(partition_key="vit-b", instance=instance).success
        after = events(instance)
        assert {pair: after[pair] for pair in before} == before
        assert {partition.split("|")[0] for _, partition in set(after) - set(before)} == {"vit-b"}
        assert files.items() <= small_made.files().items()
        told = tick(small_made, instance).skip_message
        assert "broken.toml" in told
        assert "never reused" in told  # vit-a's file: the suite has that id already


def test_an_encoder_waits_for_its_weights_and_is_asked_for_once_they_are_there(small_made: Site) -> None:
    weights = small_made.home / "weights" / "tests" / "vit-c" / "model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    small_made.add("vit-c")
    with small_made.instance() as instance:
        first = tick(small_made, instance)
        assert asked(first) == []
        assert "vit-c waits for its weights" in first.skip_message
        weights.write_bytes(content)
        assert asked(tick(small_made, instance)) == ["vit-c"]


def test_the_schedule_asks_for_what_is_stale_or_missing_under_the_name_of_its_weights(small_made: Site) -> None:
    with small_made.instance() as instance:
        assert asked(weekly(small_made, instance)) == ["vit-d"]  # never run
        small_made.publish("vit-a", seed=8)
        result = weekly(small_made, instance)
        assert asked(result) == ["vit-a", "vit-d"]
        bench = small_made.bench
        fingerprint = bench.weights.fingerprint(bench.suite.encoders["vit-a"])
        assert result.run_requests[0].run_key == f"vit-a:{fingerprint}:2030-01-06"
        assert weekly(small_made, instance, SUNDAY_AFTER).run_requests[0].run_key.endswith("2030-01-13")
        # Not a crash of the schedule: the others are asked for, and what is not here is not stale.
        (small_made.home / "weights" / "tests" / "vit-d" / "model.safetensors").unlink()
        assert asked(weekly(small_made, instance)) == ["vit-a"]


def test_a_changed_image_asks_for_the_encoders_that_have_a_cell_on_its_data_set(small_made: Site) -> None:
    with small_made.instance() as instance:
        assert "vit-a" not in asked(weekly(small_made, instance))
        image = small_made.home / "data" / CHEST / "c003.png"
        small_made.tiny.save_image(image, np.random.default_rng(0).normal(100, 30, (40, 40)))
        assert asked(weekly(small_made, instance)) == ["vit-a", "vit-d"]
        job = small_made.defs.get_repository_def().get_job("benchmark_encoder")
        assert job.execute_in_process(partition_key="vit-a", instance=instance).success
        assert "vit-a" not in asked(weekly(small_made, instance))


def test_two_suites_of_one_instance_never_mix(small_made: Site) -> None:
    suites = small_made.home / "catalog" / "suites"
    text = (suites / "small.toml").read_text()
    (suites / "other.toml").write_text(text.replace('id = "small"', 'id = "other"'))
    other = Site(small_made.home, small_made.tiny, "other")
    with small_made.instance() as instance:
        before, files = events(instance), small_made.files()
        other.publish("vit-a", seed=6)
        other.add("vit-b")
        assert asked(tick(small_made, instance)) == []
        assert asked(tick(other, instance)) == ["vit-a", "vit-d", "vit-b"]
    assert not other.run(Selection(encoders=("vit-b",))).failed
    with small_made.instance() as instance:
        assert events(instance) == before
        assert ("features", "vit-b|tiny-skin") in events(instance, "other")
        assert set(instance.get_dynamic_partitions("small.encoder")) == {"vit-a", "vit-d"}
        assert set(instance.get_dynamic_partitions("other.encoder")) == {"vit-a", "vit-d", "vit-b"}
    assert {path: content for path, content in small_made.files().items() if path.startswith("small/")} == files
