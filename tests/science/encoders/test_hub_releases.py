"""New revisions on a loopback hub: seen, compared, proposed; and what a mirror has to hold."""

import hashlib
import json

import pytest
from loopback_hub import LoopbackHub

from crs_assets.science.encoders.errors import WeightsError
from crs_assets.science.encoders.hub import download
from crs_assets.science.encoders.hub_errors import Hub, HubUnreachableError
from crs_assets.science.encoders.key_maps import KEY_MAPS, KeyMap
from crs_assets.science.encoders.mirror import mirror_listing
from crs_assets.science.encoders.releases import (
    Survey,
    compare,
    encoder_toml,
    latest_revision,
    new_releases,
    propose,
)
from crs_assets.science.encoders.spec import ENCODER_FOLDER, EncoderSpec, load_encoder_spec

REPO, FILE = "owner/tiny", "model.safetensors"
INDEX = "m.safetensors.index.json"


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Replaces the folder's own: here loopback, and only it, may be reached."""


@pytest.fixture
def pinned(make_spec):
    """The tiny encoder at a revision."""

    def make(revision, encoder="tiny", **weights):
        return make_spec(
            id=encoder, weights={"source": "hub", "repo": REPO, "file": FILE, "revision": revision, **weights}
        )

    return make


def test_the_newest_commit_is_seen_with_hash_size_and_date(hub, pinned):
    old = hub.publish(REPO, {FILE: b"old"})
    new = hub.publish(REPO, {FILE: b"newer", "README.md": b"a longer text that is no weight file"})
    release = latest_revision(pinned(old), Hub(hub.url))
    assert (release.encoder, release.pinned, release.latest, release.date) == ("tiny", old, new, "2026-01-02")
    assert release.weights_changed
    assert release.sha256 == hashlib.sha256(b"newer").hexdigest()
    assert release.size == 5


@pytest.mark.parametrize("pin", ["commit", "tag", "none"])
def test_a_commit_that_leaves_the_weights_alone_is_no_new_release(hub, pinned, pin):
    old = hub.publish(REPO, {FILE: b"old"})
    hub.publish(REPO, {FILE: b"old", "README.md": b"rewritten"})
    hub.repos[REPO].tags["v1"] = old
    spec = pinned({"commit": old, "tag": "v1", "none": None}[pin])
    survey = compare([spec], Hub(hub.url))
    assert not survey.releases[0].weights_changed
    assert new_releases({"tiny": spec}, survey) == []


def test_a_changed_shard_is_a_new_release(hub, pinned):
    old = hub.publish(REPO, {INDEX: b"{}", "a.safetensors": b"1"}, plain=[INDEX])
    new = hub.publish(REPO, {INDEX: b"{}", "a.safetensors": b"2"}, plain=[INDEX])
    spec = pinned(old, file=INDEX, sha256={INDEX: "0" * 64})
    (release,) = new_releases({"tiny": spec}, compare([spec], Hub(hub.url)))
    proposed = propose(spec, release)
    assert proposed.weights.revision == new
    assert proposed.weights.sha256 is None
    assert any("pin it after the first download" in fact for fact in proposed.unverified)


def test_one_refusal_does_not_hide_the_others(hub, pinned, make_spec):
    old = hub.publish(REPO, {FILE: b"old"})
    hub.publish("owner/gated", {FILE: b"x"})
    hub.refusals["owner/gated"] = (403, "GatedRepo", "restricted")
    gated = make_spec(
        id="gated", weights={"source": "hub", "repo": "owner/gated", "file": FILE, "revision": "a" * 40}, gated=True
    )
    local = make_spec(id="local", weights={"source": "file", "path": "a.pth"})
    survey = compare([gated, local, pinned(old)], Hub(hub.url, "secret"))
    assert [release.encoder for release in survey.releases] == ["tiny"]
    assert list(survey.refused) == ["gated"]
    assert "accept the terms of owner/gated" in survey.refused["gated"]


def test_a_file_that_left_the_repository_is_told(hub, pinned):
    old = hub.publish(REPO, {FILE: b"old"})
    hub.publish(REPO, {"renamed.safetensors": b"old"})
    with pytest.raises(WeightsError, match=f"{REPO} has no {FILE} any more"):
        latest_revision(pinned(old), Hub(hub.url))


def test_without_an_answer_the_survey_stops(pinned, hub):
    with LoopbackHub() as gone:
        url = gone.url
    with pytest.raises(HubUnreachableError):
        compare([pinned("a" * 40)], Hub(url))


def test_a_proposal_is_the_old_entry_at_the_new_revision_and_says_what_is_unchecked(hub, pinned):
    old = hub.publish(REPO, {FILE: b"old"})
    new = hub.publish(REPO, {FILE: b"newer"})
    spec = pinned(old, sha256=hashlib.sha256(b"old").hexdigest())
    (release,) = new_releases({"tiny": spec}, compare([spec], Hub(hub.url)))
    proposed = propose(spec, release)
    assert proposed.id == f"tiny-{new[:8]}"
    assert proposed.title == f"A tiny ViT (proposed: revision {new[:8]} of 2026-01-02)"
    assert (proposed.weights.revision, proposed.weights.sha256) == (new, hashlib.sha256(b"newer").hexdigest())
    assert proposed.unverified == (
        "network, key map, preprocessing and tap are those of tiny; unchecked for the new files",
    )
    same = {"architecture", "preprocessing", "tap", "family", "licence"}
    assert proposed.model_dump(include=same) == spec.model_dump(include=same)
    assert spec.weights.revision == old


def test_an_accepted_proposal_is_not_proposed_again_and_its_successor_follows_it(hub, pinned):
    first = hub.publish(REPO, {FILE: b"1"})
    second = hub.publish(REPO, {FILE: b"2"})
    specs = {spec.id: spec for spec in (pinned(first), pinned(second, f"tiny-{second[:8]}"))}
    assert new_releases(specs, compare(specs.values(), Hub(hub.url))) == []
    third = hub.publish(REPO, {FILE: b"3"})
    (release,) = new_releases(specs, compare(specs.values(), Hub(hub.url)))
    assert release.encoder == f"tiny-{second[:8]}"
    assert propose(specs[release.encoder], release).id == f"tiny-{third[:8]}"


@pytest.mark.parametrize("path", sorted(ENCODER_FOLDER.glob("*.toml")), ids=lambda path: path.stem)
def test_an_entry_written_as_toml_reads_back_as_itself(path, tmp_path):
    spec = load_encoder_spec(path)
    (tmp_path / path.name).write_text(encoder_toml(spec), encoding="utf-8")
    assert load_encoder_spec(tmp_path / path.name) == spec


def test_any_text_survives_toml(make_spec, tmp_path):
    odd = 'Änd "quoted" \\ back\nline \U0001f9e0 tab\t'
    spec = make_spec(title=odd, unverified=[odd], absent={"a b.c": odd}, preprocessing={"std": [1e-7, 1.0, 2.5]})
    (tmp_path / "tiny.toml").write_text(encoder_toml(spec), encoding="utf-8")
    assert load_encoder_spec(tmp_path / "tiny.toml") == EncoderSpec.model_validate(spec.model_dump())


def test_the_mirror_listing_names_files_places_gates_and_licences(pinned, make_spec, tmp_path):
    gated = make_spec(
        id="gated",
        gated=True,
        licence="CC-BY-NC",
        weights={"source": "hub", "repo": "owner/gated", "file": "sub/a.bin"},
    )
    local = make_spec(id="local", weights={"source": "file", "path": "a.pth"})
    first, second = mirror_listing([pinned("a" * 40), local, gated], tmp_path)
    assert (first.encoder, first.files, first.folder) == ("tiny", (FILE,), tmp_path / REPO / ("a" * 40))
    assert (first.present, first.size, first.gated) == (False, None, False)
    assert first.line() == f"copy {FILE} of {REPO}@{'a' * 40} to {first.folder}; licence none"
    assert second.line() == (
        f"copy sub/a.bin of owner/gated (no revision pinned) to {tmp_path / 'owner/gated'}; "
        "licence CC-BY-NC, gated: accept the terms first"
    )


def test_the_mirror_listing_counts_what_is_there_and_shows_what_the_hub_says(hub, pinned, tmp_path, monkeypatch):
    monkeypatch.setitem(KEY_MAPS, "none", KeyMap(keep=lambda key: key == "x"))
    index = json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}).encode()
    old = hub.publish(REPO, {INDEX: index, "a.safetensors": b"12345", "b.safetensors": b"1"}, plain=[INDEX])
    new = hub.publish(REPO, {INDEX: index, "a.safetensors": b"123456", "b.safetensors": b"1"}, plain=[INDEX])
    spec = pinned(old, file=INDEX)
    survey = compare([spec], Hub(hub.url))
    (entry,) = mirror_listing([spec], tmp_path, survey)
    assert entry.files == (INDEX,)
    assert (entry.size, entry.latest) == (len(index) + 7, new)
    assert f"{INDEX} and the shards it lists of {REPO}@{old}" in entry.line()
    assert f"; its current commit is {new}" in entry.line()
    download(spec, tmp_path, Hub(hub.url))
    (entry,) = mirror_listing([spec], tmp_path, Survey())
    assert entry.present
    assert (entry.files, entry.size) == ((INDEX, "a.safetensors"), len(index) + 5)
