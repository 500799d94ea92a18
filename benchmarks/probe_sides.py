"""Three ways to fit every label or class at every penalty: the batched solver, scikit-learn, torch's L-BFGS.

Each takes a problem with the penalties and returns weights on standardised features, so that one function judges all.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from probe_problems import Problem
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from crs_assets.science.probes import fit_linear_path
from crs_assets.science.protocol import ProbeProtocol

MAX_ITERATIONS = 1000


class Solution(NamedTuple):
    """Fits of P penalties and C outputs in L problems.

    Attributes:
        weights: (P, C, d) float64 on standardised features.
        intercepts: (P, C) float64.
        converged: (P, L) bool, by the solver's own word.
    """

    weights: np.ndarray
    intercepts: np.ndarray
    converged: np.ndarray


Side = Callable[[Problem, np.ndarray, np.ndarray], Solution]


def batched(settings: ProbeProtocol, device: str = "cpu") -> Side:
    """The project's solver, at the protocol's gap."""

    def fit(problem: Problem, mean: np.ndarray, scale: np.ndarray) -> Solution:
        path = fit_linear_path(
            problem.x,
            problem.y,
            [np.arange(len(problem.x))],
            settings.lambdas,
            kind=problem.kind,
            mean=mean,
            scale=scale,
            gap=settings.gap,
            max_iterations=settings.max_iterations,
            device=device,
        )
        weights = path.weights[0].astype(np.float64)
        return Solution(weights * scale, path.intercepts[0] + weights @ mean, path.converged[0])

    return fit


def one_at_a_time(lambdas: Sequence[float], threads: int, tolerance: float) -> Side:
    """What one would write first: standardised once in float32, the observed rows of a label copied out, one fit each.

    Args:
        lambdas: Penalties.
        threads: Threads of the linear algebra.
        tolerance: scikit-learn's ``tol``: of the largest gradient.
    """

    def fit(problem: Problem, mean: np.ndarray, scale: np.ndarray) -> Solution:
        with threadpool_limits(threads):
            z = ((problem.x - mean.astype(np.float32)) / scale.astype(np.float32)).astype(np.float32)
            if problem.kind == "multiclass":
                fits = [[_sklearn(z, problem.y, penalty, tolerance)] for penalty in lambdas]
            else:
                fits = [[] for _ in lambdas]
                for label in range(problem.outputs):
                    seen = np.isfinite(problem.y[:, label])
                    of_label, target = z[seen], problem.y[seen, label]
                    for position, penalty in enumerate(lambdas):
                        fits[position].append(_sklearn(of_label, target, penalty, tolerance))
        return Solution(
            np.array([np.concatenate([fit[0] for fit in row]) for row in fits]),
            np.array([np.concatenate([fit[1] for fit in row]) for row in fits]),
            np.array([[fit[2] for fit in row] for row in fits]),
        )

    return fit


def _sklearn(
    z: np.ndarray, target: np.ndarray, penalty: float, tolerance: float
) -> tuple[np.ndarray, np.ndarray, bool]:
    model = LogisticRegression(C=1 / (penalty * len(target)), solver="lbfgs", tol=tolerance, max_iter=MAX_ITERATIONS)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(z, target)
    return model.coef_.astype(np.float64), model.intercept_.astype(np.float64), not raised


def torch_lbfgs(lambdas: Sequence[float]) -> Side:
    """``torch.optim.LBFGS`` on the sum of all objectives in float32: one line search for all problems."""

    def fit(problem: Problem, mean: np.ndarray, scale: np.ndarray) -> Solution:
        z = torch.from_numpy(((problem.x - mean) / scale).astype(np.float32))
        penalties = torch.tensor(lambdas, dtype=torch.float32)
        shape = (len(lambdas), problem.outputs)
        weights = torch.zeros((*shape, z.shape[1]), requires_grad=True)
        intercepts = torch.zeros(shape, requires_grad=True)
        optimiser = torch.optim.LBFGS(
            [weights, intercepts],
            max_iter=MAX_ITERATIONS,
            tolerance_grad=1e-7,
            tolerance_change=1e-12,
            line_search_fn="strong_wolfe",
        )
        loss = _torch_loss(problem)

        def closure() -> torch.Tensor:
            optimiser.zero_grad()
            logits = (z @ weights.reshape(-1, z.shape[1]).T).reshape(len(z), *shape) + intercepts
            value = loss(logits) + (penalties[:, None, None] / 2 * weights**2).sum()
            value.backward()
            return value

        optimiser.step(closure)
        is_done = optimiser.state[weights]["n_iter"] < MAX_ITERATIONS
        problems = problem.outputs if problem.kind == "multilabel" else 1
        return Solution(
            weights.detach().double().numpy(),
            intercepts.detach().double().numpy(),
            np.full((len(lambdas), problems), is_done),
        )

    return fit


def _torch_loss(problem: Problem) -> Callable[[torch.Tensor], torch.Tensor]:
    """Sum over penalties and problems of the mean negative log-likelihood of logits (n, P, C)."""
    if problem.kind == "multiclass":
        target = torch.from_numpy(problem.y)

        def softmax_loss(logits: torch.Tensor) -> torch.Tensor:
            repeated = target[:, None].expand(logits.shape[:2])
            return torch.nn.functional.cross_entropy(logits.movedim(2, 1), repeated, reduction="sum") / len(target)

        return softmax_loss
    seen = torch.from_numpy(np.isfinite(problem.y)).float()
    target = torch.from_numpy(np.nan_to_num(problem.y)).float()
    share = seen / seen.sum(dim=0)

    def sigmoid_loss(logits: torch.Tensor) -> torch.Tensor:
        each = torch.nn.functional.softplus(logits) - target[:, None] * logits
        return (each * share[:, None]).sum()

    return sigmoid_loss
