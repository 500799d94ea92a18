"""When weights are downloaded, and when never; where the address and the token come from."""

import hashlib

import pytest

from crs_assets.resources.weights import Weights, WeightStore
from crs_assets.science.encoders import EncoderSpec, WeightsError
from crs_assets.science.encoders.hub_errors import Hub

CONTENT = b"weights" * 100


def encoder(name, commit, **weights):
    return EncoderSpec.model_validate(
        {
            "id": name,
            "title": name,
            "family": "generalist",
            "licence": "none",
            "citation": "none",
            "architecture": {"loader": "timm", "arch": "vit_tiny_patch16_224"},
            "weights": {"source": "hub", "repo": f"owner/{name}", "file": "a.bin", "revision": commit, **weights},
            "preprocessing": {"input_size": 32, "resize": "squash", "mean": [0, 0, 0], "std": [1, 1, 1]},
            "tap": {"pool": "cls", "dim": 32, "blocks": 4, "prefix_tokens": 1},
        }
    )


def store(tmp_path, hub, download=False, token=None):
    return Weights(tmp_path / "mirror", tmp_path / "hashes.json", Hub(hub.url, token), download)


def test_a_run_never_downloads_unless_the_site_switched_it_on(tmp_path, hub):
    spec = encoder("a", hub.publish("owner/a", {"a.bin": CONTENT}))
    weights = store(tmp_path, hub)
    by_hand = r"under \[weights\] in config\.toml\): hf download owner/a"
    for look in (weights.ensure, weights.hashes, weights.fingerprint):
        with pytest.raises(WeightsError, match=by_hand):
            look(spec)
    assert hub.seen == []


def test_looking_never_downloads_even_where_runs_may(tmp_path, hub):
    spec = encoder("a", hub.publish("owner/a", {"a.bin": CONTENT}))
    weights = store(tmp_path, hub, download=True)
    for look in (weights.hashes, weights.fingerprint):
        with pytest.raises(WeightsError, match="weights are missing"):
            look(spec)
    assert hub.seen == []
    right = {"a.bin": hashlib.sha256(CONTENT).hexdigest()}
    assert weights.ensure(spec) == right
    asked = len(hub.seen)
    assert weights.ensure(spec) == weights.hashes(spec) == right
    assert len(hub.seen) == asked


def test_a_mirrored_file_needs_no_hub(tmp_path, hub):
    spec = encoder("a", "b" * 40)
    folder = tmp_path / "mirror" / "owner" / "a" / spec.weights.revision
    folder.mkdir(parents=True)
    (folder / "a.bin").write_bytes(CONTENT)
    assert store(tmp_path, hub, download=True).ensure(spec) == {"a.bin": hashlib.sha256(CONTENT).hexdigest()}
    assert hub.seen == []


def test_what_no_hub_has_is_not_looked_for_there(tmp_path, hub):
    spec = encoder("a", None).model_copy(
        update={"weights": type(encoder("a", None).weights)(source="file", path="away.pth")}
    )
    with pytest.raises(WeightsError, match=r"obtain away\.pth"):
        store(tmp_path, hub, download=True).ensure(spec)
    assert hub.seen == []


def test_a_refused_gate_leaves_the_others_their_turn(tmp_path, hub):
    specs = [encoder(name, hub.publish(f"owner/{name}", {"a.bin": CONTENT})) for name in ("a", "gated", "z")]
    hub.refusals["owner/gated"] = (403, "GatedRepo", "restricted")
    outcomes = {outcome.encoder: outcome for outcome in store(tmp_path, hub, token="t").fetch_each(specs)}
    assert list(outcomes) == ["a", "gated", "z"]
    assert [outcomes[name].files[0].read_bytes() for name in ("a", "z")] == [CONTENT, CONTENT]
    assert outcomes["a"].problem is None
    assert outcomes["gated"].files == ()
    assert f"accept the terms of owner/gated at {hub.url}/owner/gated" in outcomes["gated"].problem


def test_address_and_token_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    places = {"mirror": str(tmp_path), "cache": str(tmp_path / "hashes.json")}
    assert WeightStore(**places).resolve().hub == Hub("https://huggingface.co", None)
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example/")
    monkeypatch.setenv("HF_TOKEN", "secret")
    resolved = WeightStore(**places).resolve()
    assert resolved.hub == Hub("https://hub.example", "secret")
    assert not resolved.download
    assert WeightStore(**places, endpoint="http://other").resolve().hub.endpoint == "http://other"
    assert resolved.describe() == {
        "mirror": str(tmp_path),
        "hub": "https://hub.example",
        "token": "from HF_TOKEN",
        "download": "off",
    }
    assert "secret" not in f"{resolved} {resolved.describe()}"
