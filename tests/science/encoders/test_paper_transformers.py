"""Tiny Hugging Face towers through the hf_vit map: pooled outputs and every depth equal to transformers'."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from crs_assets.science.encoders.frozen import load_encoder
from crs_assets.science.encoders.key_maps import KEY_MAPS
from crs_assets.science.encoders.spec import ENCODER_FOLDER, load_encoder_spec

transformers = pytest.importorskip("transformers")

DEPTH, WIDTH = 3, 32
TINY = {"hidden_size": WIDTH, "num_hidden_layers": DEPTH, "num_attention_heads": 4}
SIGLIP = {"hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
# Encoder -> tower, its configuration, prefix in the file, how the expected features are taken from its output.
TOWERS = {
    "vit-b16-in21k": ("ViTModel", {"layer_norm_eps": 1e-6}, "", lambda out: out.last_hidden_state[:, 0]),
    "clip-b16": ("CLIPVisionModel", {"hidden_act": "quick_gelu"}, "vision_model.", lambda out: out.pooler_output),
    "llava-med": (
        "CLIPVisionModel",
        {"hidden_act": "quick_gelu"},
        "model.vision_tower.vision_tower.vision_model.",
        lambda out: out.hidden_states[-2][:, 1:].mean(1),
    ),
    "siglip-b16": ("SiglipVisionModel", SIGLIP, "vision_model.", lambda out: out.pooler_output),
    "medsiglip": ("SiglipVisionModel", SIGLIP, "vision_model.", lambda out: out.pooler_output),
    "medgemma": (
        "SiglipVisionModel",
        {**SIGLIP, "vision_use_head": False},
        "model.vision_tower.",
        lambda out: out.last_hidden_state.mean(1),
    ),
    "dinov2-b14": ("Dinov2Model", {"layer_norm_eps": 1e-6}, "", lambda out: out.pooler_output),
    "rad-dino": ("Dinov2Model", {"layer_norm_eps": 1e-6}, "dinov2.", lambda out: out.last_hidden_state[:, 0]),
}
PATCH = {"vit-b16-in21k": 16, "clip-b16": 16, "siglip-b16": 16}


def hf_tower(encoder_id, trained_side=None):
    """The tower with random parameters, norms and layer scales included, and the size of 3 x 3 patches."""
    name, options, _, _ = TOWERS[encoder_id]
    patch = PATCH.get(encoder_id, 14)
    sizes = {"image_size": trained_side or 3 * patch, "patch_size": patch}
    mlp = {"mlp_ratio": 4} if name == "Dinov2Model" else {"intermediate_size": 4 * WIDTH}
    tower_class = getattr(transformers, name)
    tower = tower_class(tower_class.config_class(**TINY, **sizes, **mlp, **options)).eval()
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in tower.parameters():
            offset = 0.9 if parameter.ndim == 1 else -0.1
            parameter.copy_(torch.rand(parameter.shape, generator=generator) * 0.2 + offset)
    return tower, 3 * patch


def bare(name):
    return name.removeprefix("vision_model.")


def tiny_spec(encoder_id, side):
    spec = load_encoder_spec(ENCODER_FOLDER / f"{encoder_id}.toml")
    sizes = {"img_size": side, "embed_dim": WIDTH, "depth": DEPTH, "num_heads": 4, "mlp_ratio": 4.0}
    kwargs = {**spec.architecture.kwargs, **sizes}
    block = spec.tap.block and spec.tap.block - spec.tap.blocks + DEPTH
    return spec.model_copy(
        update={
            "parameters": None,
            "architecture": spec.architecture.model_copy(update={"kwargs": kwargs, "key_map": "hf_vit"}),
            "weights": spec.weights.model_copy(
                update={"repo": "a/b", "file": "model.safetensors", "revision": None, "sha256": None}
            ),
            "preprocessing": spec.preprocessing.model_copy(update={"input_size": side, "resize_to": None}),
            "tap": spec.tap.model_copy(update={"dim": WIDTH, "blocks": DEPTH, "block": block}),
        }
    )


@pytest.fixture
def both(tmp_path):
    """Our encoder from the tower's file, the tower, images and the same images as the tower takes them."""

    def make(encoder_id, trained_side=None):
        tower, side = hf_tower(encoder_id, trained_side)
        spec = tiny_spec(encoder_id, side)
        folder = tmp_path / "a" / "b"
        folder.mkdir(parents=True)
        prefix = TOWERS[encoder_id][2]
        save_file(
            {prefix + bare(key): tensor for key, tensor in tower.state_dict().items()}, folder / spec.weights.file
        )
        images = np.random.default_rng(2).integers(0, 256, (3, side, side, 3), dtype=np.uint8)
        pre = spec.preprocessing
        pixels = (images.astype(np.float64) / 255 - pre.mean) / pre.std
        return load_encoder(spec, tmp_path), tower, images, torch.from_numpy(pixels.transpose(0, 3, 1, 2)).float()

    return make


@pytest.mark.parametrize("encoder_id", TOWERS)
def test_features_and_depths_equal_transformers(both, encoder_id):
    encoder, tower, images, pixels = both(encoder_id)
    with torch.inference_mode():
        output = tower(pixel_values=pixels, output_hidden_states=True)
    expected = TOWERS[encoder_id][3](output).numpy()
    np.testing.assert_allclose(encoder.encode(images), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    prefix = encoder.spec.tap.prefix_tokens
    for block, features in encoder.encode_depths(images, range(1, DEPTH + 1)).items():
        # hidden_states[0] are the embeddings, and none has been through the final norm.
        hidden = output.hidden_states[block][:, prefix:].mean(1).numpy()
        np.testing.assert_allclose(features, hidden, rtol=0, atol=1e-5 * np.abs(hidden).max())


def test_positions_of_another_size_are_resampled_as_transformers_does(both):
    encoder, tower, images, pixels = both("dinov2-b14", trained_side=70)
    assert tower.embeddings.position_embeddings.shape[1] == 1 + 5 * 5
    with torch.inference_mode():
        expected = tower(pixel_values=pixels).pooler_output.numpy()
    np.testing.assert_allclose(encoder.encode(images), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


# Names as transformers 4 wrote the published files, for one block and what surrounds it.
OLD_NAMES = {
    "vit-b16-in21k": [
        ("layers.", "encoder.layer."),
        ("attention.q_proj", "attention.attention.query"),
        ("attention.k_proj", "attention.attention.key"),
        ("attention.v_proj", "attention.attention.value"),
        ("attention.o_proj", "attention.output.dense"),
        ("mlp.fc1", "intermediate.dense"),
        ("mlp.fc2", "output.dense"),
    ],
    "dinov2-b14": [
        ("attention.q_proj", "attention.attention.query"),
        ("attention.k_proj", "attention.attention.key"),
        ("attention.v_proj", "attention.attention.value"),
        ("attention.o_proj", "attention.output.dense"),
    ],
    "siglip-b16": [("", "")],
    "clip-b16": [("", "")],
}


@pytest.mark.parametrize("encoder_id", OLD_NAMES)
def test_names_of_transformers_4_mean_the_same_to_transformers_and_to_the_map(encoder_id, tmp_path):
    tower, _ = hf_tower(encoder_id)
    prefix, old = TOWERS[encoder_id][2], {}
    for key, tensor in tower.state_dict().items():
        name = bare(key)
        for now, before in OLD_NAMES[encoder_id]:
            if before not in name:  # written already when the tower itself is an older transformers'
                name = name.replace(now, before)
        old[prefix + name] = tensor
    save_file(old, tmp_path / "model.safetensors", metadata={"format": "pt"})
    tower.config.save_pretrained(tmp_path)
    again, report = type(tower).from_pretrained(tmp_path, output_loading_info=True, local_files_only=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    now = {bare(key): tensor for key, tensor in tower.state_dict().items()}
    assert all(torch.equal(tensor, now[bare(key)]) for key, tensor in again.state_dict().items())
    rename = KEY_MAPS["hf_vit"].rename
    model = torch.nn.Module()  # the map does not look at the network
    ours, theirs = rename(old, model), rename(now, model)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)


PREFIXES = ["", "vision_model.", "vision_tower.", "vision_tower.vision_model.", "model.vision_tower."]
PREFIXES += ["model.vision_tower.vision_model.", "model.vision_tower.vision_tower.vision_model.", "vit.", "dinov2."]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_only_the_vision_tower_of_a_larger_file_is_kept(prefix):
    keep = KEY_MAPS["hf_vit"].keep
    wanted = ["encoder.layers.3.self_attn.q_proj.weight", "post_layernorm.bias", "embeddings.patch_embedding.weight"]
    assert all(keep(prefix + key) for key in wanted)
    assert not keep(prefix + "embeddings.mask_token")
    assert not keep(prefix + "embeddings.position_ids")


@pytest.mark.parametrize(
    "key",
    [
        "text_model.encoder.layers.0.self_attn.q_proj.weight",
        "text_model.embeddings.token_embedding.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.language_model.layers.0.mlp.up_proj.weight",
        "language_model.model.layers.0.self_attn.q_proj.weight",
        "model.embed_tokens.weight",
        "model.mm_projector.0.weight",
        "multi_modal_projector.mm_input_projection_weight",
        "lm_head.weight",
        "logit_scale",
        "visual_projection.weight",
        "classifier.weight",
        "pooler.dense.weight",
        "decoder.decoder_layers.0.output.dense.weight",
    ],
)
def test_tensors_of_language_and_of_other_heads_are_left_alone(key):
    assert not KEY_MAPS["hf_vit"].keep(key)


def test_a_block_without_its_keys_is_left_incomplete_for_the_strict_load():
    tensors = {f"encoder.layers.0.self_attn.{role}_proj.bias": torch.ones(2) for role in "qv"}
    assert KEY_MAPS["hf_vit"].rename(tensors, torch.nn.Module()) == {}
