"""Made probe problems of the shapes that medical sets have, and the objective by which any solution is judged.

Features have a power-law spectrum, heavy tails, unequal scales and means. Labels are CheXpert-shaped (2 to 50 per cent
prevalence, on request 0 to 80 per cent not observed) or ISIC-shaped (one of several classes, the rarest below 1 per
cent).
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from crs_assets.science.probes.standardisation import row_blocks

PREVALENCE = (0.02, 0.03, 0.05, 0.07, 0.10, 0.12, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50, 0.08, 0.06)
MISSING = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.1, 0.0, 0.2, 0.4, 0.1, 0.05, 0.6)
# Shares of the classes of ISIC 2019, most frequent first.
CLASS_SHARES = (0.508, 0.179, 0.131, 0.104, 0.034, 0.025, 0.010, 0.009)
LATENT = 64


@dataclass(frozen=True)
class Problem:
    """Features and labels of a probe.

    Attributes:
        x: (n, d) float32, as stored.
        y: (n, L) float64 with NaN = not observed, or (n,) int64 class indices.
    """

    x: np.ndarray
    y: np.ndarray

    @property
    def kind(self) -> str:
        """``multilabel`` or ``multiclass``."""
        return "multilabel" if self.y.ndim == 2 else "multiclass"

    @property
    def outputs(self) -> int:
        """Labels, or classes."""
        return self.y.shape[1] if self.y.ndim == 2 else int(self.y.max()) + 1

    def some(self, share: float, seed: int = 0) -> "Problem":
        """A share of the rows, drawn by the seed; a larger share holds the smaller one."""
        if share >= 1:
            return self
        rows = np.random.default_rng(seed).permutation(len(self.x))[: max(2, round(share * len(self.x)))]
        return Problem(self.x[np.sort(rows)], self.y[np.sort(rows)])


def multilabel(rows: int, dim: int, labels: int, *, missing: bool) -> Problem:
    """CheXpert-shaped."""
    stream = np.random.default_rng(0)
    x, latent = _features(stream, rows, dim)
    score = _evidence(stream, latent, labels) + stream.logistic(size=(rows, labels))
    y = np.empty((rows, labels))
    for label in range(labels):
        kind = label % len(PREVALENCE)
        y[:, label] = score[:, label] > np.quantile(score[:, label], 1 - PREVALENCE[kind])
        if missing:
            y[stream.random(rows) < MISSING[kind], label] = np.nan
    return Problem(x, y)


def multiclass(rows: int, dim: int, classes: int) -> Problem:
    """ISIC-shaped: classes as frequent as there, and as far apart as to be told apart in part."""
    stream = np.random.default_rng(0)
    x, latent = _features(stream, rows, dim)
    shares = np.resize(CLASS_SHARES, classes)
    score = _evidence(stream, latent, classes) + np.log(shares / shares.sum())
    y = (score + stream.gumbel(size=score.shape)).argmax(axis=1)
    # Every class has a row, whatever the draw.
    y[stream.permutation(rows)[:classes]] = np.arange(classes)
    return Problem(x, y.astype(np.int64))


def _features(stream: np.random.Generator, rows: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Features (rows, dim) float32, and the latent coordinates that labels depend on."""
    rotation = np.linalg.qr(stream.standard_normal((dim, dim)))[0]
    spectrum = np.sqrt((np.arange(1, dim + 1) + 3.0) ** -1.1)
    units = 5 * np.exp(0.5 * stream.standard_normal(dim))
    means = 0.7 * stream.standard_normal(dim)
    mixing = (rotation * spectrum).T * units
    x = np.empty((rows, dim), dtype=np.float32)
    latent = np.empty((rows, min(LATENT, dim)))
    for block in row_blocks(np.arange(rows)):
        tails = np.sqrt(8 / stream.chisquare(8, (len(block), 1)))
        coordinates = stream.standard_normal((len(block), dim)) * tails
        x[block] = coordinates @ mixing + means
        latent[block] = coordinates[:, : latent.shape[1]]
    return x, latent


def _evidence(stream: np.random.Generator, latent: np.ndarray, outputs: int) -> np.ndarray:
    used = latent.shape[1]
    loading = stream.standard_normal((used, outputs)) * (np.arange(1, used + 1) ** -0.4)[:, None]
    evidence: np.ndarray = 1.6 * latent @ (loading / np.linalg.norm(loading, axis=0))
    return evidence


def objectives(
    problem: Problem,
    mean: np.ndarray,
    scale: np.ndarray,
    weights: np.ndarray,
    intercepts: np.ndarray,
    lambdas: np.ndarray,
) -> np.ndarray:
    """Mean negative log-likelihood plus ``lambda / 2 |W|^2``, in float64, of solutions from anywhere.

    Args:
        problem: What was solved.
        mean: (d,) by which features are standardised.
        scale: (d,).
        weights: (P, C, d) on standardised features.
        intercepts: (P, C).
        lambdas: (P,).

    Returns:
        (P, L): a label is a problem of its own, a softmax is one.
    """
    penalties, outputs, dim = weights.shape
    is_multilabel = problem.kind == "multilabel"
    total = np.zeros((penalties, outputs if is_multilabel else 1))
    flat = weights.reshape(-1, dim).T
    for rows in row_blocks(np.arange(len(problem.x))):
        z = (problem.x[rows].astype(np.float64) - mean) / scale
        logits = (z @ flat).reshape(len(rows), penalties, outputs) + intercepts
        if is_multilabel:
            y = problem.y[rows][:, None, :]
            # A label that is not observed is NaN, and so is its loss, which is left out.
            with np.errstate(invalid="ignore"):
                total += np.nansum(np.logaddexp(0, -(2 * y - 1) * logits), axis=0)
        else:
            own = np.take_along_axis(logits, problem.y[rows][:, None, None], axis=2)[:, :, 0]
            total[:, 0] += (logsumexp(logits, axis=2) - own).sum(axis=0)
    seen = np.isfinite(problem.y).sum(axis=0) if is_multilabel else np.array([len(problem.y)])
    squares = (weights**2).sum(axis=2)
    norms = squares if is_multilabel else squares.sum(axis=1, keepdims=True)
    return total / seen + lambdas[:, None] / 2 * norms
