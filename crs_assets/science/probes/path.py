"""Fitted linear probes along the penalty grid, and their logits."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.probes.standardisation import row_blocks
from crs_assets.science.validation import FloatArray, IntArray


@dataclass(frozen=True)
class LinearPath:
    """Every fit of one cell: S sample sets x P penalties, of C outputs (classes, or labels) in L problems.

    A softmax over C classes is one problem (L = 1). Multilabel: each label is a problem of its own (L = C).

    Attributes:
        weights: (S, P, C, d) float32, on the features as stored (standardisation is folded in); the weight of a
            feature whose scale is ``inf`` is 0. NaN where a problem has no optimum, see ``notes``.
        intercepts: (S, P, C) float64.
        lambdas: (P,) float64, the penalties.
        objective: (S, P, L) float64: mean negative log-likelihood, nats, plus ``lambda / 2`` times the squared norm of
            the weights on standardised features. Lower is better.
        newton_decrement: (S, P, L) float64 estimate of ``objective`` minus its minimum, nats.
        duality_gap: (S, P, L) float64 upper bound on ``objective`` minus its minimum, nats. It is valid but loose: far
            above the truth at small penalties.
        passes: (S, P, L) int64: gradients and Hessian products taken over the rows.
        converged: (S, P, L) bool: ``newton_decrement`` is at most ``gap`` times ``objective``.
        notes: Problems that could not be fitted as asked, one sentence each.
    """

    weights: NDArray[np.float32]
    intercepts: FloatArray
    lambdas: FloatArray
    objective: FloatArray
    newton_decrement: FloatArray
    duality_gap: FloatArray
    passes: IntArray
    converged: NDArray[np.bool_]
    notes: tuple[str, ...] = ()

    def logits(self, features: NDArray[np.floating], sample_set: int, penalty: int) -> NDArray[np.float32]:
        """Logits (n, C) float32 of the fits of one sample set at one penalty, both given by position."""
        return predict_logits(features, self.weights[sample_set, penalty], self.intercepts[sample_set, penalty])


class SetFits(NamedTuple):
    """The fits of T targets at P penalties on one sample set; C outputs are T for sigmoids, the classes for a softmax.

    Attributes:
        weights: (P, C, d) float32.
        intercepts: (P, C) float64.
        objective: (P, T) float64.
        newton_decrement: (P, T) float64.
        duality_gap: (P, T) float64.
        passes: (P, T) int64.
        converged: (P, T) bool.
    """

    weights: NDArray[np.float32]
    intercepts: FloatArray
    objective: FloatArray
    newton_decrement: FloatArray
    duality_gap: FloatArray
    passes: IntArray
    converged: NDArray[np.bool_]


def predict_logits(
    features: NDArray[np.floating], weights: NDArray[np.floating], intercepts: NDArray[np.floating]
) -> NDArray[np.float32]:
    """Logits of linear probes, a block of rows at a time.

    Args:
        features: (n, d) as stored, not standardised; float32 or float16; may be memory-mapped.
        weights: (C, d) on the features as stored.
        intercepts: (C,).

    Returns:
        (n, C) float32, summed in float64 so that a large feature mean costs no digits.
    """
    return np.concatenate(
        [
            _logits(features, rows, weights, intercepts).astype(np.float32)
            for rows in row_blocks(np.arange(len(features)))
        ]
        or [np.empty((0, len(weights)), np.float32)]
    )


def path_logits(path: LinearPath, features: NDArray[np.floating], rows: IntArray, sample_set: int) -> FloatArray:
    """Logits (m, P, C) float64 of some rows at every penalty of a sample set."""
    penalties, outputs, _ = path.weights.shape[1:]
    weights = path.weights[sample_set].reshape(penalties * outputs, -1)
    logits = _logits(features, rows, weights, path.intercepts[sample_set].reshape(-1))
    return logits.reshape(len(rows), penalties, outputs)


def _logits(
    features: NDArray[np.floating],
    rows: IntArray,
    weights: NDArray[np.floating],
    intercepts: NDArray[np.floating],
) -> FloatArray:
    product: FloatArray = features[rows].astype(np.float64) @ weights.astype(np.float64).T
    return product + intercepts
