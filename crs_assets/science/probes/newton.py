"""Batched truncated Newton: exact second-order steps for the problems that quasi-Newton steps finish slowly.

Small penalties on separable rows flatten the objective along many directions that an L-BFGS memory cannot hold. Here
the Newton system is solved by preconditioned conjugate gradients [1]_, all problems in one product with the rows, each
with its own step lengths; then a backtracking search. Half of ``g'H^-1 g``, half the squared Newton decrement, is the
fall that the quadratic model promises, hence the estimate of value minus minimum [2]_.

References:
    .. [1] Nocedal and Wright, "Numerical Optimization", 2nd ed. 2006, section 7.1 (line search Newton-CG).
    .. [2] Boyd and Vandenberghe, "Convex Optimization", 2004, section 9.5.1.
"""

from typing import NamedTuple

import torch  # noqa: TID253 - only ever imported when a probe is fitted
from torch import Tensor

from crs_assets.science.probes.lbfgs import Progress
from crs_assets.science.probes.losses import Problems
from crs_assets.science.probes.objective import Evaluation, Objective, inner
from crs_assets.science.probes.preconditioning import (
    DiagonalPreconditioner,
    FactoredPreconditioner,
    Preconditioner,
)

_ARMIJO = 1e-4
_MAX_HALVINGS = 30
_MAX_INNER = 250
_LOOSE, _TIGHT = 0.1, 1e-2
"""Residual of the conjugate gradients relative to the gradient, both in the preconditioner's norm."""
_VALUE_NOISE = 1e-13


class NewtonStep(NamedTuple):
    """A solved Newton system.

    Attributes:
        direction: (r + 1, B, K).
        decrement: (B,) float64, half of g'H^-1 g.
        products: Hessian products taken.
    """

    direction: Tensor
    decrement: Tensor
    products: int


def polish(objective: Objective, problems: Problems, start: Tensor, *, gap: float, max_steps: int) -> Progress:
    """Newton steps from a start until the relative gap is met.

    The step that proves convergence is taken too: it costs nothing more and squares the remaining error.

    Args:
        objective: Rows and loss.
        problems: B problems.
        start: (r + 1, B, K) float64.
        gap: Converged when the decrement is at most this share of the value.
        max_steps: Newton steps.
    """
    batch = len(problems)
    zeros = torch.zeros(batch, dtype=torch.float64, device=start.device)
    done = Progress(start.clone(), zeros + torch.inf, zeros.clone(), zeros.to(torch.int64), zeros > 0)
    active = torch.arange(batch, device=start.device)
    for _ in range(max_steps):
        current, subset = done.parameters[:, active], problems.select(active)
        seen = objective.evaluate(current, subset, keep_logits=True)
        step = _newton_step(objective, seen, subset)
        moved = _line_search(objective, seen, step, current, subset)
        done.parameters[:, active] = moved
        done.decrement[active], done.value[active] = step.decrement, seen.value
        done.passes[active] += 1 + step.products
        converged = step.decrement <= gap * seen.value
        done.converged[active] = converged
        active = active[~converged]
        if not len(active):
            break
    return done


def _newton_step(objective: Objective, seen: Evaluation, problems: Problems) -> NewtonStep:
    if seen.logits is None:
        raise ValueError("a Newton step needs the logits of the evaluation; pass keep_logits=True")
    rows = slice(0, objective.design.rows)
    probability = objective.loss.probability(seen.logits, rows, problems).to(objective.design.working_dtype)
    build = FactoredPreconditioner if FactoredPreconditioner.fits(objective.design) else DiagonalPreconditioner
    preconditioner = build(objective.design, objective.loss, probability, problems)
    return _conjugate_gradients(objective, seen.gradient, probability, problems, preconditioner)


def _conjugate_gradients(
    objective: Objective, gradient: Tensor, probability: Tensor, problems: Problems, preconditioner: Preconditioner
) -> NewtonStep:
    """Solve ``H x = -g``; a problem stands still once its own residual is small."""
    solution = torch.zeros_like(gradient)
    rest = -gradient
    conditioned = preconditioner.apply(rest)
    direction = conditioned.clone()
    size = inner(rest, conditioned)
    target = _TIGHT**2 * size
    running = size > 0
    products = 0
    while products < _MAX_INNER and bool(running.any()):
        product = objective.hessian_times(direction, probability, problems)
        products += 1
        bend = inner(direction, product)
        running &= bend > 0
        length = torch.where(running, size / bend.where(running, torch.ones_like(bend)), 0)[:, None]
        solution += direction * length
        rest -= product * length
        conditioned = preconditioner.apply(rest)
        fresh = inner(rest, conditioned)
        running &= fresh > target
        ratio = torch.where(running, fresh / size.where(running, torch.ones_like(size)), 0)[:, None]
        direction = conditioned + direction * ratio
        size = torch.where(running, fresh, size)
    return NewtonStep(solution, -inner(gradient, solution) / 2, products)


def _line_search(
    objective: Objective, seen: Evaluation, step: NewtonStep, current: Tensor, problems: Problems
) -> Tensor:
    """Halve each problem's step until its value falls enough (Armijo); only logits are touched, no row."""
    if seen.logits is None:
        raise ValueError("the line search needs the logits of the evaluation; pass keep_logits=True")
    change = objective.logits(step.direction).to(torch.float64)
    length = torch.ones_like(seen.value)
    noise = _VALUE_NOISE * seen.value.abs()
    for _ in range(_MAX_HALVINGS):
        factor = length[:, None]
        value = objective.value_at(seen.logits + change * factor, current + step.direction * factor, problems)
        enough = value <= seen.value - 2 * _ARMIJO * length * step.decrement + noise
        if enough.all():
            break
        length = torch.where(enough, length, length / 2)
    return current + step.direction * length[:, None]
