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


_DINOV2_NAMES = (
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^layernorm\.", "norm."),
    (r"^encoder\.layer\.", "blocks."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
)
_DINOV2_QKV = re.compile(r"^encoder\.layer\.(\d+)\.attention\.attention\.(query|key|value)\.(weight|bias)$")
_ONNX_POSITION = re.compile(r"^onnx::(Concat|Reshape)_\d+$")


def onnx_dinov2(tensors: Tensors, model: nn.Module) -> Tensors:
    """A DINOv2 backbone inside an ONNX graph exported from Hugging Face's classes -> timm ``*_dinov2``.

    The export folded the position embedding into two constants, recognised by their shapes: one token, and a square
    grid of them, each as wide as the class token.
    """
    import torch

    named = {key.removeprefix("backbone."): tensor for key, tensor in tensors.items() if key.startswith("backbone.")}
    renamed: Tensors = {}
    for key, tensor in named.items():
        if not _DINOV2_QKV.match(key) and not key.endswith("mask_token"):
            renamed[_substitute(key, _DINOV2_NAMES)] = tensor
    renamed.update(_joined_qkv(named))
    grids = [tensor for key, tensor in tensors.items() if _ONNX_POSITION.match(key) and _is_grid(tensor, model)]
    if sorted(grid.shape[1] for grid in grids)[:1] == [1] and len(grids) == 2:  # else the strict load names pos_embed
        renamed["pos_embed"] = torch.cat(sorted(grids, key=lambda grid: grid.shape[1]), dim=1)
    return renamed


def _is_grid(tensor: Tensor, model: nn.Module) -> bool:
    width: Any = model.embed_dim
    shape = tuple(tensor.shape)
    return len(shape) == 3 and shape[0] == 1 and shape[2] == width and math.isqrt(shape[1]) ** 2 == shape[1]


def _substitute(key: str, patterns: tuple[tuple[str, str], ...]) -> str:
    for pattern, replacement in patterns:
        key = re.sub(pattern, replacement, key)
    return key


def _joined_qkv(tensors: Mapping[str, Tensor]) -> Tensors:
    import torch

    parts: dict[str, Tensors] = {}
    for key, tensor in tensors.items():
        match = _DINOV2_QKV.match(key)
        if match:
            block, role, kind = match.groups()
            parts.setdefault(f"blocks.{block}.attn.qkv.{kind}", {})[role] = tensor
    roles = ("query", "key", "value")
    return {key: torch.cat([part[r] for r in roles]) for key, part in parts.items() if len(part) == len(roles)}


KEY_MAPS: dict[str, KeyMap] = {
    "none": KeyMap(),
    "efficientnet_lite": KeyMap(efficientnet_lite),
    "onnx_dinov2": KeyMap(onnx_dinov2, lambda key: key.startswith("backbone.") or bool(_ONNX_POSITION.match(key))),
}
