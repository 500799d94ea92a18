"""Tiny networks through the whole way from file to features, against timm called directly."""

import json

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from timm.models.vision_transformer import checkpoint_filter_fn

from crs_assets.science.encoders.errors import EncoderMemoryError, WeightsError
from crs_assets.science.encoders.frozen import load_encoder
from crs_assets.science.encoders.timm_encoder import _fill

CNN = {"loader": "timm", "arch": "resnet18", "kwargs": {}}
CNN_TAP = {
    "pool": "gap",
    "dim": 512,
    "blocks": 4,
    "prefix_tokens": 0,
    "stages": ["layer1", "layer2", "layer3", "layer4"],
}


@pytest.fixture
def images():
    return np.random.default_rng(1).integers(0, 256, (7, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def snapshot(tiny_model, mirror):
    """The tiny model as a hub snapshot with timm's names; returns the mirror."""
    save_file(tiny_model.state_dict(), mirror[1] / "model.safetensors")
    return mirror[0]


def normalised(images):
    # Written out in float64 from the tiny encoder's mean and std.
    scaled = (images.astype(np.float64) / 255 - [0.5, 0.4, 0.3]) / [0.5, 0.6, 0.7]
    return torch.from_numpy(scaled.transpose(0, 3, 1, 2)).float()


def tokens_of(model, images, block=None):
    with torch.inference_mode():
        if block is None:
            return model.forward_features(normalised(images))
        x = model.norm_pre(model._pos_embed(model.patch_embed(normalised(images))))
        for layer in model.blocks[:block]:
            x = layer(x)
        return x


@pytest.mark.parametrize("block", [None, 1, 3])
@pytest.mark.parametrize("pool", ["cls", "gap"])
def test_features_are_timms_tokens_pooled(make_spec, snapshot, tiny_model, images, pool, block):
    features = load_encoder(make_spec(tap={"pool": pool, "block": block}), snapshot).encode(images)
    tokens = tokens_of(tiny_model, images, block)
    expected = tokens[:, 0] if pool == "cls" else tokens[:, 1:].mean(1)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, expected.numpy(), rtol=0, atol=2e-6)


def test_gap_ln_is_a_plain_layer_norm_of_the_last_blocks_mean(make_spec, snapshot, tiny_model, images):
    features = load_encoder(make_spec(tap={"pool": "gap_ln"}), snapshot).encode(images)
    mean = tokens_of(tiny_model, images, 4)[:, 1:].mean(1).double().numpy()
    expected = (mean - mean.mean(1, keepdims=True)) / np.sqrt(mean.var(1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(features, expected, rtol=0, atol=1e-5)


def test_the_projection_head_is_loaded_when_the_network_has_one(make_spec, snapshot, tiny_model, images):
    kwargs = make_spec().architecture.kwargs | {"num_classes": 3}
    spec = make_spec(architecture={"kwargs": kwargs}, tap={"pool": "proj", "dim": 3})
    with torch.inference_mode():
        expected = tiny_model(normalised(images))
    np.testing.assert_allclose(load_encoder(spec, snapshot).encode(images), expected.numpy(), rtol=0, atol=2e-6)


def test_attention_pooling_is_the_networks_own(make_spec, mirror, images):
    kwargs = make_spec().architecture.kwargs
    architecture = {"arch": "vit_base_patch16_siglip_224", "kwargs": kwargs}
    torch.manual_seed(3)
    model = timm.create_model("vit_base_patch16_siglip_224", num_classes=0, **kwargs).eval()
    save_file(model.state_dict(), mirror[1] / "model.safetensors")
    spec = make_spec(architecture=architecture, tap={"pool": "map", "prefix_tokens": 0})
    with torch.inference_mode():
        expected = model(normalised(images))
    np.testing.assert_allclose(load_encoder(spec, mirror[0]).encode(images), expected.numpy(), rtol=0, atol=2e-6)


def test_nothing_after_the_tapped_block_is_computed(make_spec, snapshot, images):
    encoder = load_encoder(make_spec(tap={"pool": "gap", "block": 2}), snapshot)
    ran = []
    for number, block in enumerate(encoder.model.blocks, start=1):
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
    encoder.encode(images)
    assert ran == [1, 2]


def test_depths_in_one_pass_equal_the_taps_one_by_one(make_spec, snapshot, images):
    depths = load_encoder(make_spec(), snapshot).encode_depths(images, [1, 2, 4])
    assert list(depths) == [1, 2, 4]
    for block, features in depths.items():
        alone = load_encoder(make_spec(tap={"pool": "gap", "block": block}), snapshot).encode(images)
        np.testing.assert_array_equal(features, alone)


@pytest.mark.parametrize("blocks", [[], [2, 1], [0], [5], [1, 1]])
def test_depths_out_of_order_or_range_are_refused(make_spec, snapshot, images, blocks):
    with pytest.raises(ValueError, match=r"blocks rise within 1\.\.4"):
        load_encoder(make_spec(), snapshot).encode_depths(images, blocks)


def test_a_cnn_is_tapped_at_named_stages_and_runs_channels_last(make_spec, images):
    spec = make_spec(architecture=CNN, weights={"source": "none"}, untrained_seed=5, tap=CNN_TAP)
    encoder = load_encoder(spec)
    assert encoder.model.conv1.weight.is_contiguous(memory_format=torch.channels_last)
    model, seen = encoder.model, {}
    for name in CNN_TAP["stages"]:
        getattr(model, name).register_forward_hook(lambda _, __, out, name=name: seen.update({name: out.mean((2, 3))}))
    final = encoder.encode(images)
    np.testing.assert_array_equal(final, seen["layer4"].numpy())
    assert {k: v.shape[1] for k, v in encoder.encode_depths(images, [1, 2, 3, 4]).items()} == {
        1: 64,
        2: 128,
        3: 256,
        4: 512,
    }
    seen.clear()
    second = load_encoder(spec.model_copy(update={"tap": spec.tap.model_copy(update={"block": 2, "dim": 128})}))
    np.testing.assert_array_equal(second.encode(images), encoder.encode_depths(images, [2])[2])
    assert list(seen) == ["layer1", "layer2"]


@pytest.mark.parametrize(("way", "antialias"), [("bicubic", False), ("bicubic-antialias", True)])
def test_positions_are_resampled_for_the_input_size_in_the_stated_way(make_spec, mirror, way, antialias):
    kwargs = make_spec().architecture.kwargs
    torch.manual_seed(2)
    trained = timm.create_model("vit_tiny_patch16_224", num_classes=0, **kwargs | {"img_size": 96})
    save_file(trained.state_dict(), mirror[1] / "model.safetensors")
    spec = make_spec(architecture={"kwargs": kwargs | {"img_size": 64}, "position_resampling": way})
    spec = spec.model_copy(update={"preprocessing": spec.preprocessing.model_copy(update={"input_size": 64})})
    target = timm.create_model("vit_tiny_patch16_224", num_classes=0, **kwargs | {"img_size": 64})
    theirs = checkpoint_filter_fn(trained.state_dict(), target, antialias=antialias)["pos_embed"]
    ours = load_encoder(spec, mirror[0]).model.pos_embed
    assert ours.shape == (1, 17, 32)
    assert torch.equal(ours, theirs)


def test_sharded_weights_and_half_precision_fill_the_network_in_float32(make_spec, tiny_model, mirror, images):
    root, folder = mirror
    tensors = {key: value.half() for key, value in tiny_model.state_dict().items()}
    halves = {"a.safetensors": list(tensors)[::2], "b.safetensors": list(tensors)[1::2]}
    for name, keys in halves.items():
        save_file({key: tensors[key] for key in keys}, folder / name)
    weight_map = {key: name for name, keys in halves.items() for key in keys}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    weights = {"source": "hub", "repo": "owner/tiny", "file": "model.safetensors.index.json", "revision": "abc123"}
    encoder = load_encoder(make_spec(weights=weights), root)
    assert {parameter.dtype for parameter in encoder.model.parameters()} == {torch.float32}
    expected = tokens_of(tiny_model.half().float(), images)[:, 0]
    np.testing.assert_allclose(encoder.encode(images), expected.numpy(), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda sd: sd.pop("blocks.1.norm1.weight"), r"1 missing: blocks\.1\.norm1\.weight"),
        (lambda sd: sd.update({"blocks.9.extra": torch.ones(1)}), r"1 unexpected: blocks\.9\.extra"),
        (lambda sd: sd.update({"norm.bias": torch.ones(5)}), r"1 of another shape: norm\.bias \(5,\) for \(32,\)"),
    ],
    ids=["missing", "unexpected", "shape"],
)
def test_weights_that_do_not_fill_the_network_exactly_are_refused(make_spec, tiny_model, mirror, change, problem):
    tensors = dict(tiny_model.state_dict())
    change(tensors)
    save_file(tensors, mirror[1] / "model.safetensors")
    with pytest.raises(WeightsError, match=problem):
        load_encoder(make_spec(), mirror[0])


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"parameters": 7}, "parameters is 7, the network's"),
        ({"tap": {"blocks": 5}}, "tap.blocks is 5, the network's 4"),
        ({"tap": {"prefix_tokens": 2}}, "tap.prefix_tokens is 2, the network's 1"),
        ({"preprocessing": {"input_size": 48}}, r"preprocessing.input_size is \(48, 48\), the network's \(32, 32\)"),
    ],
)
def test_a_catalogue_entry_at_odds_with_its_network_is_refused(make_spec, snapshot, changes, problem):
    with pytest.raises(ValueError, match=problem):
        load_encoder(make_spec(**changes), snapshot)


def test_a_wrong_dimension_is_refused(make_spec, snapshot, images):
    with pytest.raises(ValueError, match=r"tap\.dim is 64, the network gives 32"):
        load_encoder(make_spec(tap={"dim": 64}), snapshot).encode(images)


def test_nothing_can_change_a_frozen_encoder(make_spec, snapshot, images):
    encoder = load_encoder(make_spec(), snapshot)
    assert not encoder.model.training
    assert not any(parameter.requires_grad for parameter in encoder.model.parameters())
    np.testing.assert_array_equal(encoder.encode(images), encoder.encode(torch.from_numpy(images)))


@pytest.mark.parametrize("kind", ["vit", "cnn"])
def test_untrained_twins_are_identical_and_leave_the_generators_alone(make_spec, images, kind):
    changes = {"architecture": CNN, "tap": CNN_TAP} if kind == "cnn" else {}
    spec = make_spec(weights={"source": "none"}, untrained_seed=3, **changes)
    torch.manual_seed(11)
    np.random.seed(11)  # noqa: NPY002  # the legacy generator is what must not move
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = load_encoder(spec).encode(images)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002
    torch.manual_seed(12)
    np.testing.assert_array_equal(load_encoder(spec).encode(images), first)
    other = load_encoder(spec.model_copy(update={"untrained_seed": 4})).encode(images)
    assert np.abs(other - first).max() > 1e-3


def test_loading_pretrained_weights_draws_no_random_number(make_spec, snapshot):
    before = torch.get_rng_state()
    load_encoder(make_spec(), snapshot)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("kind", ["vit", "cnn"])
def test_batch_size_moves_features_within_the_stated_bound(make_spec, images, kind):
    changes = {"architecture": CNN, "tap": CNN_TAP} if kind == "cnn" else {}
    encoder = load_encoder(make_spec(weights={"source": "none"}, untrained_seed=3, **changes))
    whole = encoder.encode(images)
    for size in (1, 3):
        pieces = [encoder.encode(images[start : start + size]) for start in range(0, len(images), size)]
        assert np.abs(np.concatenate(pieces) - whole).max() < 1e-5 * np.abs(whole).max()


def test_bfloat16_is_another_numeric_mode_close_to_float32(make_spec, snapshot, images):
    exact = load_encoder(make_spec(), snapshot).encode(images)
    mixed = load_encoder(make_spec(), snapshot).in_precision("bfloat16").encode(images)
    assert mixed.dtype == np.float32
    cosine = (exact * mixed).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(mixed, axis=1)
    assert cosine.min() > 0.995
    assert not np.array_equal(exact, mixed)


@pytest.mark.parametrize("shape", [(7, 31, 32, 3), (7, 3, 32, 32), (32, 32, 3)])
def test_a_batch_of_another_shape_is_refused(make_spec, snapshot, shape):
    with pytest.raises(ValueError, match=r"expected a batch of uint8 \(B, 32, 32, 3\)"):
        load_encoder(make_spec(), snapshot).encode(np.zeros(shape, np.uint8))


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
    ids=["device", "host"],
)
def test_running_out_of_memory_is_an_error_of_its_own(make_spec, snapshot, images, error):
    encoder = load_encoder(make_spec(), snapshot)

    def fail(*_):
        raise error

    encoder.model.blocks[0].register_forward_pre_hook(fail)
    with pytest.raises(EncoderMemoryError, match="smaller batch size") as caught:
        encoder.encode(images)
    assert caught.value.images == 7


def test_other_runtime_errors_pass_through(make_spec, snapshot, images):
    encoder = load_encoder(make_spec(), snapshot)

    def fail(*_):
        raise RuntimeError("something else")

    encoder.model.blocks[0].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="something else"):
        encoder.encode(images)


def test_a_tensor_that_no_file_fills_is_refused_by_name(make_spec):
    """A buffer that networks compute and never save: on the meta device it would stay without values."""

    class WithTable(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)
            self.register_buffer("table", torch.zeros(3), persistent=False)

    with torch.device("meta"):
        model = WithTable()
    tensors = {"linear.weight": torch.zeros(2, 2), "linear.bias": torch.zeros(2)}
    with pytest.raises(WeightsError, match="1 never filled: table"):
        _fill(model, tensors, make_spec())
