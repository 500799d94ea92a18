"""Every encoder of the article, tiny, from a file in its published format and names to features.

The published names are written here from the published code, by inverting timm's; no file has been seen.
"""

import argparse
import json
import re

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from crs_assets.science.encoders.errors import WeightsError
from crs_assets.science.encoders.frozen import load_encoder
from crs_assets.science.encoders.spec import ENCODER_FOLDER, load_encoder_spec

DEPTH, WIDTH, CLASSES = 4, 32, 5
# Encoder -> whose names its file has. The catalogue may hold no entry that is not here.
FORMATS = {
    "resnet50": "timm",
    "resnet50-tv": "timm",
    "vit-b16": "timm",
    "vit-b16-in21k": "hf_vit",
    "clip-b16": "openai",
    "clip-b16-proj": "openai",
    "siglip-b16": "timm",
    "dinov2-b14": "dinov2",
    "dinov2-b14-518": "dinov2",
    "mae-b16": "timm",
    "biomedclip": "open_clip",
    "biomedclip-proj": "open_clip",
    "llava-med": "llava",
    "medsiglip": "siglip",
    "medsiglip-squash": "siglip",
    "medgemma": "gemma",
    "panderm": "panderm-large",
    "panderm-base": "panderm-base",
    "retfound": "mae",
    "retfound-cls": "mae",
    "retfound-oct": "mae",
    "retfound-dinov2": "teacher",
    "rad-dino": "dinov2",
    "biovil": "hi-ml",
    "biovil-t": "hi-ml",
    "chexzero": "openai",
    "chexzero-cls": "openai",
}
PAPER = list(FORMATS)


def tiny_spec(encoder_id):
    """The catalogue's entry with a small network: 2 x 2 patches, 4 blocks of width 32, or one bottleneck a stage."""
    spec = load_encoder_spec(ENCODER_FOLDER / f"{encoder_id}.toml")
    tap, kwargs = spec.tap, dict(spec.architecture.kwargs)
    if tap.stages:
        kwargs |= {"layers": (1, 1, 1, 1), "channels": (4, 8, 16, 32)}
        side, tap_changes = 64, {"dim": 128}
    else:
        side = 2 * int(re.search(r"patch(\d+)", spec.architecture.arch)[1])
        kwargs |= {"img_size": side, "embed_dim": WIDTH, "depth": DEPTH, "num_heads": 4}
        kwargs |= {"num_classes": CLASSES} if tap.pool == "proj" else {}
        block = tap.block and tap.block - tap.blocks + DEPTH
        tap_changes = {"dim": CLASSES if tap.pool == "proj" else WIDTH, "blocks": DEPTH, "block": block}
    resize_to = side if spec.preprocessing.resize_to else None
    return spec.model_copy(
        update={
            "parameters": None,
            "architecture": spec.architecture.model_copy(update={"kwargs": kwargs}),
            "weights": spec.weights.model_copy(update={"sha256": None}),
            "preprocessing": spec.preprocessing.model_copy(update={"input_size": side, "resize_to": resize_to}),
            "tap": tap.model_copy(update=tap_changes),
        }
    )


def published_network(spec):
    """timm's network with random parameters, statistics included, and the classifier or projection of the file."""
    kwargs = dict(spec.architecture.kwargs)
    if FORMATS[spec.id] in ("openai", "open_clip") or spec.id in ("resnet50", "resnet50-tv", "vit-b16"):
        kwargs["num_classes"] = CLASSES
    model = timm.create_model(spec.architecture.arch, pretrained=False, **{"num_classes": 0, **kwargs}).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.2 + (0.9 if tensor.ndim == 1 else -0.1))
        if hasattr(model, "head") and isinstance(model.head, torch.nn.Linear) and spec.id != "vit-b16":
            model.head.bias.zero_()  # a published projection has none
    return model


def renamed(state, *patterns):
    out = {}
    for key, tensor in state.items():
        for pattern, replacement in patterns:
            key = re.sub(pattern, replacement, key)
        out[key] = tensor
    return out


def split_qkv(state, template, roles):
    """``blocks.N.attn.qkv.K`` into three tensors named by ``template``."""
    out = {}
    for key, tensor in state.items():
        match = re.match(r"blocks\.(\d+)\.attn\.qkv\.(weight|bias)$", key)
        if match:
            for role, part in zip(roles, tensor.chunk(3), strict=True):
                out[template.format(n=match[1], role=role, kind=match[2])] = part.clone()
        else:
            out[key] = tensor
    return out


def siglip_names(state):
    state = dict(state)
    if "attn_pool.q.weight" in state:
        for kind in ("weight", "bias"):
            parts = [state.pop(f"attn_pool.q.{kind}"), state.pop(f"attn_pool.kv.{kind}")]
            state[f"head.attention.in_proj_{kind}"] = torch.cat(parts)
    state["embeddings.position_embedding.weight"] = state.pop("pos_embed")[0]
    if "cls_token" in state:
        state["embeddings.class_embedding"] = state.pop("cls_token")[0, 0]
    state = split_qkv(state, "encoder.layers.{n}.self_attn.{role}_proj.{kind}", "qkv")
    return renamed(
        state,
        (r"^patch_embed\.proj", "embeddings.patch_embedding"),
        (r"^norm_pre", "pre_layrnorm"),
        (r"^norm\.", "post_layernorm."),
        (r"^attn_pool\.latent$", "head.probe"),
        (r"^attn_pool\.proj", "head.attention.out_proj"),
        (r"^attn_pool\.norm", "head.layernorm"),
        (r"^attn_pool\.mlp", "head.mlp"),
        (r"^blocks\.", "encoder.layers."),
        (r"\.norm([12])\.", r".layer_norm\1."),
        (r"\.attn\.proj\.", ".self_attn.out_proj."),
    )


def vit_names(state):
    state = split_qkv(state, "encoder.layer.{n}.attention.attention.{role}.{kind}", ("query", "key", "value"))
    return renamed(
        state,
        (r"^cls_token$", "embeddings.cls_token"),
        (r"^pos_embed$", "embeddings.position_embeddings"),
        (r"^patch_embed\.proj", "embeddings.patch_embeddings.projection"),
        (r"^norm\.", "layernorm."),
        (r"^blocks\.", "encoder.layer."),
        (r"\.norm1\.", ".layernorm_before."),
        (r"\.norm2\.", ".layernorm_after."),
        (r"\.attn\.proj\.", ".attention.output.dense."),
        (r"\.mlp\.fc1\.", ".intermediate.dense."),
        (r"\.mlp\.fc2\.", ".output.dense."),
    )


def openai_names(state):
    state = dict(state)
    state.pop("head.bias", None)
    state["proj"] = state.pop("head.weight").T.contiguous()
    state["class_embedding"] = state.pop("cls_token")[0, 0]
    state["positional_embedding"] = state.pop("pos_embed")[0]
    state = renamed(
        state,
        (r"^patch_embed\.proj", "conv1"),
        (r"^norm_pre", "ln_pre"),
        (r"^norm\.", "ln_post."),
        (r"^blocks\.", "transformer.resblocks."),
        (r"\.norm([12])\.", r".ln_\1."),
        (r"\.attn\.qkv\.", ".attn.in_proj_"),
        (r"\.attn\.proj\.", ".attn.out_proj."),
        (r"\.mlp\.fc1\.", ".mlp.c_fc."),
        (r"\.mlp\.fc2\.", ".mlp.c_proj."),
    )
    text = ("positional_embedding", "transformer.resblocks.0.ln_1.weight", "token_embedding.weight", "logit_scale")
    return {f"visual.{key}": tensor for key, tensor in state.items()} | {key: torch.ones(3) for key in text}


def panderm_names(state, prefix):
    out = {}
    for key, tensor in renamed(state, (r"\.ls([12])\.gamma$", r".gamma_\1")).items():
        if key.endswith(".attn.qkv.bias"):
            query, _, value = tensor.chunk(3)
            attention = key.removesuffix("qkv.bias")
            out |= {f"{prefix}{attention}q_bias": query.clone(), f"{prefix}{attention}v_bias": value.clone()}
        else:
            out[prefix + key] = tensor
    return out


def prefixed(prefix, state):
    return {prefix + key: tensor for key, tensor in state.items()}


def extras(prefix, *names):
    return {prefix + name: torch.ones(2) for name in names}


PUBLISHED = {
    "timm": dict,
    "mae": lambda state: state | extras("", "mask_token", "decoder_pos_embed", "decoder_blocks.0.norm1.weight"),
    "dinov2": lambda state: state | extras("", "mask_token"),
    "teacher": lambda state: (
        prefixed("backbone.", state) | extras("", "backbone.mask_token", "dino_head.mlp.0.bias", "ibot_head.mlp.0.bias")
    ),
    "openai": openai_names,
    "open_clip": lambda state: (
        prefixed("visual.trunk.", {k: v for k, v in state.items() if not k.startswith("head.")})
        | {"visual.head.proj.weight": state["head.weight"]}
        | extras("", "logit_scale", "text.transformer.embeddings.LayerNorm.weight")
    ),
    "hf_vit": lambda state: vit_names(state) | extras("pooler.dense.", "weight", "bias"),
    "siglip": lambda state: (
        prefixed("vision_model.", siglip_names(state))
        | extras("", "logit_scale", "logit_bias", "text_model.encoder.layers.0.mlp.fc1.bias", "text_model.head.weight")
    ),
    "llava": lambda state: (
        prefixed("model.vision_tower.vision_tower.vision_model.", siglip_names(state))
        | extras("model.vision_tower.vision_tower.vision_model.", "embeddings.position_ids")
        | extras("model.", "layers.0.mlp.up_proj.weight", "norm.weight", "mm_projector.0.weight", "embed_tokens.weight")
    ),
    "gemma": lambda state: (
        prefixed("vision_tower.vision_model.", siglip_names(state))
        | extras(
            "", "language_model.model.layers.0.mlp.up_proj.weight", "multi_modal_projector.mm_soft_emb_norm.weight"
        )
    ),
    "panderm-large": lambda state: (
        panderm_names(state, "encoder.")
        | extras("", "mask_token", "teacher.norm.weight", "regressor_and_decoder.norm.bias", "rel_pos_bias.x")
    ),
    "panderm-base": lambda state: panderm_names(state, "") | extras("", "head.weight", "fc_norm.weight", "mask_token"),
    "hi-ml": lambda state: (
        prefixed("encoder.encoder.", state)
        | extras("", "encoder.encoder.fc.weight", "encoder.encoder.fc.bias")
        | extras("", "projector.model.0.weight", "encoder.missing_previous_emb", "encoder.backbone_to_vit.weight")
    ),
}
WRAPPED = {"mae": "model", "teacher": "teacher"}


def state_of(model):
    return {key: tensor.clone() for key, tensor in model.state_dict().items()}


def without_key_bias(state):
    # A PanDerm file has no bias for keys: the published network's is zero.
    for key, tensor in state.items():
        if key.endswith(".attn.qkv.bias"):
            tensor.chunk(3)[1].zero_()
    return state


def save_published(spec, tensors, mirror):
    """Write the file as it is published, at the place where the mirror has it."""
    weights = spec.weights
    folder = mirror / (weights.repo or "") / (weights.revision or "")
    path = folder / (weights.file or weights.path)
    path.parent.mkdir(parents=True)
    tensors = {key: tensor.contiguous() for key, tensor in tensors.items()}
    if path.name.endswith(".index.json"):
        save_shards(path, tensors)
    elif path.suffix == ".safetensors":
        save_file(tensors, path)
    else:
        wrapper = WRAPPED.get(FORMATS[spec.id])
        training = {"args": argparse.Namespace(lr=1e-3), "epoch": 800, "optimizer": {"state": {}}}
        torch.save({wrapper: tensors, **training} if wrapper else tensors, path)


def save_shards(index, tensors):
    """The tower in the second of three shards; the others hold language, and no tensors at all here."""
    shards = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    tower = {key: tensor for key, tensor in tensors.items() if "vision_tower." in key}
    language = [key for key in tensors if key not in tower]
    save_file(tower, index.parent / shards[1])
    (index.parent / shards[0]).write_bytes(b"never opened")
    places = dict.fromkeys(language, shards[0]) | dict.fromkeys(tower, shards[1])
    index.write_text(json.dumps({"weight_map": places}), encoding="utf-8")


def images_of(spec):
    side = spec.preprocessing.input_size
    return np.random.default_rng(1).integers(0, 256, (3, side, side, 3), dtype=np.uint8)


def expected_features(model, spec, images):
    """The tap written out from the model's own layers."""
    pre, tap = spec.preprocessing, spec.tap
    scaled = (images.astype(np.float64) / 255 - pre.mean) / pre.std
    x = torch.from_numpy(scaled.transpose(0, 3, 1, 2)).float()
    with torch.inference_mode():
        if tap.stages:
            return model.forward_features(x).mean((2, 3)).numpy()
        x = model.norm_pre(model._pos_embed(model.patch_embed(x)))
        for block in model.blocks[: tap.block]:
            x = block(x)
        mean = x[:, tap.prefix_tokens :].mean(1)
        if tap.block:
            return mean.numpy()
        if tap.pool == "gap_ln":
            return (
                (mean - mean.mean(1, keepdim=True)) / (mean.var(1, keepdim=True, correction=0) + 1e-6).sqrt()
            ).numpy()
        normed = model.norm(x)
        ways = {
            "cls": lambda: normed[:, 0],
            "gap": lambda: normed[:, tap.prefix_tokens :].mean(1),
            "map": lambda: model.attn_pool(normed),
            "proj": lambda: normed[:, 0] @ model.head.weight.T,
        }
        return ways[tap.pool]().numpy()


@pytest.fixture
def publish(tmp_path):
    """Publish a tiny encoder: ``publish(id, change)`` -> spec, network, mirror; ``change`` edits timm's tensors."""

    def make(encoder_id, change=lambda state: None):
        spec = tiny_spec(encoder_id)
        model = published_network(spec)
        if FORMATS[encoder_id].startswith("panderm"):
            model.load_state_dict(without_key_bias(state_of(model)))
        state = state_of(model)
        change(state)
        save_published(spec, PUBLISHED[FORMATS[encoder_id]](state), tmp_path)
        return spec, model, tmp_path

    return make


def test_every_entry_that_names_published_weights_is_tested_here():
    entries = [load_encoder_spec(path) for path in ENCODER_FOLDER.glob("*.toml")]
    assert {e.id for e in entries if e.weights.source in ("hub", "file")} == set(PAPER)


@pytest.mark.parametrize("encoder_id", PAPER)
def test_the_published_file_gives_the_published_networks_features(publish, encoder_id):
    spec, model, mirror = publish(encoder_id)
    encoder = load_encoder(spec, mirror)
    if not any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules()):  # those are folded
        theirs = model.state_dict()
        for key, tensor in encoder.model.state_dict().items():
            assert torch.equal(tensor, theirs[key]), key
    images = images_of(spec)
    features = encoder.encode(images)
    assert features.shape == (3, spec.tap.dim)
    scale = np.abs(features).max()
    np.testing.assert_allclose(features, expected_features(model, spec, images), rtol=0, atol=1e-5 * scale)
    assert np.abs(features[0] - features[1]).max() > 1e-4 * scale


DAMAGES = {
    "1 missing: {there}": lambda state, there, _: state.pop(there),
    "1 unexpected: {foreign}": lambda state, _, foreign: state.update({foreign: torch.ones(2)}),
    "of another shape: {there} (7,)": lambda state, there, _: state.update({there: torch.ones(7)}),
}


@pytest.mark.parametrize("problem", DAMAGES)
@pytest.mark.parametrize("encoder_id", PAPER)
def test_a_file_that_does_not_fill_the_network_exactly_is_refused(publish, encoder_id, problem):
    place = "layer3.0.bn" if tiny_spec(encoder_id).tap.stages else "blocks.1.mlp.fc"
    there, foreign = f"{place}2.bias", f"{place}9.bias"
    spec, _, mirror = publish(encoder_id, lambda state: DAMAGES[problem](state, there, foreign))
    with pytest.raises(WeightsError, match=re.escape(problem.format(there=there, foreign=foreign))):
        load_encoder(spec, mirror)


def test_the_file_of_another_encoder_is_refused(publish):
    _, _, mirror = publish("panderm")
    spec = tiny_spec("retfound")
    weights = tiny_spec("panderm").weights
    with pytest.raises(WeightsError, match="missing: cls_token"):
        load_encoder(spec.model_copy(update={"weights": weights}), mirror)


def test_plain_gelu_in_place_of_quick_gelu_would_go_unnoticed_but_for_the_catalogue(publish):
    spec, _, mirror = publish("clip-b16")
    plain = spec.model_copy(
        update={"architecture": spec.architecture.model_copy(update={"arch": "vit_base_patch16_clip_224"})}
    )
    images = images_of(spec)
    ours, theirs = (load_encoder(s, mirror).encode(images) for s in (spec, plain))
    assert np.abs(ours - theirs).max() > 1e-4 * np.abs(ours).max()


def test_old_files_without_batch_counters_are_read(publish):
    spec, model, mirror = publish(
        "resnet50-tv", lambda state: [state.pop(key) for key in list(state) if key.endswith("num_batches_tracked")]
    )
    images = images_of(spec)
    np.testing.assert_allclose(
        load_encoder(spec, mirror).encode(images), expected_features(model, spec, images), rtol=1e-4
    )
