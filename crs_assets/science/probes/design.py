"""The rows of one sample set, seen in the eigenbasis of their own covariance.

With standardised, centred rows ``X`` (n, d) and ``X'X / n = V diag(e) V'``, the rotated rows are ``R = X V`` and a
probe's weights are ``w = V u``. A rotation changes neither logits nor norm, so the problem in ``u`` is the same
problem; but its Hessian is close to diagonal, and where n < d only the r <= n directions that the rows span are left:
at the optimum ``w`` is a combination of rows (set the gradient ``X'q + lambda w`` to 0), so nothing is lost. For n < d
the basis comes from the small side: ``X X' / n = U diag(e) U'`` gives ``V = X'U / sqrt(n e)`` and ``R = U sqrt(n e)``.

Centring by the sample set's own mean only moves the free intercept.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch  # noqa: TID253  # imported only when a probe is fitted
from numpy.typing import NDArray
from torch import Tensor  # noqa: TID253

from crs_assets.science.probes.standardisation import row_blocks
from crs_assets.science.validation import FloatArray, IntArray

_RESIDENT_CELLS = 20_000_000
"""Rotated rows up to this many cells are kept, in float64 and float32 (240 MB); above it rows are streamed."""
_CACHED_ROWS = 1024
"""Rows that are multiplied twice, once from each side, while they lie in the cache."""
_DOUBLE_CELLS = 1_000_000
"""Up to this many cells quasi-Newton steps cost little in float64 too."""

_RANK_TOLERANCE = 1e-13
"""Eigenvalues below this share of the largest, per row, are rounding: their direction carries nothing."""


@dataclass(frozen=True)
class FeatureRows:
    """Some rows of a feature matrix, centred and gathered a block at a time.

    Attributes:
        features: (N, d) as stored; may be memory-mapped.
        rows: (n,) row indices.
        centre: (d,) float32, subtracted from every row.
        device: Where blocks are put.
    """

    features: NDArray[np.floating]
    rows: IntArray
    centre: NDArray[np.float32]
    device: torch.device

    def blocks(self, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
        """Consecutive blocks: position within ``rows``, and the centred rows (m, d), valid until the next block."""
        parts = row_blocks(self.rows)
        shape = (len(parts[0]), self.features.shape[1])
        # Fresh memory for every block would cost as much as filling it.
        stored = np.empty(shape, self.features.dtype)
        centred = np.empty(shape, np.float64 if dtype == torch.float64 else np.float32)
        start = 0
        for rows in parts:
            here = slice(0, len(rows))
            np.take(self.features, rows, axis=0, out=stored[here], mode="clip")
            np.subtract(stored[here], self.centre, out=centred[here], dtype=centred.dtype)
            yield slice(start, start + len(rows)), torch.from_numpy(centred[here]).to(self.device)
            start += len(rows)


@dataclass(frozen=True)
class Design:
    """Rows in the rotated basis. Parameters are (r + 1, B, K): rotated weights, and last the intercept.

    Attributes:
        source: The rows as stored.
        eigenvalues: (r,) float64, variance of the rows along each direction.
        directions: (d, r) float64, from rotated weights to weights on the stored features.
        resident: (n, r) float64 rotated rows, or None where rows are streamed and rotation is applied to the weights.
    """

    source: FeatureRows
    eigenvalues: Tensor
    directions: Tensor
    resident: Tensor | None

    @property
    def rows(self) -> int:
        """Number of rows, n."""
        return len(self.source.rows)

    @property
    def rank(self) -> int:
        """Number of directions, r."""
        return len(self.eigenvalues)

    @property
    def working_dtype(self) -> torch.dtype:
        """Precision of quasi-Newton steps: float64 where there are few rows."""
        return torch.float64 if self.rows * self.rank <= _DOUBLE_CELLS else torch.float32

    def blocks(self, dtype: torch.dtype) -> Iterator[tuple[slice, Tensor]]:
        """Blocks of rows: rotated if resident, else as stored and centred."""
        if self.resident is None:
            yield from self.source.blocks(dtype)
        else:
            resident = self.resident if dtype == torch.float64 else self._resident32
            for start in range(0, self.rows, _CACHED_ROWS):
                rows = slice(start, min(start + _CACHED_ROWS, self.rows))
                yield rows, resident[rows]

    @cached_property
    def _resident32(self) -> Tensor:
        if self.resident is None:
            raise ValueError("these rows are streamed, not resident")
        return self.resident.to(torch.float32)

    def fold(self, parameters: Tensor) -> Tensor:
        """From rotated parameters (r + 1, ...) to those that act on what ``blocks`` yields."""
        if self.resident is not None:
            return parameters
        directions = self.directions.to(parameters.dtype)
        weights = directions @ parameters[:-1].reshape(self.rank, -1)
        return torch.cat([weights, parameters[-1].reshape(1, -1)]).reshape(-1, *parameters.shape[1:])

    def unfold(self, gradient: Tensor) -> Tensor:
        """From a gradient by the parameters of ``fold`` to the gradient by the rotated ones."""
        if self.resident is not None:
            return gradient
        directions = self.directions.to(gradient.dtype)
        rotated = directions.T @ gradient[:-1].reshape(len(directions), -1)
        return torch.cat([rotated, gradient[-1].reshape(1, -1)]).reshape(-1, *gradient.shape[1:])

    @property
    def width(self) -> int:
        """Columns of what ``blocks`` yields."""
        return self.rank if self.resident is not None else len(self.directions)

    def unfold_weights(self, product: Tensor) -> Tensor:
        """From a product of transposed blocks (width, columns) to rotated coordinates (r, columns)."""
        return product if self.resident is not None else self.directions.T @ product

    def unfold_both(self, systems: Tensor) -> Tensor:
        """From products (columns, width, width) of blocks with themselves to (columns, r, r)."""
        return systems if self.resident is not None else self.directions.T @ systems @ self.directions

    def stored_weights(self, parameters: Tensor) -> tuple[NDArray[np.float32], FloatArray]:
        """Weights (B, K, d) float32 and intercepts (B, K) float64 on the features as stored.

        The intercept is taken from the weights after their rounding, so the rounding of a weight is not multiplied by
        the feature's mean.
        """
        solution = parameters.to(torch.float64)
        weights = torch.einsum("dr,rbk->bkd", self.directions, solution[:-1]).to(torch.float32).cpu().numpy()
        shift = weights.astype(np.float64) @ self.source.centre.astype(np.float64)
        return weights, solution[-1].cpu().numpy() - shift


def build_design(features: NDArray[np.floating], rows: IntArray, scale: FloatArray, device: torch.device) -> Design:
    """Centre and rotate the rows of a sample set.

    Args:
        features: (N, d) as stored, finite.
        rows: (n,) row indices.
        scale: (d,) float64 divisors of the features; ``inf`` sets a feature to 0.
        device: Where to compute.
    """
    source = FeatureRows(features, rows, _mean(features, rows), device)
    inverse_scale = torch.from_numpy(1.0 / scale).to(device)
    if len(rows) < features.shape[1]:
        return _from_rows(source, inverse_scale)
    return _from_features(source, inverse_scale)


def _mean(features: NDArray[np.floating], rows: IntArray) -> NDArray[np.float32]:
    total: FloatArray = np.zeros(features.shape[1])
    for block in row_blocks(rows):
        total += features[block].sum(axis=0, dtype=np.float64)
    return (total / len(rows)).astype(np.float32)


def _from_rows(source: FeatureRows, inverse_scale: Tensor) -> Design:
    """Basis from the (n, n) products of rows with rows: exact, and cheap where there are fewer rows than features."""
    standardised = torch.cat([block * inverse_scale for _, block in source.blocks(torch.float64)])
    n = len(standardised)
    eigenvalues, vectors = torch.linalg.eigh(standardised @ standardised.T / n)
    kept = eigenvalues > _RANK_TOLERANCE * n * eigenvalues[-1].clamp(min=torch.finfo(torch.float64).tiny)
    eigenvalues, vectors = eigenvalues[kept], vectors[:, kept]
    lengths = (eigenvalues * n).sqrt()
    directions = standardised.T @ (vectors / lengths) * inverse_scale[:, None]
    return Design(source, eigenvalues, directions, vectors * lengths)


def _from_features(source: FeatureRows, inverse_scale: Tensor) -> Design:
    """Basis from the (d, d) covariance, summed over blocks in float64."""
    n, d = len(source.rows), len(inverse_scale)
    is_resident = n * d <= _RESIDENT_CELLS
    dtype = torch.float64 if is_resident else torch.float32
    covariance = torch.zeros(d, d, dtype=torch.float64, device=source.device)
    for _, block in source.blocks(dtype):
        standardised = block * inverse_scale.to(dtype)
        covariance += standardised.T @ standardised
    eigenvalues, vectors = torch.linalg.eigh(covariance / n)
    directions = vectors * inverse_scale[:, None]
    resident = torch.cat([block @ directions for _, block in source.blocks(dtype)]) if is_resident else None
    return Design(source, eigenvalues.clamp(min=0), directions, resident)
