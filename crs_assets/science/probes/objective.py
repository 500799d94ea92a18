"""Value, gradient and Hessian products of all problems of a sample set, in one pass over its rows each.

With rows ``R``, residuals ``q`` (derivative of the loss by the logits) and parameters ``u``:

    f(u)   = mean loss + lambda / 2 * |u_w|^2        (the intercept, the last row of u, is free)
    grad f = R'q + lambda u_w ;   by the intercept: sum of q
    H v    = R' (d2 loss [R v_w + v_0]) + lambda v_w ;   by the intercept: the sum without R'
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch  # noqa: TID253  # imported only when a probe is fitted
from torch import Tensor  # noqa: TID253

from crs_assets.science.probes.design import Design
from crs_assets.science.probes.losses import Loss, Problems

_LOGIT_ROWS = 4096
"""Rows whose logits are looked at together: their intermediate results stay in the cache."""
_NARROW, _NARROW_BACK = 16, 64
"""Products of rows, and of transposed rows, with fewer columns than this are faster when written transposed."""


@dataclass(frozen=True)
class Evaluation:
    """One pass at some parameters.

    Attributes:
        value: (B,) float64 objective, nats.
        gradient: (r + 1, B, K).
        curvature: (B,) float64, sum over outputs of the mean second derivative of the loss by the logits.
        logits: (n, B, K), if asked for.
    """

    value: Tensor
    gradient: Tensor
    curvature: Tensor
    logits: Tensor | None


class Sums(NamedTuple):
    """Sums over all rows at some parameters, float64.

    Attributes:
        value: (B,) objective, nats.
        slope: (B, K) derivative by the intercepts.
        block: (B, K, K) second derivative by the intercepts.
    """

    value: Tensor
    slope: Tensor
    block: Tensor

    def where(self, which: Tensor, other: "Sums") -> "Sums":
        """These for the problems of a mask (B,), the other's for the rest."""
        return Sums(
            torch.where(which, self.value, other.value),
            torch.where(which[:, None], self.slope, other.slope),
            torch.where(which[:, None, None], self.block, other.block),
        )


@dataclass(frozen=True)
class Objective:
    """The objective of all problems: rows and loss."""

    design: Design
    loss: Loss

    def evaluate(self, parameters: Tensor, problems: Problems, *, keep_logits: bool = False) -> Evaluation:
        """Value and gradient, in the precision of ``parameters``."""
        folded = self.design.fold(parameters)
        total = folded.new_zeros(folded.shape)  # zeros_like would keep strides that have no matrix view
        value = torch.zeros(len(problems), dtype=torch.float64, device=parameters.device)
        curvature = torch.zeros_like(value)
        kept = []
        for rows, block in self.design.blocks(parameters.dtype):
            logits = _times(block, folded)
            targets = self.loss.targets(rows, problems, logits.dtype)
            value += self.loss.value(logits, targets)
            probability = self.loss.probability(logits, targets)
            bend = self.loss.bend(probability, targets)
            curvature += self.loss.diagonal(bend).sum((0, 2), dtype=torch.float64)
            _add_transposed(total, block, self.loss.residual(probability, targets))
            kept.append(logits if keep_logits else logits[:0])
        gradient = self.design.unfold(total)
        self._add_penalty(gradient, parameters, problems)
        value += problems.penalty / 2 * inner(parameters[:-1], parameters[:-1])
        return Evaluation(value, gradient, curvature, torch.cat(kept) if keep_logits else None)

    def bend(self, logits: Tensor, problems: Problems) -> Tensor:
        """Second derivatives of the loss at logits (n, B, K) that are already known, in float32."""
        targets = self.targets(problems)
        return self.loss.bend(self.loss.probability(logits, targets), targets).to(torch.float32)

    def targets(self, problems: Problems) -> Tensor:
        """What the loss needs of the labels of all rows, in float64."""
        return self.loss.targets(slice(0, self.design.rows), problems, torch.float64)

    def hessian_times(self, direction: Tensor, bend: Tensor, problems: Problems) -> Tensor:
        """Hessian where ``bend`` was taken, times a direction (r + 1, B, K), in float32."""
        folded = self.design.fold(direction)
        total = folded.new_zeros(folded.shape)  # zeros_like would keep strides that have no matrix view
        for rows, block in self.design.blocks(torch.float32):
            _add_transposed(total, block, self.loss.curve(_times(block, folded), bend[rows]))
        product = self.design.unfold(total)
        self._add_penalty(product, direction, problems)
        return product

    def sums(self, logits: Tensor, parameters: Tensor, problems: Problems) -> "Sums":
        """What the logits (n, B, K) float64 at some parameters say about the intercepts; no row is touched."""
        count, outputs = len(problems), self.loss.outputs
        value = problems.penalty / 2 * inner(parameters[:-1], parameters[:-1])
        slope, block = logits.new_zeros(count, outputs), logits.new_zeros(count, outputs, outputs)
        for start in range(0, len(logits), _LOGIT_ROWS):
            rows = slice(start, start + _LOGIT_ROWS)
            targets = self.loss.targets(rows, problems, torch.float64)
            value = value + self.loss.value(logits[rows], targets)
            probability = self.loss.probability(logits[rows], targets)
            slope += self.loss.residual(probability, targets).sum(0)
            block += self.loss.mean_block(self.loss.bend(probability, targets))
        return Sums(value, slope, block)

    def gradient_at(self, logits: Tensor, parameters: Tensor, problems: Problems) -> Tensor:
        """Gradient (r + 1, B, K) float64 at parameters whose logits (n, B, K) float64 are known.

        Residuals are taken in float64. Their product with streamed rows is float32: it rounds a gradient, whose square
        is what counts, and nothing that hides one.
        """
        dtype = torch.float32 if self.design.resident is None else torch.float64
        total = torch.zeros(self.design.width + 1, *logits.shape[1:], dtype=dtype, device=logits.device)
        for rows, block in self.design.blocks(dtype):
            targets = self.loss.targets(rows, problems, torch.float64)
            residual = self.loss.residual(self.loss.probability(logits[rows], targets), targets)
            _add_transposed(total, block, residual.to(dtype))
        gradient = self.design.unfold(total.to(torch.float64))
        self._add_penalty(gradient, parameters, problems)
        return gradient

    def logits(self, parameters: Tensor) -> Tensor:
        """Logits (n, B, K) float64."""
        folded = self.design.fold(parameters)
        # Filled in place: put together from blocks they would be held twice.
        found = folded.new_empty(self.design.rows, *folded.shape[1:])
        for rows, block in self.design.blocks(torch.float64):
            found[rows] = _times(block, folded)
        return found

    def value_at(self, logits: Tensor, parameters: Tensor, problems: Problems, targets: Tensor) -> Tensor:
        """(B,) float64 objective from logits (n, B, K) and targets that are already known."""
        return self.loss.value(logits, targets) + problems.penalty / 2 * inner(parameters[:-1], parameters[:-1])

    @staticmethod
    def _add_penalty(product: Tensor, parameters: Tensor, problems: Problems) -> None:
        product[:-1] += parameters[:-1] * problems.penalty.to(product.dtype)[:, None]


def inner(a: Tensor, b: Tensor) -> Tensor:
    """(B,) float64: inner product of two (r, B, K) tensors, problem by problem."""
    return (a * b).sum((0, 2), dtype=torch.float64)


def _times(block: Tensor, folded: Tensor) -> Tensor:
    """Block (m, c) times folded parameters (c + 1, B, K) -> logits (m, B, K)."""
    matrix = folded.reshape(len(folded), -1)
    if matrix.shape[1] < _NARROW:
        product = torch.addmm(matrix[-1][:, None], matrix[:-1].T, block.T).T
    else:
        product = torch.addmm(matrix[-1], block, matrix[:-1])
    return product.reshape(len(block), *folded.shape[1:])


def _add_transposed(total: Tensor, block: Tensor, residual: Tensor) -> None:
    """Add a block's transposed product (c + 1, B, K), the row sums last."""
    flat, matrix = residual.reshape(len(block), -1), total.view(len(total), -1)
    if matrix.shape[1] < _NARROW_BACK:
        matrix[:-1] += (flat.T @ block).T
    else:
        matrix[:-1].addmm_(block.T, flat)
    matrix[-1] += flat.sum(0)
