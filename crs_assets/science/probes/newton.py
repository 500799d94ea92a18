"""Batched truncated Newton: exact second-order steps for the problems that quasi-Newton steps finish slowly.

Small penalties on separable rows flatten the objective along many directions that an L-BFGS memory cannot hold. Here
the Newton system is solved by preconditioned conjugate gradients [1]_, all problems in one product with the rows, each
with its own step lengths; then a backtracking search. Systems that conjugate gradients solve slowly have their Hessian
factored, and factors are kept from step to step and from penalty to penalty. Half of ``g'H^-1 g``, half the squared
Newton decrement, is the fall that the quadratic model promises, hence the estimate of value minus minimum [2]_.

References:
    .. [1] Nocedal and Wright, "Numerical Optimization", 2nd ed. 2006, section 7.1 (line search Newton-CG).
    .. [2] Boyd and Vandenberghe, "Convex Optimization", 2004, section 9.5.1.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch  # noqa: TID253  # imported only when a probe is fitted
from torch import Tensor  # noqa: TID253

from crs_assets.science.probes.lbfgs import Progress
from crs_assets.science.probes.losses import Problems
from crs_assets.science.probes.objective import Evaluation, Objective, inner
from crs_assets.science.probes.preconditioning import (
    DiagonalPreconditioner,
    FactoredPreconditioner,
    MixedPreconditioner,
)

_ARMIJO = 1e-4
_MAX_HALVINGS = 30
_MAX_INNER = 250
_TOLERANCE = 0.05
"""Residual of the conjugate gradients relative to the gradient, both in the preconditioner's norm."""
_SHRUNK = 0.8
"""Solved systems leave the batch when at most this share of it is still being solved."""
_VALUE_NOISE = 1e-13
_INTERCEPT_STEPS = 10
_SHORT = 1e-6
"""An intercept step so short leaves an error of its square."""


class NewtonStep(NamedTuple):
    """A solved Newton system.

    Attributes:
        direction: (r + 1, B, K).
        decrement: (B,) float64, half of g'H^-1 g.
        products: (B,) int64, Hessian products taken.
        factors: What was factored, for later steps.
    """

    direction: Tensor
    decrement: Tensor
    products: Tensor
    factors: "Factors"


@dataclass(frozen=True)
class Factors:
    """Factored Hessians of some targets, kept from step to step and from penalty to penalty.

    A factorisation costs as much as many Hessian products, and from one Newton step to the next the Hessian changes
    little: an old factor still is a good preconditioner. A new one is made where it no longer is.

    Attributes:
        factored: The factors, or None.
        targets: (C,) int64, the target of each; of several penalties of one target any serves.
    """

    factored: FactoredPreconditioner | None
    targets: Tensor

    def of(self, targets: Tensor, diagonal: DiagonalPreconditioner) -> MixedPreconditioner:
        """A preconditioner of problems with these targets (B,): their factor where there is one, else the diagonal."""
        if self.factored is None:
            return MixedPreconditioner(diagonal, None, self.targets)
        has, slot = (targets[:, None] == self.targets[None]).max(1)
        covered = torch.nonzero(has)[:, 0]
        return MixedPreconditioner(diagonal, self.factored.select(slot[covered]), covered)

    def renewed(self, factored: FactoredPreconditioner, targets: Tensor, room: int) -> "Factors":
        """With new factors of some targets; old ones of others are kept as far as there is room for so many in all."""
        kept = torch.nonzero(~torch.isin(self.targets, targets))[:, 0][: room - len(targets)]
        if self.factored is None or not len(kept):
            return Factors(factored, targets)
        return Factors(self.factored.select(kept).joined(factored), torch.cat([self.targets[kept], targets]))


def polish(
    objective: Objective, problems: Problems, start: Tensor, factors: Factors, *, gap: float, max_steps: int
) -> tuple[Progress, Factors]:
    """Newton steps from a start until the relative gap is met.

    The step that proves convergence is taken too: it costs nothing more and squares the remaining error.

    Args:
        objective: Rows and loss.
        problems: B problems.
        start: (r + 1, B, K) float64.
        factors: Factored Hessians of some targets at other penalties, or none.
        gap: Converged when the decrement is at most this share of the value.
        max_steps: Newton steps.

    Returns:
        The fits, and the factors as they are then.
    """
    batch = len(problems)
    zeros = torch.zeros(batch, dtype=torch.float64, device=start.device)
    done = Progress(start.clone(), zeros + torch.inf, zeros.clone(), zeros.to(torch.int64), zeros > 0)
    active = torch.arange(batch, device=start.device)
    for _ in range(max_steps):
        current, subset = done.parameters[:, active], problems.select(active)
        seen = objective.evaluate(current, subset, keep_logits=True)
        step = _newton_step(objective, seen, subset, factors)
        factors = step.factors
        moved = _line_search(objective, seen, step, current, subset)
        done.parameters[:, active] = moved
        done.decrement[active], done.value[active] = step.decrement, seen.value
        done.passes[active] += 1 + step.products
        converged = step.decrement <= gap * seen.value
        done.converged[active] = converged
        active = active[~converged]
        if not len(active):
            break
    return done, factors


def _newton_step(objective: Objective, seen: Evaluation, problems: Problems, factors: Factors) -> NewtonStep:
    """Solve ``H x = -g`` by conjugate gradients; a problem leaves once its own residual is small.

    The system is solved in float32 to a residual of a few per cent, on a gradient scaled to length 1: the outer step,
    in float64, corrects what is missing.
    """
    bend = objective.bend(_known(seen.logits), problems)
    length = inner(seen.gradient, seen.gradient).sqrt().clamp(min=torch.finfo(torch.float64).tiny)[:, None]
    preconditioner = factors.of(problems.target, DiagonalPreconditioner.build(objective, bend, problems))
    system = _System.start(seen.gradient / length, bend, problems, preconditioner)
    solution = torch.zeros_like(seen.gradient)
    products = torch.zeros(len(problems), dtype=torch.int64, device=bend.device)
    outputs, is_fresh = objective.loss.outputs, False
    room = FactoredPreconditioner.room(objective.design, outputs)
    for product in range(_MAX_INNER):
        cost = FactoredPreconditioner.cost(objective.design, len(system.problems) * outputs)
        if not is_fresh and product >= cost and len(system.problems) <= room:
            factored = FactoredPreconditioner(objective, system.bend, system.problems)
            factors = factors.renewed(factored, system.problems.target, room)
            system.restart(factored)
            is_fresh = True
        running = system.advance(objective)
        products[system.index] += 1
        solution[:, system.index] = system.solution.to(torch.float64)
        if not bool(running.any()):
            break
        if int(running.sum()) <= _SHRUNK * len(running):
            system.keep(torch.nonzero(running)[:, 0])
    # A part that all classes share costs penalty and gains nothing; a factored Hessian, which does not see it, would
    # never take out again what a diagonal one put in.
    solution = objective.loss.project(solution) * length
    return NewtonStep(solution, -inner(seen.gradient, solution) / 2, products, factors)


@dataclass
class _System:
    """Conjugate gradients on the systems still being solved [1]_, algorithm 5.3.

    Attributes:
        index: (B,) positions among all systems of the step.
        problems: The problems.
        bend: (n, B, K) float32 second derivatives of the loss.
        preconditioner: Approximate inverse Hessian.
        solution: (r + 1, B, K) float32, so far.
        rest: Residual ``-g - H x``, like ``solution``.
        direction: Search direction, like ``solution``.
        size: (B,) float64, ``rest`` in the preconditioner's norm, squared.
        target: (B,) float64, where ``size`` is small enough.
    """

    index: Tensor
    problems: Problems
    bend: Tensor
    preconditioner: MixedPreconditioner | FactoredPreconditioner
    solution: Tensor
    rest: Tensor
    direction: Tensor
    size: Tensor
    target: Tensor

    @classmethod
    def start(
        cls, gradient: Tensor, bend: Tensor, problems: Problems, preconditioner: MixedPreconditioner
    ) -> "_System":
        """At solution 0."""
        rest = -gradient.to(torch.float32)
        direction = preconditioner.apply(rest)
        size = inner(rest, direction)
        index = torch.arange(len(problems), device=rest.device)
        return cls(
            index, problems, bend, preconditioner, torch.zeros_like(rest), rest, direction, size, _TOLERANCE**2 * size
        )

    def advance(self, objective: Objective) -> Tensor:
        """One Hessian product; returns the mask (B,) of systems that need another."""
        product = objective.hessian_times(self.direction, self.bend, self.problems)
        bend = inner(self.direction, product)
        moving = (self.size > self.target) & (bend > 0)
        length = _ratio(self.size, bend, moving)
        self.solution = self.solution + self.direction * length
        self.rest = self.rest - product * length
        conditioned = self.preconditioner.apply(self.rest)
        size = inner(self.rest, conditioned)
        self.direction = conditioned + self.direction * _ratio(size, self.size, moving)
        self.size = torch.where(moving, size, 0)
        return moving & (size > self.target)

    def restart(self, preconditioner: FactoredPreconditioner) -> None:
        """Go on from the solution so far with a better preconditioner; the goal is kept in the new norm."""
        reached = self.size / self.target
        self.preconditioner = preconditioner
        self.direction = preconditioner.apply(self.rest)
        self.size = inner(self.rest, self.direction)
        self.target = self.size / reached.clamp(min=1)

    def keep(self, which: Tensor) -> None:
        """Drop the systems outside these positions."""
        self.index, self.problems = self.index[which], self.problems.select(which)
        self.bend, self.preconditioner = self.bend.index_select(1, which), self.preconditioner.select(which)
        self.solution, self.rest = self.solution.index_select(1, which), self.rest.index_select(1, which)
        self.direction = self.direction.index_select(1, which)
        self.size, self.target = self.size[which], self.target[which]


def _ratio(numerator: Tensor, denominator: Tensor, where: Tensor) -> Tensor:
    """(B, 1) float32 quotient, 0 outside the mask."""
    quotient = numerator / denominator.where(where, torch.ones_like(denominator))
    return torch.where(where, quotient, 0).to(torch.float32)[:, None]


def _known(logits: Tensor | None) -> Tensor:
    if logits is None:
        raise ValueError("Newton steps need the logits of the evaluation; pass keep_logits=True")
    return logits


def _line_search(
    objective: Objective, seen: Evaluation, step: NewtonStep, current: Tensor, problems: Problems
) -> Tensor:
    """Halve each problem's step until its value falls enough (Armijo); only logits are touched, no row."""
    logits, change = _known(seen.logits), objective.logits(step.direction)
    targets, length = objective.targets(problems), torch.ones_like(seen.value)
    noise = _VALUE_NOISE * seen.value.abs()
    for _ in range(_MAX_HALVINGS):
        factor = length[:, None]
        value = objective.value_at(logits + change * factor, current + step.direction * factor, problems, targets)
        enough = value <= seen.value - 2 * _ARMIJO * length * step.decrement + noise
        if enough.all():
            break
        length = torch.where(enough, length, length / 2)
    return current + step.direction * length[:, None]


class Settled(NamedTuple):
    """Parameters (r + 1, B, K) whose intercepts are best for their weights, and value, gradient and curvature there."""

    parameters: Tensor
    seen: Evaluation


def settle_intercepts(objective: Objective, problems: Problems, parameters: Tensor) -> Settled:
    """Make intercepts best for their weights, to rounding, by Newton steps on the logits; evaluate there in float64.

    The rows are passed over twice: for the logits, and for the gradient. A step that raises a problem's value is taken
    back.
    """
    settled, logits = parameters.clone(), objective.logits(parameters)
    sums = objective.sums(logits, settled, problems)
    for _ in range(_INTERCEPT_STEPS):
        shift = objective.loss.intercept_step(sums.slope, sums.block)
        settled[-1] -= shift
        logits -= shift
        if bool(shift.abs().max() <= _SHORT):
            # The parabola through so short a step is exact to rounding: no need to look again.
            sums = sums._replace(value=sums.value - (sums.slope * shift).sum(1) / 2)
            break
        seen = objective.sums(logits, settled, problems)
        has_risen = seen.value > sums.value
        taken_back = torch.where(has_risen[:, None], shift, 0)
        settled[-1] += taken_back
        logits += taken_back
        sums = sums.where(has_risen, seen)
    gradient = objective.gradient_at(logits, settled, problems)
    return Settled(settled, Evaluation(sums.value, gradient, sums.block.diagonal(dim1=1, dim2=2).sum(1), None))
