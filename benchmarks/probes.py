"""Linear probes of one multilabel cell: the batched solver against scikit-learn, one fit at a time.

The data are synthetic and CheXpert-shaped: features with a power-law spectrum and heavy tails, labels of 2 to 50 per
cent prevalence of which 0 to 80 per cent are not observed. Both sides fit every label at every penalty of the protocol,
in the same run, alternating. scikit-learn's side is what one would write first: float32, standardised once, the
observed rows of each label copied out, ``LogisticRegression(solver="lbfgs", tol=1e-4)``. Beside the times stand how far
each side's objectives lie above the lower of the two, and the fits that either side says did not converge.

    python benchmarks/probes.py [--rows 4000] [--dim 256] [--labels 6] [--repetitions 3] [--json FILE]
"""

import argparse
import json
import os
import platform
import statistics
import time
import warnings
from importlib.metadata import version
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from crs_assets.science.probes import fit_linear_path, standardisation
from crs_assets.science.protocol import Protocol, load_protocol

PREVALENCE = (0.02, 0.03, 0.05, 0.07, 0.10, 0.12, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50, 0.08, 0.06)
MISSING = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.1, 0.0, 0.2, 0.4, 0.1, 0.05, 0.6)
LATENT = 64


def synthetic(rows: int, dim: int, labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Features (rows, dim) float32 and labels (rows, labels) with NaN = not observed."""
    stream = np.random.default_rng(0)
    rotation = np.linalg.qr(stream.standard_normal((dim, dim)))[0]
    spread = np.sqrt((np.arange(1, dim + 1) + 3.0) ** -1.1)
    tails = np.sqrt(8 / stream.chisquare(8, (rows, 1)))
    latent = stream.standard_normal((rows, dim)) * tails
    units = 5 * np.exp(0.5 * stream.standard_normal(dim))
    x = ((latent * spread) @ rotation.T * units + 0.7 * stream.standard_normal(dim)).astype(np.float32)
    used = min(LATENT, dim)
    loading = stream.standard_normal((used, labels)) * (np.arange(1, used + 1) ** -0.4)[:, None]
    score = 1.6 * latent[:, :used] @ (loading / np.linalg.norm(loading, axis=0)) + stream.logistic(size=(rows, labels))
    y = np.empty((rows, labels))
    for label in range(labels):
        kind = label % len(PREVALENCE)
        y[:, label] = score[:, label] > np.quantile(score[:, label], 1 - PREVALENCE[kind])
        y[stream.random(rows) < MISSING[kind], label] = np.nan
    return x, y


def batched(x: np.ndarray, y: np.ndarray, protocol: Protocol) -> tuple[np.ndarray, np.ndarray]:
    """Objectives and convergence, (penalties, labels)."""
    settings, rows = protocol.probe, np.arange(len(x))
    mean, scale = standardisation(x, rows, std_floor=settings.std_floor, std_zero=settings.std_zero)
    path = fit_linear_path(
        x,
        y,
        [rows],
        settings.lambdas,
        kind="multilabel",
        mean=mean,
        scale=scale,
        gap=settings.gap,
        max_iterations=settings.max_iterations,
    )
    return path.objective[0], path.converged[0]


def one_at_a_time(x: np.ndarray, y: np.ndarray, protocol: Protocol) -> tuple[np.ndarray, np.ndarray]:
    """The same by scikit-learn."""
    settings, rows = protocol.probe, np.arange(len(x))
    mean, scale = standardisation(x, rows, std_floor=settings.std_floor, std_zero=settings.std_zero)
    standardised = ((x - mean.astype(np.float32)) / scale.astype(np.float32)).astype(np.float32)
    objective, converged = np.empty((2, len(settings.lambdas), y.shape[1]))
    for label in range(y.shape[1]):
        seen = np.isfinite(y[:, label])
        of_label, target = standardised[seen], y[seen, label]
        for p, penalty in enumerate(settings.lambdas):
            model = LogisticRegression(C=1 / (penalty * len(target)), solver="lbfgs", tol=1e-4, max_iter=1000)
            with warnings.catch_warnings(record=True) as raised:
                warnings.simplefilter("always", ConvergenceWarning)
                model.fit(of_label, target)
            weights = model.coef_[0].astype(np.float64)
            logits = of_label.astype(np.float64) @ weights + float(model.intercept_[0])
            loss = np.logaddexp(0, -(2 * target - 1) * logits).mean()
            objective[p, label] = loss + penalty / 2 * weights @ weights
            converged[p, label] = not raised
    return objective, converged == 1


def summary(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def compare(rows: int, dim: int, labels: int, repetitions: int) -> dict[str, object]:
    protocol = load_protocol("crs-v1")
    x, y = synthetic(rows, dim, labels)
    batched(x, y, protocol)
    seconds: dict[str, list[float]] = {"sklearn": [], "batched": []}
    found = {}
    for _ in range(repetitions):
        for name, run in (("sklearn", one_at_a_time), ("batched", batched)):
            start = time.perf_counter()
            found[name] = run(x, y, protocol)
            seconds[name].append(time.perf_counter() - start)
    least = np.minimum(found["sklearn"][0], found["batched"][0])
    return {
        "rows": rows,
        "dim": dim,
        "labels": labels,
        "fits": int(least.size),
        "repetitions": repetitions,
        **{f"{name}_seconds": summary(values) for name, values in seconds.items()},
        "ratio": summary([a / b for a, b in zip(seconds["sklearn"], seconds["batched"], strict=True)]),
        **{f"{name}_worst_excess": float(np.max(objective / least - 1)) for name, (objective, _) in found.items()},
        **{f"{name}_not_converged": int((~converged).sum()) for name, (_, converged) in found.items()},
    }


def machine() -> dict[str, object]:
    import torch

    return {
        "machine": platform.machine(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("numpy", "scikit-learn", "scipy", "torch")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--labels", type=int, default=6)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    report = {**machine(), **compare(options.rows, options.dim, options.labels, options.repetitions)}
    for name, value in report.items():
        print(f"{name}: {value}")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
