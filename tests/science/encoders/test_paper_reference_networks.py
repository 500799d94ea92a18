"""Tiny networks of open_clip and torchvision, whose names the published files have, against ours from the same file."""

import numpy as np
import open_clip.timm_model
import open_clip.transformer
import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from timm.models.vision_transformer import _convert_openai_clip

from crs_assets.science.encoders.frozen import load_encoder
from crs_assets.science.encoders.key_maps import KEY_MAPS
from crs_assets.science.encoders.spec import ENCODER_FOLDER, load_encoder_spec

WIDTH, PROJECTED, SIDE = 32, 5, 64
VIT = {"img_size": SIDE, "embed_dim": WIDTH, "depth": 2, "num_heads": 4}


def randomised(model):
    generator = torch.Generator().manual_seed(6)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.2 + (0.9 if tensor.ndim == 1 else -0.1))
    return model.eval()


def features_of_both(encoder_id, kwargs, dim, model, prefix, tmp_path, side=SIDE):
    """Save a reference network under the file's prefix; its features, and those of the catalogue's entry."""
    entry = load_encoder_spec(ENCODER_FOLDER / f"{encoder_id}.toml")
    blocks = kwargs.get("depth", entry.tap.blocks)
    spec = entry.model_copy(
        update={
            "parameters": None,
            "architecture": entry.architecture.model_copy(update={"kwargs": {**entry.architecture.kwargs, **kwargs}}),
            "weights": entry.weights.model_copy(
                update={"source": "file", "path": "tiny.safetensors", "revision": None, "sha256": None}
            ),
            "preprocessing": entry.preprocessing.model_copy(update={"input_size": side, "resize_to": None}),
            "tap": entry.tap.model_copy(update={"dim": dim, "blocks": blocks}),
        }
    )
    tensors = {prefix + key: tensor.contiguous() for key, tensor in model.state_dict().items()}
    save_file(tensors, tmp_path / "tiny.safetensors")
    images = np.random.default_rng(2).integers(0, 256, (3, side, side, 3), dtype=np.uint8)
    pixels = (images.astype(np.float64) / 255 - entry.preprocessing.mean) / entry.preprocessing.std
    with torch.inference_mode():
        theirs = model(torch.from_numpy(pixels.transpose(0, 3, 1, 2)).float()).numpy()
    return load_encoder(spec, tmp_path).encode(images), theirs


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * np.abs(theirs).max())
    assert np.abs(theirs[0] - theirs[1]).max() > 1e-3 * np.abs(theirs).max()


@pytest.mark.parametrize(("encoder_id", "patch"), [("clip-b16-proj", 16), ("chexzero", 32)])
def test_openai_towers_equal_open_clips(encoder_id, patch, tmp_path):
    sizes = {"image_size": SIDE, "patch_size": patch, "width": WIDTH, "layers": 2, "heads": 4, "mlp_ratio": 4.0}
    quick = open_clip.transformer.QuickGELU
    model = open_clip.transformer.VisionTransformer(**sizes, output_dim=PROJECTED, act_layer=quick)
    kwargs = {**VIT, "num_classes": PROJECTED}
    assert_close(*features_of_both(encoder_id, kwargs, PROJECTED, randomised(model), "visual.", tmp_path))


def test_biomedclip_equals_open_clips_timm_tower(tmp_path):
    model = open_clip.timm_model.TimmModel(
        "vit_tiny_patch16_224", PROJECTED, image_size=224, pool="", proj="linear", pretrained=False
    )
    kwargs = {"embed_dim": 192, "num_heads": 3, "num_classes": PROJECTED}
    assert_close(*features_of_both("biomedclip-proj", kwargs, PROJECTED, randomised(model), "visual.", tmp_path, 224))


@pytest.mark.parametrize(("encoder_id", "prefix"), [("resnet50-tv", ""), ("biovil", "encoder.encoder.")])
def test_resnets_equal_torchvisions(encoder_id, prefix, tmp_path):
    resnet = torchvision.models.resnet
    model = randomised(resnet.ResNet(resnet.Bottleneck, [1, 1, 1, 1], num_classes=3))
    model.fc = torch.nn.Identity()
    assert_close(*features_of_both(encoder_id, {"layers": (1, 1, 1, 1)}, 2048, model, prefix, tmp_path))


def test_the_openai_map_equals_timms_own_conversion():
    kwargs = {"img_size": 32, "embed_dim": WIDTH, "depth": 1, "num_heads": 4, "num_classes": 5}
    model = timm.create_model("vit_base_patch16_clip_quickgelu_224", pretrained=False, **kwargs)
    block = "visual.transformer.resblocks.0"
    shapes = {"visual.class_embedding": (4,), "visual.positional_embedding": (5, 4), "visual.proj": (4, 5)}
    names = ["visual.conv1.weight", "visual.ln_pre.weight", "visual.ln_pre.bias", "visual.ln_post.weight"]
    names += [f"{block}.{layer}" for layer in ("ln_1.weight", "ln_2.bias", "attn.in_proj_weight", "attn.in_proj_bias")]
    names += [f"{block}.{layer}" for layer in ("attn.out_proj.weight", "mlp.c_fc.bias", "mlp.c_proj.weight")]
    tensors = {name: torch.rand(shapes.get(name, (3, 2))) for name in (*shapes, *names)}
    ours, theirs = KEY_MAPS["openai_clip"].rename(tensors, model), _convert_openai_clip(tensors, model)
    assert ours.keys() == theirs.keys() == {*ours}
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
