"""timm networks as frozen encoders: strict loading, seeded twins, taps at any block."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch  # noqa: TID253  # this module is the torch part: load_encoder imports it when a network is asked for
from numpy.typing import NDArray
from torch import Tensor, nn  # noqa: TID253
from torch.nn import functional  # noqa: TID253

from crs_assets.science.encoders.errors import EncoderMemoryError, WeightsError
from crs_assets.science.encoders.folding import folded
from crs_assets.science.encoders.frozen import Precision, check_batch
from crs_assets.science.encoders.key_maps import KEY_MAPS
from crs_assets.science.encoders.spec import EncoderSpec
from crs_assets.science.encoders.weights import locate, read_tensors, verify

GAP_LN_EPSILON = 1e-6  # RETFound: torch.nn.LayerNorm(eps=1e-6) of the MAE code base
NAMED_KEYS = 5


def load_timm_encoder(spec: EncoderSpec, mirror: Path | None, device: str, *, fold: bool = True) -> "TimmEncoder":
    """Build the network and fill it; see ``frozen.load_encoder``.

    ``fold=False`` leaves batch norms as they are published, for comparison to the bit with other code.

    Raises:
        WeightsError: If weights are missing, changed, or do not fill the network exactly.
        ValueError: If the network is not what the catalogue says.
    """
    model = _untrained(spec, spec.untrained_seed) if spec.untrained_seed is not None else _pretrained(spec, mirror)
    _check_facts(model, spec)
    if fold and not _has_tokens(model):
        model = folded(model.eval(), spec.preprocessing.input_size)
    return TimmEncoder(spec, model, device)


def weightless_encoder(spec: EncoderSpec) -> "TimmEncoder":
    """The network on PyTorch's meta device: shapes and operations without a byte of weights, for counting.

    Raises:
        ValueError: If the network is not what the catalogue says.
    """
    with torch.device("meta"):
        model = _create(spec)
    _check_facts(model, spec)
    return TimmEncoder(spec, model, device="meta")


class TimmEncoder:
    """A timm network in evaluation mode whose parameters never change.

    On a CPU in float32, another batch size moves a feature by less than 1e-5 of the largest one: other matrix shapes
    take other summation orders. The same batch gives the same bits.

    Attributes:
        spec: What the encoder is.
        model: The network; CNNs in channels-last layout.
        device: Where it runs.
        precision: ``float32``, or ``bfloat16`` under autocast.
    """

    def __init__(
        self, spec: EncoderSpec, model: nn.Module, device: str = "cpu", precision: Precision = "float32"
    ) -> None:
        self.spec = spec
        self.device = torch.device(device)
        if self.device.type == "cuda":
            _repeatable_cuda()
        self.precision = precision
        self.model = model.eval().requires_grad_(False).to(self.device)
        if not _has_tokens(model):
            self.model.to(memory_format=torch.channels_last)
        shape = (1, 3, 1, 1)
        self._mean = torch.tensor(spec.preprocessing.mean, device=self.device).view(shape)
        self._std = torch.tensor(spec.preprocessing.std, device=self.device).view(shape)

    def in_precision(self, precision: Precision) -> "TimmEncoder":
        """The same network under another precision; its weights are shared, not copied."""
        if precision == self.precision:
            return self
        return TimmEncoder(self.spec, self.model, str(self.device), precision)

    def encode(self, batch: Any) -> NDArray[np.float32]:
        """Features at the encoder's own tap: (B, S, S, 3) uint8 -> (B, d) float32.

        Raises:
            ValueError: If the batch has another dtype or shape.
            EncoderMemoryError: If the device has too little memory for the batch.
        """
        (features,) = self._run(batch, None)
        if features.shape[1] != self.spec.tap.dim:
            raise ValueError(f"{self.spec.id}: tap.dim is {self.spec.tap.dim}, the network gives {features.shape[1]}.")
        return features

    def encode_depths(self, batch: Any, blocks: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """Features after several blocks in one pass: the mean over patch tokens, or over a CNN stage's positions.

        Args:
            batch: As for ``encode``.
            blocks: Blocks (or stages), counted from 1, ascending; nothing after the last of them is computed.

        Returns:
            Block -> (B, d) float32, before any final norm; d differs between the stages of a CNN.
        """
        if list(blocks) != sorted(set(blocks)) or not blocks or blocks[0] < 1 or blocks[-1] > self.spec.tap.blocks:
            raise ValueError(f"{self.spec.id}: blocks rise within 1..{self.spec.tap.blocks}, got {list(blocks)}.")
        return dict(zip(blocks, self._run(batch, blocks), strict=True))

    def end_of(self, block: int) -> tuple[nn.Module, int]:
        """The module whose output a block (or stage), counted from 1, ends with, and the length of its features."""
        stages: Any = self.model.feature_info
        stage = stages[self._index(block)]
        return self.model.get_submodule(stage["module"]), stage["num_chs"]

    def mean(self, output: Tensor) -> Tensor:
        """Mean over the patch tokens (B, N, d) of a block, or over the positions of a stage's maps (B, d, H, W)."""
        return output[:, self.spec.tap.prefix_tokens :].mean(1) if self.has_tokens else output.mean((2, 3))

    def _run(self, batch: Any, blocks: Sequence[int] | None) -> list[NDArray[np.float32]]:
        pixels = check_batch(np.asarray(batch), self.spec)
        kind, mixed = self.device.type, self.precision == "bfloat16"
        try:
            with torch.inference_mode(), torch.autocast(kind, dtype=torch.bfloat16, enabled=mixed):
                images = self._normalised(pixels)
                outputs = self._pooled_blocks(images, blocks) if blocks else [self.features(images)]
                return [output.float().cpu().numpy() for output in outputs]
        except torch.OutOfMemoryError as error:
            raise EncoderMemoryError(len(pixels), type(error).__name__) from error
        except RuntimeError as error:
            if "can't allocate memory" not in str(error):  # the CPU allocator has no exception class of its own
                raise
            raise EncoderMemoryError(len(pixels), "CPU allocator") from error

    def _normalised(self, pixels: NDArray[np.uint8]) -> Tensor:
        # The order of operations of torchvision's ToTensor and Normalize, so that the bits are theirs.
        images = torch.from_numpy(np.ascontiguousarray(pixels))
        if self.device.type == "cuda":
            # Only from locked pages can the copy run while this thread goes on.
            images = images.pin_memory()
        images = images.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
        return images.to(torch.float32).div_(255).sub_(self._mean).div_(self._std)

    @property
    def has_tokens(self) -> bool:
        """Whether the network is a transformer, else it is a CNN."""
        return _has_tokens(self.model)

    def features(self, images: Tensor) -> Tensor:
        """Features (B, d) of normalised images (B, 3, S, S), both on the network's own device."""
        tap = self.spec.tap
        if tap.block is not None or tap.pool == "gap_ln":
            (tokens,) = self._intermediates(images, [tap.block or tap.blocks])
            return self._pool(tokens)
        output = self.model.forward_features(images)  # type: ignore[operator]
        if tap.pool == "proj":
            return self._head(output)
        if tap.pool in ("map", "pooler") or not _has_tokens(self.model):
            return self._head(output, pre_logits=True)
        return self._pool(output)

    def _head(self, output: Tensor, **options: bool) -> Tensor:
        features: Tensor = self.model.forward_head(output, **options)  # type: ignore[operator]
        return features

    def _pool(self, output: Tensor) -> Tensor:
        tap = self.spec.tap
        if not _has_tokens(self.model):
            return output.mean((2, 3))
        if tap.pool == "cls":
            return output[:, 0]
        mean = output[:, tap.prefix_tokens :].mean(1)
        return functional.layer_norm(mean, mean.shape[1:], eps=GAP_LN_EPSILON) if tap.pool == "gap_ln" else mean

    def _pooled_blocks(self, images: Tensor, blocks: Sequence[int]) -> list[Tensor]:
        return [self.mean(output) for output in self._intermediates(images, blocks)]

    def _intermediates(self, images: Tensor, blocks: Sequence[int]) -> list[Tensor]:
        """Outputs after the blocks: tokens (B, N, d) with the prefix first, or maps (B, d, H, W)."""
        indices = [self._index(block) for block in blocks]
        options = {"indices": indices, "norm": False, "stop_early": True, "intermediates_only": True}
        run: Any = self.model.forward_intermediates
        if not self.has_tokens:
            return list(run(images, **options))
        outputs = run(images, output_fmt="NLC", return_prefix_tokens=True, **options)
        return [torch.cat([item[1], item[0]], dim=1) if isinstance(item, tuple) else item for item in outputs]

    def _index(self, block: int) -> int:
        """Position of a block or stage, as timm counts them."""
        if self.has_tokens:
            return block - 1
        if not self.spec.tap.stages:
            raise ValueError(f"{self.spec.id}: a CNN is read after stages; name them in tap.stages.")
        return _stage_names(self.model).index(self.spec.tap.stages[block - 1])


def _has_tokens(model: nn.Module) -> bool:
    return hasattr(model, "num_prefix_tokens")


def _stage_names(model: nn.Module) -> list[str]:
    information: Any = model.feature_info
    return [item["module"] for item in information]


def _repeatable_cuda() -> None:
    """Convolutions in true float32 (torch's default rounds factors to 10 bits), by the same algorithm each time."""
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def _create(spec: EncoderSpec) -> nn.Module:
    import timm

    model: nn.Module = timm.create_model(
        spec.architecture.arch, pretrained=False, **{"num_classes": 0, **spec.architecture.kwargs}
    )
    return model


def _untrained(spec: EncoderSpec, seed: int) -> nn.Module:
    # Only the CPU generator is used, and handed back as found: torch.manual_seed would also reseed every accelerator.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(seed)
        return _create(spec)


def _pretrained(spec: EncoderSpec, mirror: Path | None) -> nn.Module:
    paths = locate(spec, mirror)
    verify(paths, spec)
    key_map = KEY_MAPS[spec.architecture.key_map]
    # No random initial values are drawn, and a tensor that the file does not fill stays visible as such.
    with torch.device("meta"):
        model = _create(spec)
    tensors = key_map.rename(read_tensors(paths[0], key_map.keep, spec.weights.format), model)
    tensors = _resampled_positions(_without_classifier(tensors, model), model, spec)
    tensors = {**_batch_counters(model), **tensors}
    _fill(model, {key: _as_float32(tensor) for key, tensor in tensors.items()}, spec)
    return model


def _as_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


def _batch_counters(model: nn.Module) -> dict[str, Tensor]:
    # Files from before PyTorch 0.4.1 lack them; inference never reads them.
    counters = [key for key in model.state_dict() if key.endswith(".num_batches_tracked")]
    return {key: torch.zeros((), dtype=torch.long, device="cpu") for key in counters}


def _without_classifier(tensors: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    configured = getattr(model, "pretrained_cfg", {}).get("classifier") or ()
    heads = (configured,) if isinstance(configured, str) else tuple(configured)
    wanted = model.state_dict().keys()
    prefixes = tuple(f"{head}." for head in heads)
    return {key: tensor for key, tensor in tensors.items() if key in wanted or not key.startswith(prefixes or ("\0",))}


def _resampled_positions(tensors: dict[str, Tensor], model: nn.Module, spec: EncoderSpec) -> dict[str, Tensor]:
    positions, wanted = tensors.get("pos_embed"), getattr(model, "pos_embed", None)
    if positions is None or wanted is None or positions.shape == wanted.shape or positions.ndim != 3:
        return tensors
    from timm.layers import resample_abs_pos_embed

    patch_embed: Any = model.patch_embed
    resampled = resample_abs_pos_embed(
        positions.float(),
        new_size=list(patch_embed.grid_size),
        num_prefix_tokens=0 if getattr(model, "no_embed_class", False) else int(getattr(model, "num_prefix_tokens", 0)),
        interpolation="bicubic",
        antialias=spec.architecture.position_resampling == "bicubic-antialias",
        verbose=False,
    )
    return {**tensors, "pos_embed": resampled}


def _fill(model: nn.Module, tensors: dict[str, Tensor], spec: EncoderSpec) -> None:
    expected = model.state_dict()
    shapes = [
        f"{key} {tuple(tensor.shape)} for {tuple(expected[key].shape)}"
        for key, tensor in tensors.items()
        if key in expected and tensor.shape != expected[key].shape
    ]
    problems = {
        "missing": [key for key in expected if key not in tensors],
        "unexpected": [key for key in tensors if key not in expected],
        "of another shape": shapes,
    }
    if not any(problems.values()):
        model.load_state_dict(tensors, strict=True, assign=True)
        named = [*model.named_parameters(), *model.named_buffers()]
        problems = {"never filled": [name for name, tensor in named if tensor.is_meta]}
    lines = [f"  {len(keys)} {what}: {', '.join(keys[:NAMED_KEYS])}" for what, keys in problems.items() if keys]
    if lines:
        cure = f"Check architecture.arch ({spec.architecture.arch}) and key_map ({spec.architecture.key_map})."
        raise WeightsError("\n".join([f"{spec.id}: the weights do not fill the network:", *lines, cure]))


def _check_facts(model: nn.Module, spec: EncoderSpec) -> None:
    tap, seen = spec.tap, sum(parameter.numel() for parameter in model.parameters())
    facts: list[tuple[str, Any, Any]] = []
    if spec.parameters is not None:
        facts.append(("parameters", spec.parameters, seen))
    if _has_tokens(model):
        blocks: Any = model.blocks
        patch_embed: Any = model.patch_embed
        facts.append(("tap.blocks", tap.blocks, len(blocks)))
        facts.append(("tap.prefix_tokens", tap.prefix_tokens, model.num_prefix_tokens))
        if patch_embed.img_size is not None:
            side = spec.preprocessing.input_size
            facts.append(("preprocessing.input_size", (side, side), tuple(patch_embed.img_size)))
    else:
        facts.append(("tap.stages", [s for s in tap.stages if s in _stage_names(model)], list(tap.stages)))
    wrong = [f"{name} is {stated}, the network's {found}" for name, stated, found in facts if stated != found]
    if wrong:
        raise ValueError(f"{spec.id}: the catalogue and the network disagree: {'; '.join(wrong)}.")
