"""Ways to fit every label or class at every penalty: the batched solver, scikit-learn, torch's L-BFGS, a peer's solver.

Each takes a problem with its standardisation and returns weights on standardised features, so that one function judges
all.
"""

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
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


Fit = Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray, bool]]
"""Standardised rows, labels and a penalty -> weights (1 or K, d), intercepts, converged."""


def one_at_a_time(lambdas: Sequence[float], threads: int, tolerance: float) -> Side:
    """scikit-learn as one would write it first.

    Args:
        lambdas: Penalties.
        threads: Threads of the linear algebra.
        tolerance: scikit-learn's ``tol``: of the largest gradient.
    """

    def sklearn_fit(z: np.ndarray, target: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray, bool]:
        c = 1 / (penalty * len(target))
        model = LogisticRegression(C=c, solver="lbfgs", tol=tolerance, max_iter=MAX_ITERATIONS)
        with warnings.catch_warnings(record=True) as raised:
            warnings.simplefilter("always", ConvergenceWarning)
            model.fit(z, target)
        return model.coef_, model.intercept_, not raised

    def fit(problem: Problem, mean: np.ndarray, scale: np.ndarray) -> Solution:
        with threadpool_limits(threads):
            return _each(problem, mean, scale, lambdas, sklearn_fit)

    return fit


def torchgeo_bench(file: Path, lambdas: Sequence[float]) -> Side:
    """The logistic regression of torchgeo-bench (MIT): scikit-learn's objective by ``torch.optim.LBFGS``, fit by fit.

    Args:
        file: ``torchgeo_bench/linear.py`` of its wheel, which needs torch and numpy alone.
        lambdas: Penalties.
    """
    found = importlib.util.spec_from_file_location("torchgeo_bench_linear", file)
    peer = importlib.util.module_from_spec(found)
    found.loader.exec_module(peer)

    def peer_fit(z: np.ndarray, target: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray, bool]:
        is_softmax = np.issubdtype(target.dtype, np.integer)
        labels = torch.from_numpy(target if is_softmax else target[:, None])
        model = peer.LogisticRegression(
            C=1 / (penalty * len(target)), max_iter=MAX_ITERATIONS, multi_label=not is_softmax
        )
        model.fit(torch.from_numpy(z), labels)
        return model.coef_, model.intercept_, model.n_iter_ < MAX_ITERATIONS

    def fit(problem: Problem, mean: np.ndarray, scale: np.ndarray) -> Solution:
        return _each(problem, mean, scale, lambdas, peer_fit)

    return fit


def _each(problem: Problem, mean: np.ndarray, scale: np.ndarray, lambdas: Sequence[float], fit: Fit) -> Solution:
    """Standardise once in float32, copy the observed rows of a label out, and fit penalty by penalty."""
    z = ((problem.x - mean.astype(np.float32)) / scale.astype(np.float32)).astype(np.float32)
    fits: list[list[tuple[np.ndarray, np.ndarray, bool]]] = [[] for _ in lambdas]
    if problem.kind == "multiclass":
        fits = [[fit(z, problem.y, penalty)] for penalty in lambdas]
    else:
        for label in range(problem.outputs):
            seen = np.isfinite(problem.y[:, label])
            of_label, target = z[seen], problem.y[seen, label]
            for position, penalty in enumerate(lambdas):
                fits[position].append(fit(of_label, target, penalty))
    return Solution(
        np.array([np.concatenate([found[0] for found in row]) for row in fits], dtype=np.float64),
        np.array([np.concatenate([found[1] for found in row]) for row in fits], dtype=np.float64),
        np.array([[found[2] for found in row] for row in fits]),
    )


def torch_lbfgs(lambdas: Sequence[float], device: str = "cpu") -> Side:
    """``torch.optim.LBFGS`` on the sum of all objectives in float32: one line search for all problems."""

    def fit(problem: Problem, mean: np.ndarray, scale: np.ndarray) -> Solution:
        z = torch.from_numpy(((problem.x - mean) / scale).astype(np.float32)).to(device)
        penalties = torch.tensor(lambdas, dtype=torch.float32, device=device)
        shape = (len(lambdas), problem.outputs)
        weights = torch.zeros((*shape, z.shape[1]), requires_grad=True, device=device)
        intercepts = torch.zeros(shape, requires_grad=True, device=device)
        optimiser = torch.optim.LBFGS(
            [weights, intercepts],
            max_iter=MAX_ITERATIONS,
            tolerance_grad=1e-7,
            tolerance_change=1e-12,
            line_search_fn="strong_wolfe",
        )
        loss = _torch_loss(problem, device)

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
            weights.detach().double().cpu().numpy(),
            intercepts.detach().double().cpu().numpy(),
            np.full((len(lambdas), problems), is_done),
        )

    return fit


def _torch_loss(problem: Problem, device: str) -> Callable[[torch.Tensor], torch.Tensor]:
    """Sum over penalties and problems of the mean negative log-likelihood of logits (n, P, C)."""
    if problem.kind == "multiclass":
        target = torch.from_numpy(problem.y).to(device)

        def softmax_loss(logits: torch.Tensor) -> torch.Tensor:
            repeated = target[:, None].expand(logits.shape[:2])
            return torch.nn.functional.cross_entropy(logits.movedim(2, 1), repeated, reduction="sum") / len(target)

        return softmax_loss
    seen = torch.from_numpy(np.isfinite(problem.y)).float().to(device)
    target = torch.from_numpy(np.nan_to_num(problem.y)).float().to(device)
    share = seen / seen.sum(dim=0)

    def sigmoid_loss(logits: torch.Tensor) -> torch.Tensor:
        each = torch.nn.functional.softplus(logits) - target[:, None] * logits
        return (each * share[:, None]).sum()

    return sigmoid_loss
