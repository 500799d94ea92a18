"""Depths of a sweep: where they lie, and one pass that gives them all without moving the encoder's own features."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from crs_assets.science.encoders.depths import Depth, read_at_depths, sweep_depths, why_no_depths
from crs_assets.science.encoders.frozen import load_encoder
from crs_assets.science.encoders.spec import ENCODER_FOLDER, Tap, load_encoder_spec

SHARES = (0.25, 0.50, 0.75, 1.0)
CNN = {"loader": "timm", "arch": "resnet18", "kwargs": {}}
STAGES = ["layer1", "layer2", "layer3", "layer4"]
CNN_TAP = {"pool": "gap", "dim": 512, "blocks": 4, "prefix_tokens": 0, "stages": STAGES}


@pytest.fixture
def images():
    return np.random.default_rng(1).integers(0, 256, (7, 32, 32, 3), dtype=np.uint8)


@pytest.fixture
def snapshot(tiny_model, mirror):
    save_file(tiny_model.state_dict(), mirror[1] / "model.safetensors")
    return mirror[0]


def blocks_of(**tap):
    return [depth.block for depth in sweep_depths(Tap.model_validate({"pool": "gap", "dim": 8, **tap}), SHARES)]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    # Quarters of the blocks, halves rounded up: 27 / 4 = 6.75, 13.5, 20.25; 5 / 4 = 1.25, 2.5, 3.75.
    [(12, [3, 6, 9, 12]), (24, [6, 12, 18, 24]), (27, [7, 14, 20, 27]), (4, [1, 2, 3, 4]), (5, [1, 3, 4, 5])],
)
def test_quarters_of_the_blocks(blocks, expected):
    assert blocks_of(blocks=blocks) == expected


def test_an_encoder_ends_at_its_own_tap():
    # Of 3 blocks: 0.75 and 1.5 round to 1 and 2; 2.25 is block 2 once more, and the smaller share names it.
    depths = sweep_depths(Tap(pool="cls", dim=8, blocks=12, block=3, prefix_tokens=1), SHARES)
    assert depths == (Depth(0.25, 1, "gap"), Depth(0.5, 2, "gap"), Depth(1.0, 3, "cls"))


@pytest.mark.parametrize(("tap", "words"), [({"blocks": 0}, "without blocks"), ({"blocks": 1}, "no depth before")])
def test_an_encoder_without_depths_says_why(tap, words):
    spec = Tap.model_validate({"pool": "gap", "dim": 8, **tap})
    assert sweep_depths(spec, SHARES) == ()
    assert words in why_no_depths(spec, SHARES)


def test_every_network_of_the_catalogue_has_depths_and_pixels_have_none():
    specs = [load_encoder_spec(path) for path in sorted(ENCODER_FOLDER.glob("*.toml"))]
    without = [spec.id for spec in specs if why_no_depths(spec.tap, SHARES)]
    assert without == [spec.id for spec in specs if spec.architecture.loader == "pixels"]
    assert all(len(sweep_depths(spec.tap, SHARES)) >= 3 for spec in specs if spec.id not in without)


@pytest.mark.parametrize(
    ("tap", "kwargs"),
    [
        ({"pool": "cls"}, {}),
        ({"pool": "gap"}, {}),
        ({"pool": "gap_ln"}, {}),
        ({"pool": "cls", "block": 3}, {}),
        ({"pool": "proj", "dim": 3}, {"num_classes": 3}),
    ],
)
def test_one_pass_gives_the_own_features_to_the_bit_and_every_depth(make_spec, snapshot, images, tap, kwargs):
    spec = make_spec(tap=tap, architecture={"kwargs": make_spec().architecture.kwargs | kwargs})
    depths = sweep_depths(spec.tap, SHARES)
    earlier = [depth.block for depth in depths[:-1]]
    own = load_encoder(spec, snapshot).encode(images)
    alone = load_encoder(spec, snapshot).encode_depths(images, earlier)
    with read_at_depths(load_encoder(spec, snapshot), depths) as layered:
        parts = layered.split(layered.encode(images))
        assert [part.shape[1] for part in parts] == list(layered.dims)
    np.testing.assert_array_equal(parts[-1], own)
    for block, part in zip(earlier, parts, strict=False):
        np.testing.assert_array_equal(part, alone[block])


def test_depths_are_hidden_states_averaged_over_patches(make_spec, snapshot, tiny_model, images):
    spec = make_spec()
    scaled = (images.astype(np.float64) / 255 - [0.5, 0.4, 0.3]) / [0.5, 0.6, 0.7]
    with torch.inference_mode():
        x = torch.from_numpy(scaled.transpose(0, 3, 1, 2)).float()
        hidden = [tiny_model.norm_pre(tiny_model._pos_embed(tiny_model.patch_embed(x)))]
        for block in tiny_model.blocks:
            hidden.append(block(hidden[-1]))
        last = tiny_model.norm(hidden[-1])[:, 0]
    with read_at_depths(load_encoder(spec, snapshot), sweep_depths(spec.tap, SHARES)) as layered:
        parts = layered.split(layered.encode(images))
    for depth, part in zip(layered.depths[:-1], parts, strict=False):
        np.testing.assert_allclose(part, hidden[depth.block][:, 1:].mean(1).numpy(), rtol=0, atol=2e-6)
    np.testing.assert_allclose(parts[-1], last.numpy(), rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("architecture", "tap", "dims"),
    [
        (CNN, CNN_TAP, (64, 128, 256, 512)),
        (
            {"loader": "timm", "arch": "tf_efficientnet_lite0", "kwargs": {}},
            {**CNN_TAP, "dim": 1280, "blocks": 5, "stages": [f"blocks.{at}" for at in (0, 1, 2, 4, 6)]},
            (16, 40, 112, 1280),
        ),
    ],
)
def test_stages_of_a_cnn_differ_in_length_and_leave_its_own_features_alone(make_spec, images, architecture, tap, dims):
    spec = make_spec(architecture=architecture, weights={"source": "none"}, untrained_seed=5, tap=tap)
    encoder, depths = load_encoder(spec), sweep_depths(spec.tap, SHARES)
    own = encoder.encode(images)
    with read_at_depths(encoder, depths) as layered:
        parts = layered.split(layered.encode(images))
    assert layered.dims == dims == tuple(part.shape[1] for part in parts)
    np.testing.assert_array_equal(parts[-1], own)
    alone = encoder.encode_depths(images, [depth.block for depth in depths[:-1]])
    for depth, part in zip(depths[:-1], parts, strict=False):
        np.testing.assert_array_equal(part, alone[depth.block])


def test_threads_that_share_a_network_do_not_mix_their_images(make_spec, snapshot):
    spec, rng = make_spec(), np.random.default_rng(3)
    batches = [rng.integers(0, 256, (4, 32, 32, 3), dtype=np.uint8) for _ in range(12)]
    start = threading.Barrier(4)
    with read_at_depths(load_encoder(spec, snapshot), sweep_depths(spec.tap, SHARES)) as layered:
        expected = [layered.encode(batch) for batch in batches]

        def encode(offset):
            start.wait()
            return {at: layered.encode(batches[at]) for at in range(offset, 12, 4)}

        with ThreadPoolExecutor(4) as pool:
            found = {at: features for part in pool.map(encode, range(4)) for at, features in part.items()}
    for at, features in enumerate(expected):
        np.testing.assert_allclose(found[at], features, rtol=0, atol=1e-6)


def test_afterwards_the_network_is_as_it_was(make_spec, snapshot, images):
    spec = make_spec()
    encoder = load_encoder(spec, snapshot)
    with read_at_depths(encoder, sweep_depths(spec.tap, SHARES)) as layered:
        layered.encode(images)
        assert any(module._forward_hooks for module in encoder.model.modules())
    assert not any(module._forward_hooks for module in encoder.model.modules())


def test_what_is_no_network_is_refused():
    pixels = load_encoder(load_encoder_spec(ENCODER_FOLDER / "pixels-16.toml"))
    with pytest.raises(ValueError, match="pixels-16 is no network"), read_at_depths(pixels, ()):
        pass


def test_a_cnn_without_named_stages_is_refused_with_the_cure(make_spec, images):
    spec = make_spec(architecture=CNN, weights={"source": "none"}, untrained_seed=5, tap={**CNN_TAP, "stages": []})
    depths = sweep_depths(spec.tap, SHARES)
    with pytest.raises(ValueError, match=r"name them in tap\.stages"), read_at_depths(load_encoder(spec), depths):
        pass


def test_transformers_hidden_states_at_every_depth_of_a_swept_encoder(make_spec, mirror, images):
    """A DINOv2 of transformers with random weights, loaded through the key map of its published names."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(4)
    config = transformers.Dinov2Config(
        hidden_size=32, num_hidden_layers=4, num_attention_heads=4, image_size=28, patch_size=14
    )
    tower = transformers.Dinov2Model(config).eval()
    save_file(tower.state_dict(), mirror[1] / "model.safetensors")
    kwargs = {"img_size": 28, "embed_dim": 32, "depth": 4, "num_heads": 4}
    architecture = {"arch": "vit_base_patch14_dinov2", "kwargs": kwargs, "key_map": "hf_vit"}
    spec = make_spec(architecture=architecture, preprocessing={"input_size": 28}, tap={"pool": "cls"})
    assert timm.is_model(spec.architecture.arch)
    batch = images[:, :28, :28]
    scaled = (batch.astype(np.float64) / 255 - spec.preprocessing.mean) / spec.preprocessing.std
    with torch.inference_mode():
        pixels = torch.from_numpy(scaled.transpose(0, 3, 1, 2)).float()
        output = tower(pixel_values=pixels, output_hidden_states=True)
    with read_at_depths(load_encoder(spec, mirror[0]), sweep_depths(spec.tap, SHARES)) as layered:
        *earlier, own = layered.split(layered.encode(batch))
    for block, part in enumerate(earlier, start=1):
        hidden = output.hidden_states[block][:, 1:].mean(1).numpy()
        np.testing.assert_allclose(part, hidden, rtol=0, atol=1e-5 * np.abs(hidden).max())
    # At 100 % the published tap: the class token behind the final norm.
    np.testing.assert_allclose(own, output.last_hidden_state[:, 0].numpy(), rtol=0, atol=1e-5)
