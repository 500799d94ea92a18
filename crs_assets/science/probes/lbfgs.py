"""Batched limited-memory BFGS: all problems of a sample set advance together, each with its own step.

Every pass over the rows is one matrix product for all problems, which is where the speed comes from; a problem leaves
the batch when it has converged. The direction is the two-loop recursion [1]_ with the spectral preconditioner as the
initial inverse Hessian. A step is taken if it satisfies the approximate Wolfe condition [2]_: the slope has not risen
above ``(1 - 2 delta)`` of the old descent, and the value has not risen but for rounding. Slopes keep their digits where
differences of values have none left, so the search stays reliable in float32.

References:
    .. [1] Nocedal and Wright, "Numerical Optimization", 2nd ed. 2006, algorithm 7.4.
    .. [2] Hager and Zhang, "A new conjugate gradient method with guaranteed descent and an efficient line search", SIAM
       J. Optim. 16, 2005, equation (4.1).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch  # noqa: TID253  # imported only when a probe is fitted
from torch import Tensor  # noqa: TID253

from crs_assets.science.probes.losses import Problems
from crs_assets.science.probes.objective import Objective, inner
from crs_assets.science.probes.preconditioning import SpectralPreconditioner

_MEMORY = 8
_DELTA = 0.05
_SHRUNK = 0.9
"""Converged problems leave when at most this share of the batch is left; until then they improve further."""
_SHRINK = (0.1, 0.7)
"""Bounds on the factor by which a refused step is shortened."""
_SCALE_BOUNDS = (0.2, 5.0)
"""Bounds on the scale of the initial inverse Hessian, which the preconditioner has nearly right already."""
_VALUE_NOISE = {torch.float32: 1e-6, torch.float64: 1e-12}
"""Relative rise of the value that is rounding."""


class Pair(NamedTuple):
    """A remembered step: ``s`` and ``y`` (r + 1, B, K), and 1 / s'y (B,), 0 for a problem that did not move."""

    step: Tensor
    change: Tensor
    reciprocal: Tensor


@dataclass
class Progress:
    """What a phase of the solver hands on, over all problems.

    Attributes:
        parameters: (r + 1, B, K).
        decrement: (B,) float64 estimate of value minus minimum.
        value: (B,) float64.
        passes: (B,) int64.
        converged: (B,) bool.
    """

    parameters: Tensor
    decrement: Tensor
    value: Tensor
    passes: Tensor
    converged: Tensor


@dataclass
class _Batch:
    """The problems still in the batch."""

    index: Tensor
    problems: Problems
    preconditioner: SpectralPreconditioner
    parameters: Tensor
    gradient: Tensor
    value: Tensor
    direction: Tensor
    step: Tensor
    history: list[Pair] = field(default_factory=list)

    def keep(self, which: Tensor) -> None:
        """Drop the problems outside these positions."""
        self.index, self.problems = self.index[which], self.problems.select(which)
        self.preconditioner = self.preconditioner.select(which)
        self.parameters, self.gradient = self.parameters.index_select(1, which), self.gradient.index_select(1, which)
        self.direction, self.value, self.step = (
            self.direction.index_select(1, which),
            self.value[which],
            self.step[which],
        )
        self.history = [
            Pair(pair.step.index_select(1, which), pair.change.index_select(1, which), pair.reciprocal[which])
            for pair in self.history
        ]

    def trial(self) -> Tensor:
        """Parameters at the current step along the direction."""
        return self.parameters + self.direction * _like(self.step, self.direction)

    def refresh_direction(self, which: Tensor) -> None:
        """A new direction for the problems of a mask, and full step length."""
        fresh = -_two_loop(self.gradient, self.history, self.preconditioner)
        self.direction = torch.where(which[:, None], fresh, self.direction)

    def decrement(self) -> Tensor:
        """The larger of two estimates of half of g'H^-1 g, from the preconditioner and from the quasi-Newton model.

        Both use an approximation of H, so the caller keeps a margin.
        """
        spectral = inner(self.gradient, self.preconditioner.apply(self.gradient))
        return torch.maximum(spectral, -inner(self.gradient, self.direction)) / 2


def minimise(objective: Objective, problems: Problems, start: Tensor, *, gap: float, max_passes: int) -> Progress:
    """Minimise until the estimated relative gap is met or the passes are used up.

    Args:
        objective: Rows and loss.
        problems: B problems.
        start: (r + 1, B, K) in the precision to work in.
        gap: Converged when the decrement is at most this share of the value.
        max_passes: Passes over the rows.
    """
    done = _nothing_done(start)
    batch = _first(objective, problems, start)
    for passes in range(1, max_passes + 1):
        decrement = batch.decrement()
        converged = decrement <= gap * batch.value
        left = int((~converged).sum())
        if not left or passes == max_passes:
            _record(done, batch, torch.ones_like(converged), decrement, converged, passes)
            break
        if left <= _SHRUNK * len(converged):
            _record(done, batch, converged, decrement, converged, passes)
            batch.keep(torch.nonzero(~converged)[:, 0])
        _advance(objective, batch)
    return done


def _advance(objective: Objective, batch: _Batch) -> None:
    """One pass at the trial parameters: accept or shorten, problem by problem."""
    trial = batch.trial()
    seen = objective.evaluate(trial, batch.problems)
    old_slope, new_slope = inner(batch.gradient, batch.direction), inner(seen.gradient, batch.direction)
    noise = _VALUE_NOISE[trial.dtype] * batch.value.abs()
    accepted = (new_slope <= -(1 - 2 * _DELTA) * old_slope) & (seen.value <= batch.value + noise)
    taken = accepted[:, None]
    step = torch.where(taken, trial - batch.parameters, 0)
    change = torch.where(taken, seen.gradient - batch.gradient, 0)
    product = inner(step, change)
    usable = product > torch.finfo(torch.float32).tiny
    reciprocal = torch.where(usable, 1 / product.where(usable, torch.ones_like(product)), 0)
    batch.history = [*batch.history, Pair(step, change, reciprocal)][-_MEMORY:]
    batch.parameters = torch.where(taken, trial, batch.parameters)
    batch.gradient = torch.where(taken, seen.gradient, batch.gradient)
    batch.value = torch.where(accepted, seen.value, batch.value)
    secant = (old_slope / (old_slope - new_slope)).nan_to_num(nan=_SHRINK[0]).clamp(*_SHRINK)
    batch.step = torch.where(accepted, torch.ones_like(secant), batch.step * secant)
    batch.preconditioner.update(seen.curvature, accepted)
    batch.refresh_direction(accepted)


def _two_loop(gradient: Tensor, history: list[Pair], preconditioner: SpectralPreconditioner) -> Tensor:
    """Inverse-Hessian approximation times the gradient; a pair with reciprocal 0 has no effect."""
    rest = gradient.clone()
    shares = []
    for step, change, reciprocal in reversed(history):
        share = reciprocal * inner(step, rest)
        rest -= change * _like(share, rest)
        shares.append(share)
    result = preconditioner.apply(rest)
    if history:
        result = result * _like(_scale(history[-1], preconditioner), rest)
    for (step, change, reciprocal), share in zip(history, reversed(shares), strict=True):
        result += step * _like(share - reciprocal * inner(change, result), result)
    return result


def _scale(latest: Pair, preconditioner: SpectralPreconditioner) -> Tensor:
    """(B,) s'y / y'Py of the latest step: how far the preconditioner is off along it."""
    expected = inner(latest.change, preconditioner.apply(latest.change))
    moved = (latest.reciprocal > 0) & (expected > 0)
    ratio = 1 / (latest.reciprocal * expected).where(moved, torch.ones_like(expected))
    return ratio.clamp(*_SCALE_BOUNDS)


def _first(objective: Objective, problems: Problems, start: Tensor) -> _Batch:
    seen = objective.evaluate(start, problems)
    preconditioner = SpectralPreconditioner.build(objective.design, objective.loss, problems)
    return _Batch(
        index=torch.arange(len(problems), device=start.device),
        problems=problems,
        preconditioner=preconditioner,
        parameters=start,
        gradient=seen.gradient,
        value=seen.value,
        direction=-preconditioner.apply(seen.gradient),
        step=torch.ones(len(problems), dtype=torch.float64, device=start.device),
    )


def _nothing_done(start: Tensor) -> Progress:
    problems = start.shape[1]
    numbers = torch.zeros(problems, dtype=torch.float64, device=start.device)
    counts = torch.zeros(problems, dtype=torch.int64, device=start.device)
    return Progress(start.clone(), numbers, numbers.clone(), counts, counts > 0)


def _record(done: Progress, batch: _Batch, leaving: Tensor, decrement: Tensor, converged: Tensor, passes: int) -> None:
    index = batch.index[leaving]
    done.parameters[:, index] = batch.parameters[:, leaving]
    done.decrement[index], done.value[index] = decrement[leaving], batch.value[leaving]
    done.passes[index], done.converged[index] = passes, converged[leaving]


def _like(per_problem: Tensor, parameters: Tensor) -> Tensor:
    """(B,) as a factor of (r + 1, B, K)."""
    return per_problem.to(parameters.dtype)[:, None]
