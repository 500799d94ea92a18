"""The real client against a hub on loopback: what arrives, what is refused, and what is asked again."""

import hashlib
import json
import threading

import numpy as np
import pytest
from loopback_hub import LoopbackHub
from safetensors.torch import save_file

from crs_assets.science.encoders.errors import WeightsError
from crs_assets.science.encoders.frozen import load_encoder
from crs_assets.science.encoders.hub import download
from crs_assets.science.encoders.hub_errors import Hub, HubUnreachableError
from crs_assets.science.encoders.key_maps import KEY_MAPS, KeyMap
from crs_assets.science.encoders.weights import locate, verify

REPO, FILE = "owner/tiny", "model.safetensors"
CONTENT = bytes(range(256)) * 40  # 10240 bytes: ten of the client's pieces and a bit


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Replaces the folder's own: here loopback, and only it, may be reached."""


@pytest.fixture
def mirror(tmp_path):
    return tmp_path / "mirror"


def weights(commit, **changes):
    return {"source": "hub", "repo": REPO, "file": FILE, "revision": commit, **changes}


def left_in(folder):
    """Files under a folder but for locks."""
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_the_pinned_file_arrives_in_the_layout_of_the_mirror(make_spec, hub, mirror):
    commit = hub.publish(REPO, {FILE: CONTENT, "README.md": b"not wanted"})
    told = []
    spec = make_spec(weights=weights(commit, sha256=hashlib.sha256(CONTENT).hexdigest()))
    (path,) = download(spec, mirror, Hub(hub.url), lambda *progress: told.append(progress))
    assert path == mirror / REPO / commit / FILE
    assert path.read_bytes() == CONTENT
    assert locate(spec, mirror) == (path,)
    assert left_in(mirror) == [FILE]
    assert {seen.path for seen in hub.seen} == {f"/{REPO}/resolve/{commit}/{FILE}"}
    assert [done for _, done, _ in told] == [*range(1000, 10001, 1000), 10240]
    assert {(file, total) for file, _, total in told} == {(FILE, 10240)}


def test_what_is_there_is_not_asked_for_again(make_spec, hub, mirror):
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
    first = download(spec, mirror, Hub(hub.url))
    asked = len(hub.seen)
    assert download(spec, mirror, Hub(hub.url)) == first
    assert len(hub.seen) == asked


def test_a_downloaded_encoder_encodes_like_a_mirrored_one(make_spec, hub, mirror, tmp_path, tiny_model):
    tensors = {key: value for key, value in tiny_model.state_dict().items() if not key.startswith("head.")}
    save_file(tensors, tmp_path / FILE)
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: (tmp_path / FILE).read_bytes()})))
    carried = tmp_path / "carried" / REPO / spec.weights.revision
    carried.mkdir(parents=True)
    (tmp_path / FILE).rename(carried / FILE)
    download(spec, mirror, Hub(hub.url))
    batch = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    downloaded, mirrored = (load_encoder(spec, place).encode(batch) for place in (mirror, tmp_path / "carried"))
    assert np.array_equal(downloaded, mirrored)


def test_a_cut_connection_is_taken_up_at_once(make_spec, hub, mirror):
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
    hub.cuts = [3500]
    (path,) = download(spec, mirror, Hub(hub.url))
    assert path.read_bytes() == CONTENT
    # Of 3500 bytes the client had written three whole pieces of 1000.
    assert [seen.headers.get("range") for seen in hub.downloads()] == [None, "bytes=3000-"]


def test_the_next_attempt_fetches_only_the_rest(make_spec, hub, mirror):
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
    hub.cuts = [4000, *[0] * 20]
    with pytest.raises(WeightsError, match=r"connection was cut .*the next attempt fetches only the rest"):
        download(spec, mirror, Hub(hub.url))
    assert not (mirror / REPO / spec.weights.revision / FILE).exists()
    with pytest.raises(WeightsError, match="weights are missing"):
        locate(spec, mirror)
    hub.cuts = []
    hub.seen.clear()
    (path,) = download(spec, mirror, Hub(hub.url))
    assert path.read_bytes() == CONTENT
    assert [(seen.headers.get("range"), seen.sent) for seen in hub.downloads()] == [("bytes=4000-", 6240)]
    assert left_in(mirror) == [FILE]


def test_a_server_that_cannot_resume_sends_the_whole_again(make_spec, hub, mirror):
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
    hub.cuts, hub.resumes = [3500], False
    told = []
    (path,) = download(spec, mirror, Hub(hub.url), lambda *progress: told.append(progress[1]))
    assert path.read_bytes() == CONTENT
    assert [seen.sent for seen in hub.downloads()] == [3500, 10240]
    assert told[-1] == 10240


def test_a_longer_leftover_is_thrown_away(make_spec, hub, mirror):
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
    folder = mirror / REPO / spec.weights.revision
    hub.cuts = [4000, *[0] * 20]
    with pytest.raises(WeightsError, match="connection was cut"):
        download(spec, mirror, Hub(hub.url))
    hub.cuts = []
    (left,) = [path for path in folder.iterdir() if path.suffix == ".part"]
    left.write_bytes(b"x" * 20000)
    (path,) = download(spec, mirror, Hub(hub.url))
    assert path.read_bytes() == CONTENT


def test_wrong_bytes_are_deleted_and_named_and_never_get_the_final_name(make_spec, hub, mirror):
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
    hub.wrong_bytes = True
    wrong = hashlib.sha256(bytes(b ^ 1 for b in CONTENT)).hexdigest()
    right = hashlib.sha256(CONTENT).hexdigest()
    with pytest.raises(WeightsError, match=f"{FILE} of {REPO}@.*SHA-256 {wrong} came, {right} was expected.*deleted"):
        download(spec, mirror, Hub(hub.url))
    assert left_in(mirror) == []
    hub.wrong_bytes = False
    (path,) = download(spec, mirror, Hub(hub.url))
    assert path.read_bytes() == CONTENT


def test_the_catalogues_hash_holds_where_the_hub_tells_none(make_spec, hub, mirror):
    commit = hub.publish(REPO, {FILE: CONTENT}, plain=[FILE])
    with pytest.raises(WeightsError, match=f"{'0' * 64} was expected"):
        download(make_spec(weights=weights(commit, sha256="0" * 64)), mirror, Hub(hub.url))
    assert left_in(mirror) == []
    right = hashlib.sha256(CONTENT).hexdigest()
    assert download(make_spec(weights=weights(commit, sha256=right)), mirror, Hub(hub.url))


def test_nothing_is_transferred_when_the_hub_already_tells_another_hash(make_spec, hub, mirror):
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT}), sha256="0" * 64))
    with pytest.raises(WeightsError, match=r"the catalogue expects 0000.*nothing was fetched"):
        download(spec, mirror, Hub(hub.url))
    assert hub.downloads() == []


@pytest.mark.parametrize(
    ("refusal", "token", "message"),
    [
        ((401, "GatedRepo", "Access is restricted"), None, "refused without a token .401.*set HF_TOKEN"),
        ((401, "RepoNotFound", "not found"), None, "refused without a token .401.*gated, private or absent"),
        (
            (401, "", "Invalid credentials in Authorization header"),
            "s3cr3t-bad",
            "token in HF_TOKEN is not accepted .401",
        ),
        (
            (403, "GatedRepo", "Access is restricted"),
            "s3cr3t",
            "gate refused this account .403.*accept the terms of {repo}",
        ),
        ((403, "", "fine-grained token"), "s3cr3t", "has to allow reading gated repositories"),
        ((404, "RepoNotFound", "not found"), "s3cr3t", "no repository {repo} at .* .404"),
        ((500, "", "broken"), "s3cr3t", "the hub answered 500; try again later"),
    ],
)
def test_a_refusal_is_told_with_its_cure(make_spec, hub, mirror, refusal, token, message):
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
    hub.refusals[REPO] = refusal
    with pytest.raises(WeightsError, match=f"^tiny: .*{message.format(repo=REPO)}") as caught:
        download(spec, mirror, Hub(hub.url, token))
    assert "s3cr3t" not in str(caught.value)
    assert left_in(mirror) == []


def test_a_revision_or_file_that_is_not_there_is_named(make_spec, hub, mirror):
    commit = hub.publish(REPO, {FILE: CONTENT})
    with pytest.raises(WeightsError, match=f"no revision {'a' * 40} of {REPO} .404"):
        download(make_spec(weights=weights("a" * 40)), mirror, Hub(hub.url))
    with pytest.raises(WeightsError, match=f"no file absent.bin of {REPO}@{commit} .404"):
        download(make_spec(weights=weights(commit, file="absent.bin")), mirror, Hub(hub.url))


def test_a_pinned_revision_is_never_left(make_spec, hub, mirror):
    old = hub.publish(REPO, {FILE: CONTENT})
    new = hub.publish(REPO, {FILE: b"newer"})
    spec = make_spec(weights=weights(old))
    (path,) = download(spec, mirror, Hub(hub.url))
    assert path.read_bytes() == CONTENT
    path.unlink()
    hub.answered_commit = new
    with pytest.raises(WeightsError, match=f"answered with commit {new}; a pinned revision is never left"):
        download(spec, mirror, Hub(hub.url))
    assert left_in(mirror) == []


@pytest.mark.parametrize(
    ("revision", "reason"), [("main", "a branch, which moves"), ("v9", "neither a commit nor a tag")]
)
def test_a_revision_that_could_move_is_refused(make_spec, hub, mirror, revision, reason):
    hub.publish(REPO, {FILE: CONTENT})
    with pytest.raises(WeightsError, match=f"revision '{revision}' of {REPO} is {reason}; pin a commit"):
        download(make_spec(weights=weights(revision)), mirror, Hub(hub.url))
    assert hub.downloads() == []


def test_without_a_revision_the_hub_is_not_even_asked(make_spec, hub, mirror):
    hub.publish(REPO, {FILE: CONTENT})
    spec = make_spec(weights={"source": "hub", "repo": REPO, "file": FILE})
    with pytest.raises(WeightsError, match=r"pins no revision.*the doctor shows the current one"):
        download(spec, mirror, Hub(hub.url))
    assert hub.seen == []


def test_a_tag_stands_for_its_commit(make_spec, hub, mirror):
    hub.repos.clear()
    old = hub.publish(REPO, {FILE: CONTENT})
    hub.publish(REPO, {FILE: b"newer"})
    hub.repos[REPO].tags["v1.0"] = old
    (path,) = download(make_spec(weights=weights("v1.0")), mirror, Hub(hub.url))
    assert path == mirror / REPO / "v1.0" / FILE
    assert path.read_bytes() == CONTENT
    assert hub.downloads()[0].path == f"/{REPO}/resolve/{old}/{FILE}"


def test_the_token_goes_to_the_endpoint_and_not_to_the_store_behind_it(make_spec, hub, mirror):
    with LoopbackHub() as store:
        commit = hub.publish(REPO, {FILE: CONTENT})
        assert store.publish(REPO, {FILE: CONTENT}) == commit
        hub.store = store
        (path,) = download(make_spec(weights=weights(commit)), mirror, Hub(hub.url, "secret"))
        assert path.read_bytes() == CONTENT
        assert {seen.headers.get("authorization") for seen in hub.seen} == {"Bearer secret"}
        assert [seen.method for seen in store.seen] == ["GET"]
        assert "secret" not in str(store.seen)


def test_a_store_that_refuses_is_not_mistaken_for_the_gate(make_spec, hub, mirror):
    with LoopbackHub() as store:
        hub.store = store
        store.refusals[REPO] = (403, "", "link expired")
        spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
        with pytest.raises(WeightsError, match=r"the store that the hub forwards to refused \(403\)"):
            download(spec, mirror, Hub(hub.url, "secret"))


def test_a_token_of_the_environment_is_not_used_behind_the_callers_back(make_spec, hub, mirror, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    download(make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT}))), mirror, Hub(hub.url))
    assert "secret" not in str(hub.seen)


def test_a_token_is_not_shown():
    assert "secret" not in repr(Hub(token="secret"))


def test_only_the_shards_with_a_wanted_tensor_come(make_spec, hub, mirror, monkeypatch):
    monkeypatch.setitem(KEY_MAPS, "none", KeyMap(keep=lambda key: key.startswith("tower.")))
    index = {"weight_map": {"tower.x": "a.safetensors", "tower.y": "b.safetensors", "lm.z": "c.safetensors"}}
    files = {f"sub/{name}.safetensors": name.encode() * 5000 for name in "abc"}
    files["sub/m.safetensors.index.json"] = json.dumps(index).encode()
    commit = hub.publish(REPO, files, plain=["sub/m.safetensors.index.json"])
    spec = make_spec(weights=weights(commit, file="sub/m.safetensors.index.json"))
    hub.cuts = [0, 2000, 0, 0, 0, 0, 0, 0, 0, 0]
    with pytest.raises(WeightsError, match="connection was cut"):
        download(spec, mirror, Hub(hub.url))
    hub.cuts = []
    paths = download(spec, mirror, Hub(hub.url))
    assert [path.name for path in paths] == ["m.safetensors.index.json", "a.safetensors", "b.safetensors"]
    assert paths == locate(spec, mirror)
    assert set(verify(paths, spec)) == {path.name for path in paths}
    assert not any("c.safetensors" in seen.path for seen in hub.seen)


def test_two_at_once_transfer_a_file_once(make_spec, hub, mirror):
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
    threads = [threading.Thread(target=download, args=(spec, mirror, Hub(hub.url))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [seen.sent for seen in hub.downloads()] == [len(CONTENT)]


def test_without_a_network_the_cure_is_the_mirror(make_spec, hub, mirror, monkeypatch):
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
    with LoopbackHub() as gone:
        url = gone.url
    with pytest.raises(HubUnreachableError, match=r"no connection to .*copy the files to the mirror by hand"):
        download(spec, mirror, Hub(url))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubUnreachableError, match="HF_HUB_OFFLINE is set; unset it"):
        download(spec, mirror, Hub(hub.url))


def test_a_folder_that_cannot_be_written_is_no_network_problem(make_spec, hub, tmp_path):
    (tmp_path / "mirror").write_text("a file")
    spec = make_spec(weights=weights(hub.publish(REPO, {FILE: CONTENT})))
    with pytest.raises(WeightsError, match="cannot be written"):
        download(spec, tmp_path / "mirror", Hub(hub.url))


def test_other_sources_are_not_fetched(make_spec, hub, mirror):
    with pytest.raises(WeightsError, match="source 'file'; only 'hub' is fetched"):
        download(make_spec(weights={"source": "file", "path": "a.pth"}), mirror, Hub(hub.url))
