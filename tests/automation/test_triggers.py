"""The sensor and the schedule on what sites do to them: broken files, missing weights, changed data."""

from datetime import UTC, datetime

import dagster as dg
import numpy as np
import pytest
from graph_site import CHEST, SKIN, Site, events

from crs_assets.automation.planner import Selection

pytestmark = pytest.mark.slow

SUNDAY = datetime(2030, 1, 6, 3, tzinfo=UTC)
SUNDAY_AFTER = datetime(2030, 1, 13, 3, tzinfo=UTC)


def tick(site: Site, instance: dg.DagsterInstance):
    repository = site.defs.get_repository_def()
    # With the reference, as the code server has it: a request may name a partition that the same tick adds.
    with dg.build_sensor_context(
        instance=instance, instance_ref=instance.get_ref(), repository_def=repository, resources=site.resources
    ) as context:
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


def benchmark(site: Site, instance: dg.DagsterInstance, encoder: str) -> dg.ExecuteInProcessResult:
    job = site.defs.get_repository_def().get_job("benchmark_encoder")
    return job.execute_in_process(partition_key=encoder, instance=instance, raise_on_error=False)


def asked(result) -> list[str]:
    return [request.partition_key for request in result.run_requests or ()]


def test_a_broken_file_bars_neither_the_good_one_beside_it_nor_any_run(small_made: Site) -> None:
    small_made.add("vit-c")
    small_made.add("broken", "id = 3")
    small_made.add("vit-a")
    with small_made.instance() as instance:
        before, files = events(instance), small_made.files()
        result = tick(small_made, instance)
        assert asked(result) == ["vit-c"]
        assert result.dynamic_partitions_requests[0].partition_keys == ["vit-c"]
        instance.add_dynamic_partitions("small.encoder", ["vit-c"])
        assert benchmark(small_made, instance, "vit-c").success
        told = tick(small_made, instance).skip_message
        assert "broken.toml" in told
        assert "never reused" in told  # vit-a's file: the suite has that id already
        after = events(instance)
    moved = {pair for pair in before if after[pair] != before[pair]}
    assert moved == {("leaderboard", "")}
    assert {partition.split("|")[0] for _, partition in set(after) - set(before)} == {"vit-c"}
    # Published scores keep their bytes; the leaderboard alone has a new version beside the old.
    now = small_made.files()
    assert {path for path in files if now.get(path) != files[path]} == {"small/leaderboard/current"}
    assert {path.split("/")[2] for path in set(now) - set(files) if "/leaderboard/" not in path} == {"vit-c"}


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
        assert asked(weekly(small_made, instance)) == []
        small_made.publish("vit-b", seed=8)
        small_made.add("vit-c")
        result = weekly(small_made, instance)
        assert asked(result) == ["vit-b", "vit-c"]
        bench = small_made.bench
        fingerprint = bench.weights.fingerprint(bench.suite.encoders["vit-b"])
        assert result.run_requests[0].run_key == f"vit-b:{fingerprint}:2030-01-06"
        assert weekly(small_made, instance, SUNDAY_AFTER).run_requests[0].run_key.endswith(":2030-01-13")
        # Not a crash of the schedule: the others are asked for, and what is not here is not stale.
        (small_made.home / "weights" / "tests" / "vit-c" / "model.safetensors").unlink()
        assert asked(weekly(small_made, instance)) == ["vit-b"]
        before = events(instance)
        assert benchmark(small_made, instance, "vit-b").success
        after = events(instance)
        moved = {pair[1].split("|")[0] for pair, place in after.items() if before.get(pair) != place}
        assert moved == {"vit-b", ""}
        assert asked(weekly(small_made, instance)) == []


def test_a_changed_image_asks_for_the_encoders_that_have_a_cell_on_its_data_set(small_made: Site) -> None:
    with small_made.instance() as instance:
        image = small_made.home / "data" / CHEST / "c003.png"
        small_made.tiny.save_image(image, np.random.default_rng(0).normal(100, 30, (40, 40)))
        assert asked(weekly(small_made, instance)) == ["vit-a", "vit-b"]


def test_two_suites_of_one_instance_never_mix(small_made: Site) -> None:
    suites = small_made.home / "catalog" / "suites"
    text = (suites / "small.toml").read_text()
    (suites / "other.toml").write_text(text.replace('id = "small"', 'id = "other"'))
    other = Site(small_made.home, small_made.tiny, "other")
    with small_made.instance() as instance:
        before, files = events(instance), small_made.files()
        other.add("vit-c")
        assert asked(tick(small_made, instance)) == []
        assert asked(tick(other, instance)) == ["vit-a", "vit-b", "vit-d", "vit-c"]
    assert not other.run(Selection(("vit-c",), (SKIN,))).failed
    with small_made.instance() as instance:
        assert events(instance) == before
        assert ("features", f"vit-c|{SKIN}") in events(instance, "other")
        assert set(instance.get_dynamic_partitions("small.encoder")) == {"vit-a", "vit-b", "vit-d"}
        assert set(instance.get_dynamic_partitions("other.encoder")) == {"vit-a", "vit-b", "vit-d", "vit-c"}
    assert {path: content for path, content in small_made.files().items() if path.startswith("small/")} == files
