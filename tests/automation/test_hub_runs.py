"""Runs of a suite against a hub on loopback: a gate that stays shut, and a release from its commit to its runs."""

import pytest
from graph_site import CHEST, SKIN, Site, events

from crs_assets.automation.planner import Selection
from crs_assets.automation.releases import propose_releases
from crs_assets.cli.adding import add_encoder
from crs_assets.resources.home import Home
from crs_assets.science.encoders import load_encoder_spec

pytestmark = pytest.mark.slow

FILE = "model.safetensors"
REPO = "tests/vit-c"


@pytest.fixture
def publish(hub, monkeypatch):
    """Move weights out of a site's mirror onto the hub, let the site's runs download; the new commit."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", "secret")

    def move(site: Site, seed: int) -> str:
        monkeypatch.setenv("CRS_HOME", str(site.home))
        config = site.home / "config.toml"
        if "[weights]" not in config.read_text():
            config.write_text(f"{config.read_text()}[weights]\ndownload = true\n")
        site.publish("vit-c", seed)
        path = site.home / "weights" / REPO / FILE
        commit = hub.publish(REPO, {FILE: path.read_bytes()})
        path.unlink()
        return commit

    return move


def pinned(site: Site, commit: str) -> str:
    return site.tiny.network_entry("vit-c").replace(f'file = "{FILE}"', f'file = "{FILE}"\nrevision = "{commit}"')


def test_a_shut_gate_skips_exactly_its_encoder_with_the_cure_and_the_others_are_completed(
    small_bare: Site, hub, publish
) -> None:
    small_bare.add("vit-c", pinned(small_bare, publish(small_bare, seed=2)))
    hub.refusals[REPO] = (403, "GatedRepo", "Access is restricted")
    summary = small_bare.run(freeze=True)
    assert summary.failed == []
    assert list(summary.skipped) == ["vit-c"]
    assert f"accept the terms of {REPO} at {hub.url}/{REPO}" in summary.skipped["vit-c"]
    assert "secret" not in summary.skipped["vit-c"]
    assert {seen.path.split("/")[2] for seen in hub.seen} == {"vit-c"}
    bench = small_bare.bench
    scored = {name for name in bench.suite.encoders if bench.store.peek(bench.key("crs", name))}
    assert scored == {"vit-a", "vit-b", "vit-d"}
    assert bench.store.peek(bench.key("leaderboard"))
    assert not bench.store.peek(bench.key("features", "vit-c", SKIN))

    hub.refusals.clear()  # the terms are accepted
    with small_bare.instance() as instance:
        before = events(instance)
    opened = small_bare.run(Selection(("vit-c",)))
    assert (opened.failed, opened.skipped) == ([], {})
    with small_bare.instance() as instance:
        after = events(instance)
    moved = {pair for pair in after if after[pair] != before.get(pair)}
    assert {partition.split("|")[0] for _, partition in moved} == {"vit-c", ""}
    assert bench.store.peek(bench.key("crs", "vit-c"))


def test_an_accepted_release_leads_to_exactly_its_runs(small_made: Site, hub, publish) -> None:
    first = publish(small_made, seed=2)
    small_made.add("vit-c", pinned(small_made, first))
    assert not small_made.run().failed
    second = publish(small_made, seed=9)
    home = Home(small_made.home)
    lines = list(propose_releases(home.load_suite("small"), home, small_made.bench.weights.hub))
    # The other encoders' repositories are not on this hub, which keeps nobody from looking further.
    assert [line.partition(":")[0] for line in lines if second in line] == ["vit-c"]
    with small_made.instance() as instance:
        before, files = events(instance), small_made.files()
    assert small_made.run().recomputed == {}  # proposed is not accepted

    new = f"vit-c-{second[:8]}"
    proposal = home.path / "proposed" / f"{new}.toml"
    add_encoder(proposal, "small")
    summary = small_made.run()
    assert not summary.failed
    assert not summary.skipped
    with small_made.instance() as instance:
        after = events(instance)
    moved = {pair for pair in after if after[pair] != before.get(pair)}
    assert {partition.split("|")[0] for _, partition in moved} == {new, ""}
    assert {asset for asset, partition in moved if not partition} == {"leaderboard"}
    assert ("crs", new) in moved
    assert {("features", f"{new}|{name}") for name in (SKIN, CHEST)} <= moved
    # The pinned encoder keeps its revision, and everything that was published its bytes.
    assert load_encoder_spec(home.dropins("small") / "vit-c.toml").weights.revision == first
    now = small_made.files()
    assert {path for path in files if now.get(path) != files[path]} == {"small/leaderboard/current"}
