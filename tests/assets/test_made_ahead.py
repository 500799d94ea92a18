"""Partitions made in other processes: the same bytes, the same events, errors told as if they were the step's own."""

import pickle
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import active_children

import pytest
from graph_site import SKIN, Site, events
from worker_stages import Told

from crs_assets.assets.ahead import made_ahead
from crs_assets.assets.errors import RemoteError, tell, tell_where
from crs_assets.automation.planner import Selection
from crs_assets.science.datasets import DatasetError
from crs_assets.science.encoders import WeightsError

VIT_B = Selection(("vit-b",), (SKIN,))
PROBES = ("probe_predictions", "run_metrics")


def in_processes(site: Site) -> Site:
    config = site.home / "config.toml"
    config.write_text(config.read_text().replace("fits = 1", "fits = 2"))
    return site


def forget_probes(site: Site) -> dict[str, bytes]:
    """Remove a cell's probes from the store; the bytes that they had."""
    gone = {}
    for stage in PROBES:
        for path in (site.home / "artifacts" / site.suite / stage / "vit-b").glob(f"{SKIN}.s*/**/*"):
            if path.is_file():
                gone[str(path.relative_to(site.home))] = path.read_bytes()
                path.unlink()
    assert gone
    return gone


@pytest.mark.slow
def test_processes_leave_the_bytes_and_the_events_of_one(small_made: Site) -> None:
    site = in_processes(small_made)
    with site.instance() as instance:
        before = events(instance)
    gone = forget_probes(site)
    summary = site.run(VIT_B)
    assert not summary.failed
    made = {name: (site.home / name).read_bytes() for name in gone if name.endswith((".parquet", ".safetensors"))}
    assert made == {name: content for name, content in gone.items() if name in made}
    with site.instance() as instance:
        after = events(instance)
    recorded = {pair for pair in after if after[pair] != before[pair] and pair[0] in PROBES}
    assert recorded == {(name, f"vit-b|{SKIN}.s{seed}") for name in PROBES for seed in (0, 1)}


@pytest.mark.slow
def test_an_error_in_another_process_is_told_in_the_run(small_made: Site) -> None:
    site = in_processes(small_made)
    forget_probes(site)
    features = next((site.home / "artifacts" / site.suite / "features" / "vit-b" / SKIN).rglob("features.arrow"))
    features.write_bytes(b"not arrow")
    summary = site.run(VIT_B)
    assert len(summary.failed) == 1
    assert "2 partition(s) failed" in summary.failed[0]
    assert "StoreError" in summary.failed[0]
    assert "altered after it was written" in summary.failed[0]


def test_errors_survive_the_way_between_processes(finished) -> None:
    for error in (DatasetError("ward", ["row 3: no such class"]), WeightsError("copy the file"), KeyError("x")):
        remote = pickle.loads(pickle.dumps(RemoteError.of(error)))
        assert tell(finished, remote) == tell(finished, error)


def test_an_unforeseen_error_brings_the_lines_that_it_came_through(finished) -> None:
    def broken() -> None:
        raise ZeroDivisionError("by zero")

    try:
        broken()
    except ZeroDivisionError as error:
        told = tell_where(finished, RemoteError.of(error))
    assert told.startswith("ZeroDivisionError: by zero\n")
    assert "in broken" in told


def ahead(bench, *partitions):
    return made_ahead(replace(bench, compute=replace(bench.compute, fits=2)), [Told()], partitions)


@pytest.mark.slow
def test_a_process_that_died_is_told_and_the_next_run_has_new_ones(finished) -> None:
    with ahead(finished, "die", "die") as begun, pytest.raises(BrokenProcessPool):
        begun["die"].result()
    with ahead(finished, "a", "b") as begun:
        assert [begun[name].result().outcome(Told()) for name in "ab"] == ["a", "b"]


@pytest.mark.slow
def test_work_that_nobody_will_ask_for_is_ended(finished) -> None:
    def interrupted() -> None:
        with ahead(finished, "a", "wait 1", "wait 2") as begun:
            begun["a"].result()
            # Work that has not begun is dropped without a word, and its processes are kept.
            while not begun["wait 1"].running():
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    # Half of what the work would have taken.
    for process in active_children():
        process.join(30)
    assert not active_children()
    with ahead(finished, "a", "b") as begun:
        assert begun["b"].result().outcome(Told()) == "b"
