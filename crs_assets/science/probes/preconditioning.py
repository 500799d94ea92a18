"""Approximate inverse Hessians of a linear probe in the eigenbasis of its rows.

At zero weights every row has the same second derivative ``A`` (K, K) by its logits, so with ``R'R / n = diag(e)`` the
Hessian is the Kronecker product of diag(e) and A, plus lambda. With A = Q diag(a) Q' its inverse is exact and costs
nothing: divide by ``e_i a_k + lambda`` in the basis Q. (Böhning's bound [1]_ is the same construction with the largest
possible A.) As the fit proceeds, A shrinks with the mean of p (1 - p) and rows cease to be alike.

Where the fit is nearly perfect on most rows, the few that still count have other variances along the directions than
all rows together: the Newton steps take the diagonal of the Hessian with each row's own p (1 - p) instead.

References:
    .. [1] Böhning, "Multinomial logistic regression algorithm", Ann. Inst. Stat. Math. 44, 1992.
"""

from dataclasses import dataclass, replace

import torch  # noqa: TID253  # imported only when a probe is fitted
from torch import Tensor  # noqa: TID253

from crs_assets.science.probes.design import Design
from crs_assets.science.probes.losses import Loss, Problems
from crs_assets.science.probes.objective import Objective

_SMALLEST_CLASS_CURVATURE = 1e-3
"""Eigenvalues of A are floored at this share of the largest: the direction common to all classes has 0."""
_SMALLEST_CURVATURE = 1e-9
"""Lower bound of the mean curvature relative to that at zero weights."""
_SAMPLED_ROWS = 8192
"""Streamed rows that the weighted variances are estimated on."""
_TINY = 1e-30
"""Curvature below this is 0 in float32."""


@dataclass
class SpectralPreconditioner:
    """The inverse Hessian at zero weights, with the curvature that the fit has now.

    Attributes:
        eigenvalues: (r,) float64 of the rows.
        class_values: (B, K) float64 eigenvalues a of A.
        class_vectors: (B, K, K) float64 eigenvectors Q of A.
        penalty: (B,) float64.
        first: (B,) float64, trace of A at zero weights.
        ratio: (B,) float64, mean curvature now over that at zero weights.
    """

    eigenvalues: Tensor
    class_values: Tensor
    class_vectors: Tensor
    penalty: Tensor
    first: Tensor
    ratio: Tensor

    def __post_init__(self) -> None:
        self._cached: dict[torch.dtype, tuple[Tensor, Tensor]] = {}

    @classmethod
    def build(cls, design: Design, loss: Loss, problems: Problems) -> "SpectralPreconditioner":
        """For the given rows, loss and penalties, at zero weights."""
        values, vectors = torch.linalg.eigh(loss.curvature)
        values = values.clamp(min=0).maximum(values[:, -1:] * _SMALLEST_CLASS_CURVATURE)[problems.target]
        trace = loss.curvature.diagonal(dim1=1, dim2=2).sum(1)[problems.target]
        vectors = vectors[problems.target]
        return cls(design.eigenvalues, values, vectors, problems.penalty, trace, torch.ones_like(trace))

    def select(self, which: Tensor) -> "SpectralPreconditioner":
        """The problems of a mask."""
        return replace(
            self,
            class_values=self.class_values[which],
            class_vectors=self.class_vectors[which],
            penalty=self.penalty[which],
            first=self.first[which],
            ratio=self.ratio[which],
        )

    def update(self, curvature: Tensor, which: Tensor) -> None:
        """Take over the mean curvature (B,) of the problems of a mask."""
        self.ratio = torch.where(which, (curvature / self.first).clamp(min=_SMALLEST_CURVATURE), self.ratio)
        self._cached.clear()

    def apply(self, gradient: Tensor) -> Tensor:
        """Times a (r + 1, B, K) tensor: rotate the classes, divide, rotate back."""
        inverse, vectors = self._factors(gradient.dtype)
        return _between(gradient, vectors, inverse)

    def _factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if dtype not in self._cached:
            values = self.class_values * self.ratio[:, None]
            weights = 1 / (self.eigenvalues[:, None, None] * values + self.penalty[:, None])
            self._cached[dtype] = torch.cat([weights, 1 / values[None]]).to(dtype), self.class_vectors.to(dtype)
        return self._cached[dtype]


@dataclass(frozen=True)
class DiagonalPreconditioner:
    """The diagonal of the true Hessian in the rotated basis, and the mean of its blocks over the classes.

    With every row's own second derivative ``A_i``, the Hessian is the sum of ``r_i r_i' x A_i``. It is replaced by
    diag(g) x A, with A the mean of the A_i and g the curvature-weighted variance along each direction, relative to A.

    Attributes:
        vectors: (B, K, K) float32 eigenvectors of A.
        inverse: (r + 1, B, K) float32 inverse eigenvalues.
    """

    vectors: Tensor
    inverse: Tensor

    @classmethod
    def build(cls, objective: Objective, bend: Tensor, problems: Problems) -> "DiagonalPreconditioner":
        """From the second derivatives (n, B, K) float32 of the loss."""
        design, loss = objective.design, objective.loss
        weight = loss.diagonal(bend).sum(2)
        mass = weight.sum(0, dtype=torch.float64).clamp(min=_TINY)
        spread = _weighted_squares(design, weight) / mass
        values, vectors = torch.linalg.eigh(loss.mean_block(bend).to(torch.float64))
        values = values.maximum(values[:, -1:] * _SMALLEST_CLASS_CURVATURE).clamp(min=_TINY)
        inverse = 1 / (spread[..., None] * values + problems.penalty[:, None])
        inverse = torch.cat([inverse, 1 / values[None]])
        return cls(vectors.to(torch.float32), inverse.to(torch.float32))

    def select(self, which: Tensor) -> "DiagonalPreconditioner":
        """The problems of a mask."""
        return DiagonalPreconditioner(self.vectors[which], self.inverse[:, which])

    def apply(self, gradient: Tensor) -> Tensor:
        """Times a (r + 1, B, K) float32 tensor."""
        return _between(gradient, self.vectors, self.inverse)


def _weighted_squares(design: Design, weight: Tensor) -> Tensor:
    """(r, B) float64: sum over rows of weight (n, B) times squared rotated row; streamed rows are sampled evenly."""
    total = torch.zeros(design.rank, weight.shape[1], dtype=torch.float64, device=weight.device)
    stride = 1 if design.resident is not None else max(1, design.rows // _SAMPLED_ROWS)
    for rows, block in design.blocks(torch.float32):
        sampled = block[::stride]
        rotated = sampled if design.resident is not None else sampled @ design.directions.to(block.dtype)
        total += (rotated.square().T @ weight[rows][::stride]).to(torch.float64)
    return total * stride


def _between(gradient: Tensor, vectors: Tensor, inverse: Tensor) -> Tensor:
    """Scale a (r + 1, B, K) tensor by ``inverse`` in the basis ``vectors`` (B, K, K) of the outputs."""
    if gradient.shape[2] == 1:
        return gradient * inverse
    turned = torch.einsum("rbk,bkl->rbl", gradient, vectors) * inverse
    return torch.einsum("rbl,bkl->rbk", turned, vectors)
