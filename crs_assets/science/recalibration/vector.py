"""Vector scaling: a weight and a bias for each class; on one binary logit this is Platt scaling."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit, log_softmax

from crs_assets.science.recalibration.logits import RIDGE, fitting_data, logit_array, minimise, probabilities
from crs_assets.science.validation import FloatArray


@dataclass(frozen=True, eq=False)
class VectorMap:
    """Multiply each logit by its weight and add its bias.

    Attributes:
        weight: float64 (K,), or (1,) for one binary label.
        bias: float64, same shape.
    """

    weight: FloatArray
    bias: FloatArray

    def transform_logits(self, logits: ArrayLike) -> FloatArray:
        """Recalibrated logits, same shape: rank these rather than probabilities, which saturate at 1.

        Raises:
            ValueError: If the number of columns is not the one fitted.
        """
        values = logit_array(logits)
        columns = 1 if values.ndim == 1 else values.shape[1]
        if columns != len(self.weight):
            raise ValueError(f"logits has {columns} column(s), the map was fitted on {len(self.weight)}.")
        return values * self.weight + self.bias

    def transform(self, logits: ArrayLike) -> FloatArray:
        """Logits (n, K) to softmax probabilities (n, K); logits (n,) to positive-class probabilities (n,).

        Raises:
            ValueError: If the logits are not finite or have another shape than the fitted one.
        """
        return probabilities(self.transform_logits(logits))


def fit_vector(logits: ArrayLike, y_true: ArrayLike) -> VectorMap:
    """Weights and biases of greatest likelihood [1]_; for one binary logit, Platt's sigmoid [2]_, unsmoothed.

    Args:
        logits: Logits (n, K) for classes, or (n,) for one binary label. Log-probabilities are logits.
        y_true: Class indices (n,), or 0/1 labels (n,) of which both occur.

    Raises:
        ValueError: If shapes or values are not as described.
        RuntimeError: If the optimum is not reached.

    References:
        .. [1] Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", ICML 2017.
        .. [2] Platt, "Probabilistic outputs for support vector machines", Advances in Large Margin Classifiers, 1999.
    """
    values, truth = fitting_data(logits, y_true)
    columns = 1 if values.ndim == 1 else values.shape[1]
    identity = np.concatenate((np.ones(columns), np.zeros(columns)))

    def objective(parameters: FloatArray) -> tuple[float, FloatArray]:
        scaled = values * parameters[:columns] + parameters[columns:]
        residual = (probabilities(scaled) - truth) / len(values)
        gradient = np.concatenate([np.atleast_1d((residual * factor).sum(axis=0)) for factor in (values, 1.0)])
        away = parameters - identity
        return _mean_loss(scaled, truth) + RIDGE / 2 * float(away @ away), gradient + RIDGE * away

    solution = minimise(objective, identity, "vector scaling", input_scale=float(np.abs(values).max()))
    weight, bias = np.split(solution, 2)
    return VectorMap(weight, bias)


def _mean_loss(scaled: FloatArray, truth: FloatArray) -> float:
    if scaled.ndim == 1:
        return float(-np.mean(truth * log_expit(scaled) + (1 - truth) * log_expit(-scaled)))
    return float(-np.sum(truth * log_softmax(scaled, axis=1)) / len(scaled))
