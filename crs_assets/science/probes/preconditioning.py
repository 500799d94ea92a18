"""Approximate inverse Hessians of a linear probe in the eigenbasis of its rows.

At zero weights every row has the same second derivative ``A`` (K, K) by its logits, so with ``R'R / n = diag(e)`` the
Hessian is the Kronecker product of diag(e) and A, plus lambda. With A = Q diag(a) Q' its inverse is exact and costs
nothing: divide by ``e_i a_k + lambda`` in the basis Q. (Böhning's bound [1]_ is the same construction with the largest
possible A.) As the fit proceeds, A shrinks with the mean of p (1 - p) and rows cease to be alike.

Where the fit is nearly perfect on most rows, the few that still count have other variances along the directions than
all rows together: the Newton steps take the diagonal of the Hessian with each row's own p (1 - p) instead. Systems that
are not solved after as many products as a factorisation would have cost are factored: at most twice the better choice.

References:
    .. [1] Böhning, "Multinomial logistic regression algorithm", Ann. Inst. Stat. Math. 44, 1992.
"""

from copy import copy
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
_FEWEST_PRODUCTS = 8
_READING = 160
"""Rank at which a factored column costs one product: operations per second over numbers read per second, about."""
_PANEL = 256
"""Columns of a system that are computed together, from the diagonal down: the other triangle is the same."""
_FACTOR_CELLS = 2**25
"""Most cells of all factored blocks together (256 MB in float64)."""
_RIDGE = 1e-7
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
        """The problems at these positions."""
        return DiagonalPreconditioner(self.vectors[which], self.inverse[:, which])

    def apply(self, gradient: Tensor) -> Tensor:
        """Times a (r + 1, B, K) float32 tensor."""
        return _between(gradient, self.vectors, self.inverse)


@dataclass(frozen=True)
class MixedPreconditioner:
    """Factored blocks for the problems that have them, the diagonal for the others.

    Attributes:
        diagonal: Of all problems.
        factored: Of some of them, or None.
        covered: (C,) int64, the positions of those.
    """

    diagonal: DiagonalPreconditioner
    factored: "FactoredPreconditioner | None"
    covered: Tensor

    def select(self, which: Tensor) -> "MixedPreconditioner":
        """The problems at these positions."""
        slots = torch.full((self.diagonal.inverse.shape[1],), -1, device=which.device)
        slots[self.covered] = torch.arange(len(self.covered), device=which.device)
        kept = slots[which]
        covered = torch.nonzero(kept >= 0)[:, 0]
        factored = self.factored.select(kept[covered]) if self.factored and len(covered) else None
        return MixedPreconditioner(self.diagonal.select(which), factored, covered)

    def apply(self, gradient: Tensor) -> Tensor:
        """Times a (r + 1, B, K) float32 tensor."""
        if self.factored is None:
            return self.diagonal.apply(gradient)
        if len(self.covered) == gradient.shape[1]:
            return self.factored.apply(gradient)
        result = self.diagonal.apply(gradient)
        result[:, self.covered] = self.factored.apply(gradient[:, self.covered])
        return result


class FactoredPreconditioner:
    """The Hessian's diagonal blocks ``R' D_k R + lambda``, one per problem and output, factored by Cholesky.

    Exact for a sigmoid. A softmax is blind to a vector common to all classes, which blocks do not know: the result is
    projected onto the subspace without it, on which blocks and Hessian agree within a small factor.
    """

    def __init__(self, objective: Objective, bend: Tensor, problems: Problems) -> None:
        self._loss = objective.loss
        curvature = objective.loss.diagonal(bend).reshape(len(bend), -1)
        penalty = problems.penalty[:, None].expand(bend.shape[1:]).reshape(-1)
        system, border, mass = _blocks(objective.design, curvature)
        self._factor = _cholesky(system, penalty).to(torch.float32)
        self._border = border.to(torch.float32)
        self._solved = self._solve(self._border)
        floor = torch.finfo(torch.float32).eps * mass.clamp(min=_TINY)
        schur = mass - (border * self._solved).sum(0, dtype=torch.float64)
        self._schur = schur.maximum(floor).to(torch.float32)

    @staticmethod
    def cost(design: Design, columns: int) -> float:
        """How many Hessian products of so many columns cost as much as factoring their blocks and using them.

        A product of a few columns takes as long as reading the rows twice, and a block as long as its operations. From
        some width on products are limited by their operations too, and the cost is a third of the rank. Where rows are
        few, the Cholesky factorisation adds to that, and applying a factor reads more than the rows.
        """
        share = design.rank / design.rows
        blocks = min(columns * design.rank / _READING, design.rank / 3)
        return max(_FEWEST_PRODUCTS, blocks * (1 + 2 * share) * (1 + columns * share))

    @staticmethod
    def room(design: Design, outputs: int) -> int:
        """How many problems' blocks fit into memory together."""
        return int(_FACTOR_CELLS // (outputs * design.rank**2))

    def apply(self, gradient: Tensor) -> Tensor:
        """Times a (r + 1, B, K) float32 tensor; the intercept is eliminated first (block elimination)."""
        flat = self._loss.project(gradient).reshape(len(gradient), -1)
        weights = self._solve(flat[:-1])
        intercept = (flat[-1] - (self._border * weights).sum(0)) / self._schur
        weights = weights - self._solved * intercept
        return self._loss.project(torch.cat([weights, intercept[None]]).reshape(gradient.shape))

    def select(self, which: Tensor) -> "FactoredPreconditioner":
        """The problems at these positions."""
        chosen = copy(self)
        outputs = self._loss.outputs
        columns = (which[:, None] * outputs + torch.arange(outputs, device=which.device)).reshape(-1)
        chosen._factor, chosen._schur = self._factor[columns], self._schur[columns]
        chosen._border, chosen._solved = self._border[:, columns], self._solved[:, columns]
        return chosen

    def joined(self, other: "FactoredPreconditioner") -> "FactoredPreconditioner":
        """The problems of both, the other's last."""
        both = copy(self)
        both._factor, both._schur = torch.cat([self._factor, other._factor]), torch.cat([self._schur, other._schur])
        both._border = torch.cat([self._border, other._border], dim=1)
        both._solved = torch.cat([self._solved, other._solved], dim=1)
        return both

    def _solve(self, right: Tensor) -> Tensor:
        return torch.cholesky_solve(right.T[..., None], self._factor)[..., 0].T


def _blocks(design: Design, curvature: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """R'D_k R (columns, r, r), R'D_k 1 (r, columns) and sum of D_k (columns,), float64, for curvature (n, columns).

    Only the lower triangle of a system is sure to be there.
    """
    size = design.width
    system = torch.zeros(curvature.shape[1], size, size, dtype=torch.float64, device=curvature.device)
    border = torch.zeros(size, curvature.shape[1], dtype=torch.float64, device=curvature.device)
    for rows, block in design.blocks(torch.float32):
        border += block.T @ curvature[rows]
        for column, weight in enumerate(curvature[rows].T):
            weighted = block * weight[:, None]
            for left in range(0, size, _PANEL):
                panel = slice(left, left + _PANEL)
                system[column, left:, panel] += block[:, left:].T @ weighted[:, panel]
    if design.resident is None:
        system = system.tril() + system.tril(-1).mT
    return design.unfold_both(system), design.unfold_weights(border), curvature.sum(0, dtype=torch.float64)


def _cholesky(system: Tensor, penalty: Tensor) -> Tensor:
    """Lower factors of (columns, r, r) systems plus their penalties; a ridge grows where rounding broke positivity."""
    diagonal = system.diagonal(dim1=1, dim2=2)
    diagonal += penalty[:, None]
    ridge = _RIDGE * diagonal.mean(1, keepdim=True)
    factor, failed = torch.linalg.cholesky_ex(system)
    while failed.any():
        diagonal += torch.where(failed[:, None] > 0, ridge, 0)
        ridge = ridge * 10
        factor, failed = torch.linalg.cholesky_ex(system)
    return torch.as_tensor(factor)


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
