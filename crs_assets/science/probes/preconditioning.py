"""Approximate inverse Hessians of a linear probe in the eigenbasis of its rows.

At zero weights every row has the same second derivative ``A`` (K, K) by its logits, so with ``R'R / n = diag(e)`` the
Hessian is the Kronecker product of diag(e) and A, plus lambda. With A = Q diag(a) Q' its inverse is exact and costs
nothing: divide by ``e_i a_k + lambda`` in the basis Q. (Böhning's bound [1]_ is the same construction with the largest
possible A.) As the fit proceeds, A shrinks with the mean of p (1 - p) and rows cease to be alike.

For few rows or few directions the true Hessian with each row's own p (1 - p) is factored instead: per output k
``H_k = R' D_k R + lambda``, exact for a sigmoid and the diagonal blocks for a softmax. Where rows are the smaller side,
with S = D^1/2 (Woodbury; for Gaussian processes [2]_, algorithm 3.1):

    H_k^-1 v = (v - R' S (lambda + S R R' S)^-1 S R v) / lambda

A softmax is blind to a vector common to all classes, which the blocks do not know: the result is projected onto the
subspace without it, on which blocks and Hessian agree within a small factor.

References:
    .. [1] Böhning, "Multinomial logistic regression algorithm", Ann. Inst. Stat. Math. 44, 1992.
    .. [2] Rasmussen and Williams, "Gaussian Processes for Machine Learning", 2006, section 3.4.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import torch  # noqa: TID253 - only ever imported when a probe is fitted
from torch import Tensor

from crs_assets.science.probes.design import Design
from crs_assets.science.probes.losses import Loss, Problems

_SMALLEST_CLASS_CURVATURE = 1e-3
"""Eigenvalues of A are floored at this share of the largest: the direction common to all classes has 0."""
_SMALLEST_CURVATURE = 1e-9
"""Lower bound of the mean curvature relative to that at zero weights."""
_FACTOR_ROWS = 2048
_FACTOR_RANK = 1024
"""Systems up to this size, on their smaller side, are factored."""


class Preconditioner(Protocol):
    """A symmetric positive definite approximation of the inverse Hessian."""

    def apply(self, gradient: Tensor) -> Tensor:
        """Times a (r + 1, B, K) tensor, in its precision."""
        ...


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
        if gradient.shape[2] == 1:
            return gradient * inverse
        turned = torch.einsum("rbk,bkl->rbl", gradient, vectors) * inverse
        return torch.einsum("rbl,bkl->rbk", turned, vectors)

    def _factors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        if dtype not in self._cached:
            values = self.class_values * self.ratio[:, None]
            weights = 1 / (self.eigenvalues[:, None, None] * values + self.penalty[:, None])
            self._cached[dtype] = torch.cat([weights, 1 / values[None]]).to(dtype), self.class_vectors.to(dtype)
        return self._cached[dtype]


class DiagonalPreconditioner:
    """The diagonal of the Hessian in the rotated basis, output by output: for systems too large to factor."""

    def __init__(self, design: Design, loss: Loss, probability: Tensor, problems: Problems) -> None:
        rank, (batch, outputs) = design.rank, probability.shape[1:]
        total = torch.zeros(rank, batch * outputs, dtype=torch.float64, device=probability.device)
        mass = torch.zeros(batch, outputs, dtype=torch.float64, device=probability.device)
        for rows, block in design.blocks(design.working_dtype):
            rotated = block if design.resident is not None else block @ design.directions.to(block.dtype)
            curvature = loss.diagonal(probability[rows], rows, problems)
            total += (rotated.square().T @ curvature.reshape(len(block), -1)).to(torch.float64)
            mass += curvature.sum(0, dtype=torch.float64)
        weights = total.reshape(rank, batch, outputs) + problems.penalty[:, None]
        tiny = torch.finfo(torch.float64).tiny
        self._inverse = 1 / torch.cat([weights, mass[None].clamp(min=tiny)])
        self._loss = loss

    def apply(self, gradient: Tensor) -> Tensor:
        """Times a (r + 1, B, K) tensor."""
        return self._loss.project(self._loss.project(gradient) * self._inverse.to(gradient.dtype))


class FactoredPreconditioner:
    """The Hessian's diagonal blocks, one per problem and output, factored by Cholesky on their smaller side."""

    def __init__(self, design: Design, loss: Loss, probability: Tensor, problems: Problems) -> None:
        if design.resident is None:
            raise ValueError("only resident rows are factored; stream with DiagonalPreconditioner")
        self._rows, self._loss = design.resident, loss
        self._shape = probability.shape[1:]
        curvature = loss.diagonal(probability, slice(0, design.rows), problems).reshape(design.rows, -1)
        self._penalty = problems.penalty[:, None].expand(self._shape).reshape(-1)
        self._root = curvature.sqrt()
        self._by_rows = design.rows < 1.8 * design.rank
        self._factor = self._factor_by_rows() if self._by_rows else self._factor_by_directions(curvature)
        self._border = self._rows.T @ curvature
        self._solved = self._solve(self._border)
        mass = curvature.sum(0)
        floor = mass.clamp(min=torch.finfo(torch.float64).tiny) * torch.finfo(torch.float64).eps
        self._schur = (mass - (self._border * self._solved).sum(0)).maximum(floor)

    @staticmethod
    def fits(design: Design) -> bool:
        """Whether a factorisation is worth its cost: resident rows, and a small side."""
        return design.resident is not None and (design.rows <= _FACTOR_ROWS or design.rank <= _FACTOR_RANK)

    def apply(self, gradient: Tensor) -> Tensor:
        """Times a (r + 1, B, K) tensor; the intercept is eliminated first (block elimination)."""
        flat = self._loss.project(gradient).reshape(len(gradient), -1)
        weights = self._solve(flat[:-1])
        intercept = (flat[-1] - (self._border * weights).sum(0)) / self._schur
        weights = weights - self._solved * intercept
        return self._loss.project(torch.cat([weights, intercept[None]]).reshape(gradient.shape))

    def _solve(self, right: Tensor) -> Tensor:
        """H_k^-1 times (r, columns)."""
        if not self._by_rows:
            return torch.cholesky_solve(right.T[..., None], self._factor)[..., 0].T
        inside = self._root * (self._rows @ right)
        inside = torch.cholesky_solve(inside.T[..., None], self._factor)[..., 0].T
        return (right - self._rows.T @ (self._root * inside)) / self._penalty

    def _factor_by_rows(self) -> Tensor:
        root = self._root.T
        system = (self._rows @ self._rows.T)[None] * root[:, :, None] * root[:, None, :]
        return _cholesky(system, self._penalty)

    def _factor_by_directions(self, curvature: Tensor) -> Tensor:
        systems = [self._rows.T @ (self._rows * column[:, None]) for column in curvature.T]
        return _cholesky(torch.stack(systems), self._penalty)


def _cholesky(system: Tensor, penalty: Tensor) -> Tensor:
    """Lower factors of (columns, m, m) systems plus their penalties; the ridge grows where rounding broke positivity."""
    diagonal = system.diagonal(dim1=1, dim2=2)
    diagonal += penalty[:, None]
    factor, failed = torch.linalg.cholesky_ex(system)
    while failed.any():
        diagonal[failed > 0] *= 1 + 1e-8
        factor, failed = torch.linalg.cholesky_ex(system)
    return factor
