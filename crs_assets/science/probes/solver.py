"""All fits of one sample set: quasi-Newton steps together, Newton steps for what is left, a check in float64."""

from collections.abc import Iterator

import numpy as np
import torch  # noqa: TID253  # imported only when a probe is fitted
from numpy.typing import NDArray
from torch import Tensor  # noqa: TID253

from crs_assets.science.probes.design import build_design
from crs_assets.science.probes.lbfgs import Progress, minimise
from crs_assets.science.probes.losses import Loss, Problems, SigmoidLoss, SoftmaxLoss
from crs_assets.science.probes.newton import Factors, polish, settle_intercepts
from crs_assets.science.probes.objective import Evaluation, Objective, inner
from crs_assets.science.probes.path import SetFits
from crs_assets.science.probes.preconditioning import SpectralPreconditioner
from crs_assets.science.validation import FloatArray, IntArray

_QUASI_NEWTON_PASSES = 60
"""Well-conditioned problems finish within 10 to 20 passes; beyond this Newton steps are cheaper than waiting."""
_MARGIN = 0.1
"""Quasi-Newton steps estimate the decrement with an approximate Hessian, so they aim this much below the gap."""
_CONFIRMED = 0.25
"""The same estimate from float64 gradients: below this share of the gap the fit is done."""
_WORKING_BYTES = 256 * 2**20
"""Memory for the logits of the problems that are taken together."""
_WIDTH = 32
"""Logits per row that Newton steps take together, at most: a narrower product takes nearly as long."""
_NEWTON_COPIES, _SETTLING_COPIES = 8, 1
"""How often Newton steps and the last look hold all logits in float64."""


def solve_set(
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    rows: IntArray,
    lambdas: FloatArray,
    scale: FloatArray,
    *,
    gap: float,
    max_iterations: int,
    device: str,
) -> SetFits:
    """Fit every target at every penalty on some rows.

    Args:
        features: (N, d) as stored, finite on the rows.
        labels: Labels of the rows: (n,) class indices 0..K-1 that all occur, or (n, T) float64 with 1, 0 and NaN, both
            values in every column.
        rows: (n,) row indices into ``features``.
        lambdas: (P,) penalties.
        scale: (d,) divisors of the features.
        gap: Relative gap to reach.
        max_iterations: Most quasi-Newton passes and Newton steps together.
        device: Where to compute.
    """
    where = torch.device(device)
    objective = Objective(build_design(features, rows, scale, where), _loss(labels, where))
    problems = _all_problems(len(objective.loss.initial), lambdas, where)
    progress, final = _minimise(objective, problems, gap=gap, max_iterations=max_iterations)
    grid = (len(lambdas), -1)
    weights, intercepts = objective.design.stored_weights(progress.parameters)
    return SetFits(
        weights=weights.reshape(len(lambdas), -1, features.shape[1]),
        intercepts=intercepts.reshape(grid),
        objective=final.value.cpu().numpy().reshape(grid),
        newton_decrement=progress.decrement.cpu().numpy().reshape(grid),
        duality_gap=_duality_gap(final, problems).cpu().numpy().reshape(grid),
        passes=progress.passes.cpu().numpy().reshape(grid),
        converged=(progress.decrement <= gap * final.value).cpu().numpy().reshape(grid),
    )


def _loss(labels: NDArray[np.generic], device: torch.device) -> Loss:
    values = torch.from_numpy(np.ascontiguousarray(labels)).to(device)
    return SoftmaxLoss(values, int(values.max()) + 1) if labels.ndim == 1 else SigmoidLoss(values)


def _all_problems(targets: int, lambdas: FloatArray, device: torch.device) -> Problems:
    """Problems in the order (penalty, target)."""
    target = torch.arange(targets, device=device).repeat(len(lambdas))
    penalty = torch.from_numpy(lambdas).to(device).repeat_interleave(targets)
    return Problems(target, penalty)


def _minimise(
    objective: Objective, problems: Problems, *, gap: float, max_iterations: int
) -> tuple[Progress, Evaluation]:
    """Quasi-Newton steps for all, a look in float64, Newton steps for those that have not converged."""
    start = torch.zeros(
        objective.design.rank + 1,
        len(problems),
        objective.loss.outputs,
        dtype=torch.float64,
        device=problems.target.device,
    )
    start[-1] = objective.loss.initial[problems.target]
    first_passes = min(_QUASI_NEWTON_PASSES, max_iterations)
    working = start.to(objective.design.working_dtype)
    progress = minimise(objective, problems, working, gap=_MARGIN * gap, max_passes=first_passes)
    everything = torch.arange(len(problems), device=start.device)
    progress.parameters, final = _settled(objective, problems, progress.parameters.to(torch.float64), everything)
    if working.dtype == torch.float32:
        _confirm(objective, problems, progress, final, gap)
    left = torch.nonzero(~progress.converged)[:, 0]
    if len(left) and max_iterations > first_passes:
        _finish(objective, problems, progress, gap=gap, max_steps=max_iterations - first_passes)
        progress.parameters[:, left], last = _settled(objective, problems, progress.parameters, left)
        final.value[left], final.gradient[:, left], final.curvature[left] = last.value, last.gradient, last.curvature
    return progress, final


def _finish(objective: Objective, problems: Problems, progress: Progress, *, gap: float, max_steps: int) -> None:
    """Newton steps for the problems that are left, from the largest penalty to the smallest.

    Small penalties on separable rows leave quasi-Newton steps far from the solution, and Newton steps with a long way
    to go; the solution of the next larger penalty is a much better start.
    """
    factors = Factors(None, problems.target[:0])
    for penalties in _levels(objective, problems):
        is_level = torch.isin(problems.penalty, problems.penalty.new_tensor(penalties))
        left = torch.nonzero(~progress.converged & is_level)[:, 0]
        for group in torch.split(left, _group_size(objective, _NEWTON_COPIES)) if len(left) else ():
            start, passes = _best_start(objective, problems, progress, group)
            polished, factors = polish(objective, problems.select(group), start, factors, gap=gap, max_steps=max_steps)
            progress.parameters[:, group] = polished.parameters
            progress.decrement[group], progress.value[group] = polished.decrement, polished.value
            progress.passes[group] += polished.passes + passes
            progress.converged[group] = polished.converged


def _levels(objective: Objective, problems: Problems) -> Iterator[list[float]]:
    """Penalties that are finished together, from the largest on: as many as make products worth their reading."""
    penalties = sorted(set(problems.penalty.tolist()), reverse=True)
    columns = objective.loss.outputs * len(problems) // len(penalties)
    size = max(1, _WIDTH // columns)
    for first in range(0, len(penalties), size):
        yield penalties[first : first + size]


def _best_start(objective: Objective, problems: Problems, progress: Progress, group: Tensor) -> tuple[Tensor, int]:
    """The best of what each problem has reached, the solution of the next larger penalty, and the line through two.

    Returns:
        (r + 1, B, K) float64, and how many passes over the rows it took to choose.
    """
    own, subset = progress.parameters[:, group], problems.select(group)
    top = float(subset.penalty.max())
    larger = sorted({penalty for penalty in problems.penalty.tolist() if penalty > top})[:2]
    solved = [progress.parameters[:, _same_targets(problems, subset, penalty)] for penalty in larger]
    candidates = [own, *solved[:1]]
    if len(solved) == 2:
        # Penalties are a geometric series, along which solutions move evenly.
        candidates.append(2 * solved[0] - solved[1])
    values = torch.stack([objective.evaluate(candidate, subset).value for candidate in candidates])
    chosen = torch.stack(candidates)[values.argmin(0), :, torch.arange(len(group), device=group.device)]
    return chosen.movedim(0, 1), len(candidates)


def _same_targets(problems: Problems, subset: Problems, penalty: float) -> Tensor:
    """Positions of the problems with a subset's targets at a penalty."""
    there = torch.nonzero(problems.penalty == penalty)[:, 0]
    return there[(problems.target[there][None] == subset.target[:, None]).max(1).indices]


def _group_size(objective: Objective, copies: int) -> int:
    """Problems of which so many copies of all logits fit into the working memory."""
    return max(1, _WORKING_BYTES // (8 * copies * objective.design.rows * objective.loss.outputs))


def _settled(objective: Objective, problems: Problems, parameters: Tensor, which: Tensor) -> tuple[Tensor, Evaluation]:
    """Parameters (r + 1, W, K) of some problems with exact intercepts, and value, gradient and curvature there."""
    groups = torch.split(which, _group_size(objective, _SETTLING_COPIES))
    ends = [settle_intercepts(objective, problems.select(group), parameters[:, group]) for group in groups]
    seen = [end.seen for end in ends]
    evaluation = Evaluation(
        value=torch.cat([part.value for part in seen]),
        gradient=torch.cat([part.gradient for part in seen], dim=1),
        curvature=torch.cat([part.curvature for part in seen]),
        logits=None,
    )
    return torch.cat([end.parameters for end in ends], dim=1), evaluation


def _confirm(objective: Objective, problems: Problems, progress: Progress, seen: Evaluation, gap: float) -> None:
    """Repeat with float64 gradients what was concluded in float32; what fails goes on to Newton steps."""
    preconditioner = SpectralPreconditioner.build(objective.design, objective.loss, problems)
    preconditioner.update(seen.curvature, torch.ones_like(progress.converged))
    estimate = inner(seen.gradient, preconditioner.apply(seen.gradient)) / 2
    progress.decrement = progress.decrement.maximum(estimate)
    progress.converged &= estimate <= _CONFIRMED * gap * seen.value
    progress.passes += 1


def _duality_gap(seen: Evaluation, problems: Problems) -> Tensor:
    """Upper bound |grad_w|^2 / (2 lambda) on value minus minimum, from strong convexity in the weights.

    With the intercept minimised out, the objective stays lambda-strongly convex in the weights, and its gradient is the
    one by the weights (envelope theorem). The intercepts are settled before, so their own derivative is rounding.
    """
    return inner(seen.gradient[:-1], seen.gradient[:-1]) / (2 * problems.penalty)
