"""What one image costs a network, counted on PyTorch's meta device: no weight is read and nothing is computed."""

import weakref
from dataclasses import dataclass
from typing import Any, Literal

import torch  # noqa: TID253  # part of the torch side: imported when a network is counted
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: TID253
from torch.utils._pytree import tree_leaves  # noqa: TID253
from torch.utils.flop_counter import FlopCounterMode  # noqa: TID253

from crs_assets.science.encoders.spec import EncoderSpec
from crs_assets.science.encoders.timm_encoder import weightless_encoder

NetworkKind = Literal["transformer", "cnn", "pixels"]
FLOAT32_BYTES = 4


@dataclass(frozen=True)
class NetworkCounts:
    """Costs of an encoder, from its architecture alone.

    Attributes:
        kind: A ``transformer`` and a ``cnn`` reach different shares of a device's peak; ``pixels`` is no network.
        flops: Floating-point operations for one image up to the tap, of convolutions, matrix products and attention; a
            multiply-add is two.
        parameter_bytes: The network's parameters in float32.
        activation_bytes: Largest sum of one image's tensors that are alive together, in float32. Scratch space that a
            library takes inside an operation is not in it.
        dim: Length of the features that the network gives.
    """

    kind: NetworkKind
    flops: int
    parameter_bytes: int
    activation_bytes: int
    dim: int


def count_network(spec: EncoderSpec) -> NetworkCounts:
    """Count one image's way through an encoder."""
    side = spec.preprocessing.input_size
    if spec.architecture.loader == "pixels":
        return NetworkCounts("pixels", 0, 0, side * side * 3 * FLOAT32_BYTES, side * side * 3)
    encoder = weightless_encoder(spec)
    with torch.inference_mode(), FlopCounterMode(display=False) as operations, LiveBytes() as memory:
        features = encoder.features(torch.empty(1, 3, side, side, device="meta"))
    return NetworkCounts(
        kind="transformer" if encoder.has_tokens else "cnn",
        flops=operations.get_total_flops(),
        parameter_bytes=sum(parameter.numel() for parameter in encoder.model.parameters()) * FLOAT32_BYTES,
        activation_bytes=memory.peak,
        dim=int(features.shape[1]),
    )


class LiveBytes(TorchDispatchMode):
    """Watches the results of operations while it is entered.

    Attributes:
        live: Bytes of the results that are still held.
        peak: The most there were.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, operation: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._hold(tensor.untyped_storage())
        self.peak = max(self.peak, self.live)
        return result

    def _hold(self, storage: Any) -> None:
        # A view shares its tensor's storage, which is counted once.
        if storage._cdata not in self._known:
            self._known.add(storage._cdata)
            self.live += storage.nbytes()
            weakref.finalize(storage, self._release, storage._cdata, storage.nbytes())

    def _release(self, identity: int, size: int) -> None:
        self._known.discard(identity)
        self.live -= size
