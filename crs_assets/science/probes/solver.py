"""All fits of one sample set: quasi-Newton steps together, Newton steps for what is left, a check in float64."""

import numpy as np
import torch  # noqa: TID253  # imported only when a probe is fitted
from numpy.typing import NDArray
from torch import Tensor  # noqa: TID253

from crs_assets.science.probes.design import build_design
from crs_assets.science.probes.lbfgs import Progress, minimise
from crs_assets.science.probes.losses import Loss, Problems, SigmoidLoss, SoftmaxLoss
from crs_assets.science.probes.newton import polish, settle_intercepts
from crs_assets.science.probes.objective import Evaluation, Objective, inner
from crs_assets.science.probes.path import SetFits
from crs_assets.science.probes.preconditioning import SpectralPreconditioner
from crs_assets.science.validation import FloatArray, IntArray

_QUASI_NEWTON_PASSES = 35
"""Well-conditioned problems finish within 10 to 20 passes; beyond this a Newton step is cheaper than waiting."""
_MARGIN = 0.1
"""Quasi-Newton steps estimate the decrement with an approximate Hessian, so they aim this much below the gap."""
_CONFIRMED = 0.25
"""The same estimate from float64 gradients: below this share of the gap the fit is done."""
_WORKING_BYTES = 256 * 2**20
"""Memory for the Newton steps of the problems that are taken together."""


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
    progress = _minimise(objective, problems, gap=gap, max_iterations=max_iterations)
    progress.parameters = _settled(objective, problems, progress.parameters)
    final = objective.evaluate(progress.parameters, problems)
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


def _minimise(objective: Objective, problems: Problems, *, gap: float, max_iterations: int) -> Progress:
    """Quasi-Newton steps for all, then Newton steps for those that have not converged."""
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
    progress.parameters = progress.parameters.to(torch.float64)
    if working.dtype == torch.float32:
        _confirm(objective, problems, progress, gap)
    left = torch.nonzero(~progress.converged)[:, 0]
    steps = max_iterations - first_passes
    for group in torch.split(left, _group_size(objective)) if steps and len(left) else ():
        polished = polish(objective, problems.select(group), progress.parameters[:, group], gap=gap, max_steps=steps)
        progress.parameters[:, group] = polished.parameters
        progress.decrement[group], progress.value[group] = polished.decrement, polished.value
        progress.passes[group] += polished.passes
    return progress


def _group_size(objective: Objective) -> int:
    """Problems whose logits, in the handful of copies that Newton steps hold, fit into the working memory."""
    return max(1, _WORKING_BYTES // (8 * 8 * objective.design.rows * objective.loss.outputs))


def _settled(objective: Objective, problems: Problems, parameters: Tensor) -> Tensor:
    """Intercepts made exact for their weights, some problems at a time."""
    everything = torch.arange(len(problems), device=parameters.device)
    groups = torch.split(everything, _group_size(objective))
    return torch.cat(
        [settle_intercepts(objective, problems.select(group), parameters[:, group]) for group in groups], dim=1
    )


def _confirm(objective: Objective, problems: Problems, progress: Progress, gap: float) -> None:
    """Repeat in float64 what quasi-Newton steps concluded in float32; what fails goes on to Newton steps."""
    seen = objective.evaluate(progress.parameters, problems)
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
