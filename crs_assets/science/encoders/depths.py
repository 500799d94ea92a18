"""Depth sweep: which blocks the shares of an encoder lead to, and the features of all of them from one pass."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import local
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.encoders.frozen import FrozenEncoder
from crs_assets.science.encoders.spec import EncoderSpec, PoolType, Tap

Float32 = NDArray[np.float32]

PUBLISHED_SHARE = 1.0
"""Share of an encoder's own tap."""
EARLIER_POOL: PoolType = "gap"
"""Before the tap: mean over patch tokens, or over a CNN stage's positions, before any final norm."""


@dataclass(frozen=True)
class Depth:
    """A point along an encoder at which features are read.

    Attributes:
        share: Share of the blocks up to the encoder's own tap, in (0, 1]; 1 is that tap itself.
        block: Transformer block, or CNN stage, counted from 1.
        pool: How features are read there.
    """

    share: float
    block: int
    pool: PoolType


@runtime_checkable
class LayeredEncoder(Protocol):
    """An encoder whose network shows what it computes after each block."""

    spec: EncoderSpec

    def encode(self, batch: Any) -> Float32:
        """As for ``FrozenEncoder``."""
        ...

    def end_of(self, block: int) -> tuple[Any, int]:
        """The module whose output a block ends with, and the length of its features."""
        ...

    def mean(self, output: Any) -> Any:
        """The features (B, d) of a block's output."""
        ...


def sweep_depths(tap: Tap, shares: Sequence[float]) -> tuple[Depth, ...]:
    """Where an encoder is read in a sweep, shallowest first, its own tap last.

    A share of b blocks is block ``max(1, floor(share * b + 1/2))``. Of shares that lead to one block the smallest
    names it, and what would be the last block is the tap itself.

    Args:
        tap: The encoder's own tap; blocks behind it are no part of the encoder.
        shares: Shares of the blocks, in (0, 1].

    Returns:
        At least two depths, or none where there is nothing to compare.
    """
    end = tap.block or tap.blocks
    earlier: dict[int, float] = {}
    for share in sorted(shares):
        earlier.setdefault(max(1, int(share * end + 0.5)), share)
    depths = [Depth(share, block, EARLIER_POOL) for block, share in earlier.items() if block < end]
    return (*depths, Depth(PUBLISHED_SHARE, end, tap.pool)) if depths else ()


def why_no_depths(tap: Tap, shares: Sequence[float]) -> str | None:
    """Why an encoder has no depth sweep, or None where it has one."""
    if sweep_depths(tap, shares):
        return None
    end = tap.block or tap.blocks
    return f"an encoder of {end} block(s) has no depth before its own" if end else "an encoder without blocks"


class DepthEncoder:
    """An encoder whose feature vector holds those of every depth of a sweep, one behind the other, from one pass.

    The pass is that of ``encode``, so its own features keep their bits; what earlier blocks put out is averaged as it
    passes, so the same batch fits into memory.

    Attributes:
        depths: Where it is read, its own tap last.
        dims: Length of the features of each depth.
    """

    def __init__(self, encoder: LayeredEncoder, depths: Sequence[Depth]) -> None:
        self._encoder = encoder
        self._earlier = [depth.block for depth in depths[:-1]]
        self._seen = local()  # several threads encode with one network
        self.depths = tuple(depths)
        self.dims = (*(encoder.end_of(block)[1] for block in self._earlier), encoder.spec.tap.dim)

    def encode(self, batch: Any) -> Float32:
        """(B, S, S, 3) uint8 -> (B, sum of ``dims``) float32; the last part is what the encoder itself gives."""
        self._seen.means = {}
        try:
            own = self._encoder.encode(batch)
            earlier = [self._seen.means[block].float().cpu().numpy() for block in self._earlier]
        finally:
            del self._seen.means
        return np.concatenate([*earlier, own], axis=1)

    def split(self, features: Float32) -> list[Float32]:
        """Views of the features of each depth, (n, d) in the order of ``depths``."""
        return np.split(features, np.cumsum(self.dims)[:-1], axis=1)

    @contextmanager
    def watching(self) -> Iterator["DepthEncoder"]:
        """Listen to the network's blocks; entered before any thread encodes."""
        ends = [(block, self._encoder.end_of(block)[0]) for block in self._earlier]
        hooks = [end.register_forward_hook(partial(self._note, block)) for block, end in ends]
        try:
            yield self
        finally:
            for hook in hooks:
                hook.remove()

    def _note(self, block: int, _module: Any, _inputs: Any, output: Any) -> None:
        self._seen.means[block] = self._encoder.mean(output)


@contextmanager
def read_at_depths(encoder: FrozenEncoder, depths: Sequence[Depth]) -> Iterator[DepthEncoder]:
    """The encoder, read at every depth of a sweep.

    Args:
        encoder: Not used otherwise meanwhile.
        depths: From ``sweep_depths``.

    Raises:
        ValueError: If the encoder has no network that could be read elsewhere.
    """
    if not isinstance(encoder, LayeredEncoder):
        raise ValueError(f"{encoder.spec.id} is no network; it has no depths.")
    with DepthEncoder(encoder, depths).watching() as wrapped:
        yield wrapped
