"""What the runner launches: what is stale or not on record, and nothing else."""

import shutil

import pytest
from graph_site import CHEST, SKIN, TARGET, Site, events

from crs_assets.automation.planner import Selection
from crs_assets.stages.encoders import Features

pytestmark = pytest.mark.slow


def test_a_second_run_recomputes_nothing_and_launches_nothing(small_made: Site) -> None:
    with small_made.instance() as instance:
        runs = instance.get_runs_count()
    files = small_made.files()
    summary = small_made.run(freeze=True)
    assert (summary.recomputed, summary.recorded, summary.failed, summary.panel) == ({}, {}, [], None)
    assert small_made.files() == files
    with small_made.instance() as instance:
        assert instance.get_runs_count() == runs


def test_a_new_instance_gets_the_records_without_any_work(small_made: Site) -> None:
    shutil.rmtree(small_made.home / "dagster")
    before = small_made.files()
    summary = small_made.run(Selection(("vit-d",), (SKIN,)))
    assert summary.recomputed == {}
    assert summary.recorded["features"] == 1
    assert small_made.files() == before
    with small_made.instance() as instance:
        assert ("run_metrics", f"vit-d|{SKIN}.s1") in events(instance)


def test_a_selection_touches_no_other_encoder_and_no_other_data_set(small_made: Site) -> None:
    for encoder, seed in (("vit-a", 5), ("vit-b", 6)):
        small_made.publish(encoder, seed)
    with small_made.instance() as instance:
        before = events(instance)
    summary = small_made.run(Selection(("vit-b",), (SKIN,)))
    assert not summary.failed
    with small_made.instance() as instance:
        after = events(instance)
    moved = {pair for pair in after if after[pair] != before.get(pair)}
    assert ("features", f"vit-b|{SKIN}") in moved
    assert {partition.split("|")[0] for _, partition in moved} == {"vit-b", ""}
    assert not any(CHEST in partition for _, partition in moved)


def test_the_order_in_which_partitions_were_added_does_not_matter(small_bare: Site) -> None:
    with small_bare.instance() as instance:
        instance.add_dynamic_partitions("small.encoder", ["gone", "vit-d", "vit-b"])
    summary = small_bare.run(Selection(datasets=()))
    assert not summary.failed
    assert summary.recomputed["encoder_weights"] == 3


def test_nothing_is_encoded_for_a_data_set_that_cannot_be_scored(small_bare: Site) -> None:
    manifest = small_bare.home / "data" / SKIN / "manifest.csv"
    manifest.write_text("\n".join(manifest.read_text().splitlines()[:12]) + "\n")
    summary = small_bare.run(Selection(encoders=("vit-a",)))
    assert summary.unscorable == [SKIN]
    assert not summary.failed
    bench = small_bare.bench
    assert not bench.store.peek(bench.key("features", "vit-a", SKIN))
    assert bench.store.peek(bench.key("features", "vit-a", CHEST))


def test_a_panel_is_not_frozen_beside_a_data_set_that_cannot_be_scored(small_bare: Site) -> None:
    manifest = small_bare.home / "data" / SKIN / "manifest.csv"
    manifest.write_text("\n".join(manifest.read_text().splitlines()[:12]) + "\n")
    summary = small_bare.run(Selection(encoders=()), freeze=True)
    assert summary.failed == [
        f"panel: not frozen, because {SKIN} cannot be scored; mend the data set, or take it out of the suite."
    ]


def test_an_encoder_whose_weights_are_not_here_is_skipped_with_the_cure_and_no_other(small_bare: Site) -> None:
    (small_bare.home / "weights" / "tests" / "vit-a" / "model.safetensors").unlink()
    summary = small_bare.run(Selection(("vit-a", "vit-d")))
    assert not summary.failed
    assert list(summary.skipped) == ["vit-a"]
    assert "its weights are missing; copy model.safetensors" in summary.skipped["vit-a"]
    assert summary.recomputed["features"] == 1
    # Shuffled labels are fitted on vit-a's features.
    assert summary.waiting["null controls"] == 4


def test_an_unforeseen_error_in_one_partition_is_told_and_the_rest_is_made(small_bare: Site, monkeypatch) -> None:
    whole = Features.inputs

    def broken(stage, bench, *parts):
        if parts == ("vit-a", TARGET):
            raise RuntimeError("device lost")
        return whole(stage, bench, *parts)

    monkeypatch.setattr(Features, "inputs", broken)
    summary = small_bare.run(Selection(("vit-a",), (CHEST,)))
    assert any(f"vit-a|{TARGET}: RuntimeError: device lost" in failure for failure in summary.failed)
    assert summary.recomputed["features"] == 1


def test_a_panel_that_this_run_could_not_make_ready_is_not_answered_with_the_same_run(small_made: Site) -> None:
    (small_made.home / "weights" / "tests" / "vit-a" / "model.safetensors").unlink()
    (small_made.home / "panels" / "small.active").unlink()
    shutil.rmtree(small_made.home / "artifacts" / "small" / "run_metrics" / "vit-a")
    shutil.rmtree(small_made.home / "artifacts" / "small" / "axis_profile" / "vit-a")
    assert small_made.run(freeze=True).failed == [
        "panel: not frozen, because there are no up-to-date profiles (vit-a); what keeps them is told above."
    ]
    # Of a part of the suite the whole run is the answer.
    (failed,) = small_made.run(Selection(("vit-d",)), freeze=True).failed
    assert failed.endswith("profiles (vit-a); make them: crs run --suite small --freeze-panel")
