"""From the tensor names of a published file to those of a timm network: one function per kind of file.

A map gets the tensors that its ``keep`` let through and the network they are meant for, and returns every tensor under
the network's own name. What it leaves unnamed, or names wrongly, the strict load refuses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    Tensors = dict[str, Tensor]

Patterns = tuple[tuple[str, str], ...]


def keep_all(key: str) -> bool:  # noqa: ARG001
    """Want every tensor of the file."""
    return True


def same_names(tensors: Tensors, model: nn.Module) -> Tensors:  # noqa: ARG001
    """Keep the names: the file uses timm's."""
    return dict(tensors)


@dataclass(frozen=True)
class KeyMap:
    """How the names of one kind of file are read.

    Attributes:
        rename: ``(tensors, model) -> tensors`` under the model's names.
        keep: Which names of the file are wanted at all; shards without one are never opened.
    """

    rename: Callable[[Tensors, nn.Module], Tensors] = same_names
    keep: Callable[[str], bool] = keep_all


_LITE_TOP = {"_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier"}
_LITE_SEPARABLE = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}
_LITE_INVERTED = {
    "_expand_conv": "conv_pw",
    "_bn0": "bn1",
    "_depthwise_conv": "conv_dw",
    "_bn1": "bn2",
    "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}


def efficientnet_lite(tensors: Tensors, model: nn.Module) -> Tensors:
    """``efficientnet_lite_pytorch`` names -> timm ``tf_efficientnet_lite*``.

    The TensorFlow-flavoured networks are meant: the plain ``efficientnet_lite*`` take the same tensors without an
    error, but pad and normalise otherwise.
    """
    stages: Any = model.blocks
    places = [(stage, block) for stage, blocks in enumerate(stages) for block in range(len(blocks))]
    renamed = {}
    for key, tensor in tensors.items():
        head, _, tail = key.partition(".")
        if head != "_blocks":
            renamed[f"{_LITE_TOP.get(head, head)}.{tail}"] = tensor
            continue
        number, layer, tail = tail.split(".", 2)
        names = _LITE_INVERTED if f"_blocks.{number}._expand_conv.weight" in tensors else _LITE_SEPARABLE
        stage, block = places[int(number)]
        renamed[f"blocks.{stage}.{block}.{names.get(layer, layer)}.{tail}"] = tensor
    return renamed


# Where a vision tower may stand in a larger file, and the modules it consists of. A text model's layers never match:
# they lie under a prefix that is not among these.
_HF_TOWER = re.compile(
    r"^(?:vit\.|dinov2\.|(?:(?:model\.)?vision_tower\.(?:vision_tower\.)?)?(?:vision_model\.)?)"
    r"(?=(?:embeddings|encoder|layers|layernorm|pre_layrnorm|post_layernorm|head)\.)"
)
_HF_UNUSED = ("mask_token", "position_ids")
_HF_NAMES: Patterns = (
    (r"^embeddings\.(?:class_embedding|cls_token)$", "cls_token"),
    (r"^embeddings\.(?:position_embedding\.weight|position_embeddings)$", "pos_embed"),
    (r"^embeddings\.patch_embeddings?\.(?:projection\.)?", "patch_embed.proj."),
    (r"^pre_layrnorm\.", "norm_pre."),
    (r"^(?:post_)?layernorm\.", "norm."),
    (r"^head\.probe$", "attn_pool.latent"),
    (r"^head\.attention\.out_proj\.", "attn_pool.proj."),
    (r"^head\.layernorm\.", "attn_pool.norm."),
    (r"^head\.mlp\.", "attn_pool.mlp."),
    (r"^(?:encoder\.)?layers?\.(\d+)\.", r"blocks.\1."),
    (r"\.(?:layer_norm1|layernorm_before)\.", ".norm1."),
    (r"\.(?:layer_norm2|layernorm_after)\.", ".norm2."),
    (r"\.(?:self_attn\.out_proj|attention\.output\.dense|attention\.o_proj)\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
)
_HF_QKV = re.compile(
    r"^blocks\.(\d+)\.(?:self_attn|attention(?:\.attention)?)\.(query|key|value|[qkv]_proj)\.(weight|bias)$"
)
_HF_POOL = "head.attention.in_proj_"


def is_vision_tower(key: str) -> bool:
    """Whether a Hugging Face file's tensor belongs to its vision transformer, and is used when it runs unmasked."""
    return _HF_TOWER.match(key) is not None and not key.endswith(_HF_UNUSED)


def hf_vit(tensors: Tensors, model: nn.Module) -> Tensors:  # noqa: ARG001
    """Hugging Face's ViT, CLIP, SigLIP and DINOv2 towers -> timm's vision transformers.

    Names of transformers 4 and 5, alone or inside a vision-language model (``model.vision_tower.vision_tower.`` in
    LLaVA, ``vision_tower.vision_model.`` in Gemma). Separate query, key and value layers are joined.
    """
    return _hf_names({_HF_TOWER.sub("", key): tensor for key, tensor in tensors.items() if is_vision_tower(key)})


def _hf_names(tensors: Mapping[str, Tensor]) -> Tensors:
    import torch

    renamed: Tensors = {}
    for key, tensor in tensors.items():
        if key.startswith(_HF_POOL):
            kind = key.removeprefix(_HF_POOL)
            query, keys, values = tensor.chunk(3)
            renamed |= {f"attn_pool.q.{kind}": query, f"attn_pool.kv.{kind}": torch.cat([keys, values])}
        else:
            name = _substitute(key, _HF_NAMES)
            renamed[name] = tensor.reshape(1, -1, tensor.shape[-1]) if name in ("cls_token", "pos_embed") else tensor
    return _joined_qkv(renamed)


def _joined_qkv(tensors: Mapping[str, Tensor]) -> Tensors:
    import torch

    joined: Tensors = {}
    parts: dict[str, Tensors] = {}
    for key, tensor in tensors.items():
        match = _HF_QKV.match(key)
        if match:
            block, role, kind = match.groups()
            parts.setdefault(f"blocks.{block}.attn.qkv.{kind}", {})[role[0]] = tensor
        else:
            joined[key] = tensor
    whole = {key: torch.cat([part[role] for role in "qkv"]) for key, part in parts.items() if len(part) == len("qkv")}
    return joined | whole


def _substitute(key: str, patterns: Patterns) -> str:
    for pattern, replacement in patterns:
        key = re.sub(pattern, replacement, key)
    return key


_ONNX_POSITION = re.compile(r"^onnx::(Concat|Reshape)_\d+$")


def onnx_dinov2(tensors: Tensors, model: nn.Module) -> Tensors:
    """A DINOv2 backbone inside an ONNX graph exported from Hugging Face's classes -> timm ``*_dinov2``.

    The export folded the position embedding into two constants, recognised by their shapes: one token, and a square
    grid of them, each as wide as the class token.
    """
    import torch

    named = {key.removeprefix("backbone."): tensor for key, tensor in tensors.items() if key.startswith("backbone.")}
    renamed = _hf_names({key: tensor for key, tensor in named.items() if not key.endswith(_HF_UNUSED)})
    grids = [tensor for key, tensor in tensors.items() if _ONNX_POSITION.match(key) and _is_grid(tensor, model)]
    if sorted(grid.shape[1] for grid in grids)[:1] == [1] and len(grids) == 2:  # else the strict load names pos_embed
        renamed["pos_embed"] = torch.cat(sorted(grids, key=lambda grid: grid.shape[1]), dim=1)
    return renamed


def _is_grid(tensor: Tensor, model: nn.Module) -> bool:
    width: Any = model.embed_dim
    shape = tuple(tensor.shape)
    return len(shape) == 3 and shape[0] == 1 and shape[2] == width and math.isqrt(shape[1]) ** 2 == shape[1]


def is_mae_encoder(key: str) -> bool:
    """Whether a tensor of a masked autoencoder's file is the encoder's; it uses timm's names."""
    return not key.startswith(("decoder", "mask_token"))


_DINOV2_HEADS = ("mask_token", "dino_head.", "ibot_head.")
_DINOV2_CHUNK = re.compile(r"^blocks\.\d+\.(\d+)\.")


def dinov2(tensors: Tensors, model: nn.Module) -> Tensors:  # noqa: ARG001
    """DINOv2's own names, or a training run's ``backbone.`` -> timm ``*_dinov2`` without registers.

    Training in chunks writes ``blocks.<chunk>.<block>.``, where the blocks count through all chunks. A network with
    registers is refused by the strict load: timm keeps their class token and positions otherwise.
    """
    prefix = "backbone." if any(key.startswith("backbone.") for key in tensors) else ""
    own = {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}
    kept = {key: tensor for key, tensor in own.items() if not key.startswith(_DINOV2_HEADS)}
    return {_DINOV2_CHUNK.sub(r"blocks.\1.", key): tensor for key, tensor in kept.items()}


_CAE_OTHERS = ("mask_token", "decoder", "regressor", "teacher", "rel_pos_bias.", "head.", "fc_norm.")
_CAE_BIAS = re.compile(r"^(.*\.attn)\.([qv])_bias$")
_SINE_BASE = 10_000.0


def panderm(tensors: Tensors, model: nn.Module) -> Tensors:
    """PanDerm's names (CAE v2; the large network's under ``encoder.``, the base network's bare) -> timm ViT.

    Keys have no bias there, so a zero one is joined between those of queries and values. The position embedding is a
    constant that a file may leave out; it is then computed.
    """
    import torch

    encoder = {k.removeprefix("encoder."): t for k, t in tensors.items() if k.startswith("encoder.")} or tensors
    own = {key: tensor for key, tensor in encoder.items() if not key.startswith(_CAE_OTHERS)}
    renamed = {re.sub(r"\.gamma_([12])$", r".ls\1.gamma", k): t for k, t in own.items() if not _CAE_BIAS.match(k)}
    biases = {match.groups(): tensor for key, tensor in own.items() if (match := _CAE_BIAS.match(key))}
    for (attention, role), query in biases.items():
        value = biases.get((attention, "v"))
        if role == "q" and value is not None:
            renamed[f"{attention}.qkv.bias"] = torch.cat([query, torch.zeros_like(query), value])
    if "pos_embed" not in renamed:
        renamed["pos_embed"] = sine_positions(model)
    return renamed


def sine_positions(model: nn.Module) -> Tensor:
    """The fixed 2-D sine and cosine position embedding of MoCo v3 and CAE: (1, 1 + side * side, d).

    The class token's is zero. The patch at (i, j) has (sin i w, cos i w, sin j w, cos j w), each for the d / 4
    frequencies w = 10000^(-4 m / d), m = 0..d / 4 - 1.

    Source: Chen, Xie and He, An Empirical Study of Training Self-Supervised Vision Transformers, ICCV 2021.
    """
    import torch

    network: Any = model
    side, quarter = network.patch_embed.grid_size[0], network.embed_dim // 4
    frequencies = _SINE_BASE ** -(torch.arange(quarter, device="cpu", dtype=torch.float32) / quarter)
    steps = torch.arange(side, device="cpu", dtype=torch.float32)
    angles = [place.flatten()[:, None] * frequencies for place in torch.meshgrid(steps, steps, indexing="ij")]
    patches = torch.cat([part for angle in angles for part in (angle.sin(), angle.cos())], dim=1)
    return torch.cat([torch.zeros(1, patches.shape[1]), patches])[None]


_CLIP_NAMES: Patterns = (
    (r"^class_embedding$", "cls_token"),
    (r"^positional_embedding$", "pos_embed"),
    (r"^conv1\.", "patch_embed.proj."),
    (r"^ln_pre\.", "norm_pre."),
    (r"^ln_post\.", "norm."),
    (r"^transformer\.resblocks\.", "blocks."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.attn\.in_proj_", ".attn.qkv."),
    (r"\.attn\.out_proj\.", ".attn.proj."),
    (r"\.mlp\.c_fc\.", ".mlp.fc1."),
    (r"\.mlp\.c_proj\.", ".mlp.fc2."),
)


def openai_clip(tensors: Tensors, model: nn.Module) -> Tensors:
    """OpenAI CLIP's image tower -> timm ``*_clip_*``; the projection fills the head, where the network has one."""
    visual = {key.removeprefix("visual."): tensor for key, tensor in tensors.items() if key.startswith("visual.")}
    projection = visual.pop("proj", None)
    renamed = {}
    for key, tensor in visual.items():
        name = _substitute(key, _CLIP_NAMES)
        renamed[name] = tensor.reshape(1, -1, tensor.shape[-1]) if name in ("cls_token", "pos_embed") else tensor
    return renamed | _projection(None if projection is None else projection.T, model)


def biomedclip(tensors: Tensors, model: nn.Module) -> Tensors:
    """open_clip's timm tower (``visual.trunk.``) -> timm; its linear projection fills the head, where there is one."""
    trunk = {key.removeprefix("visual.trunk."): t for key, t in tensors.items() if key.startswith("visual.trunk.")}
    return trunk | _projection(tensors.get("visual.head.proj.weight"), model)


def _projection(weight: Tensor | None, model: nn.Module) -> Tensors:
    import torch

    head: Any = model.head
    if weight is None or not isinstance(head, torch.nn.Linear):
        return {}
    # The published projections are plain matrices; timm's heads add a bias.
    return {"head.weight": weight.contiguous(), "head.bias": torch.zeros(weight.shape[0], dtype=weight.dtype)}


def biovil(tensors: Tensors, model: nn.Module) -> Tensors:  # noqa: ARG001
    """hi-ml-multimodal's image model -> the ResNet-50 in it, by torchvision's names, which are timm's."""
    return {key.removeprefix("encoder.encoder."): tensor for key, tensor in tensors.items()}


KEY_MAPS: dict[str, KeyMap] = {
    "none": KeyMap(),
    "efficientnet_lite": KeyMap(efficientnet_lite),
    "onnx_dinov2": KeyMap(onnx_dinov2, lambda key: key.startswith("backbone.") or bool(_ONNX_POSITION.match(key))),
    "hf_vit": KeyMap(hf_vit, is_vision_tower),
    "mae": KeyMap(same_names, is_mae_encoder),
    "dinov2": KeyMap(dinov2),
    "panderm": KeyMap(panderm),
    "openai_clip": KeyMap(openai_clip, lambda key: key.startswith("visual.")),
    "biomedclip": KeyMap(biomedclip, lambda key: key.startswith("visual.")),
    "biovil": KeyMap(biovil, lambda key: key.startswith("encoder.encoder.")),
}
