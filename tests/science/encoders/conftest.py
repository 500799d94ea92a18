"""Tiny encoders in the true formats, and a network that is not there."""

import copy
import socket

import pytest

from crs_assets.science.encoders.spec import EncoderSpec

TINY = {"img_size": 32, "patch_size": 16, "embed_dim": 32, "depth": 4, "num_heads": 4}
DOCUMENT = {
    "id": "tiny",
    "title": "A tiny ViT",
    "family": "generalist",
    "licence": "none",
    "citation": "none",
    "architecture": {"loader": "timm", "arch": "vit_tiny_patch16_224", "kwargs": TINY},
    "weights": {"source": "hub", "repo": "owner/tiny", "file": "model.safetensors", "revision": "abc123"},
    "preprocessing": {"input_size": 32, "resize": "squash", "mean": [0.5, 0.4, 0.3], "std": [0.5, 0.6, 0.7]},
    "tap": {"pool": "cls", "dim": 32, "blocks": 4, "prefix_tokens": 1},
}


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("an encoder reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture
def document():
    """The tiny encoder's TOML, as plain data to be changed."""
    return copy.deepcopy(DOCUMENT)


@pytest.fixture
def make_spec():
    """The tiny encoder with tables changed: ``make_spec(tap={"pool": "gap"}, id="other")``."""

    def make(**changes):
        document = copy.deepcopy(DOCUMENT)
        for key, value in changes.items():
            whole = key == "weights" or not isinstance(value, dict)
            document[key] = value if whole else {**document.get(key, {}), **value}
        return EncoderSpec.model_validate(document)

    return make


@pytest.fixture
def tiny_model():
    """timm's own instance of the tiny ViT with seeded random weights, classifier included."""
    import timm
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return timm.create_model("vit_tiny_patch16_224", num_classes=3, **TINY).eval()


@pytest.fixture
def mirror(tmp_path):
    """An empty mirror folder, and the folder in it where the tiny encoder's files belong."""
    folder = tmp_path / "mirror" / "owner" / "tiny" / "abc123"
    folder.mkdir(parents=True)
    return tmp_path / "mirror", folder
