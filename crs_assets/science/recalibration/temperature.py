"""Temperature scaling: one positive number that divides all logits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from crs_assets.science.recalibration.logits import fitting_data, logit_array, probabilities
from crs_assets.science.validation import FloatArray

_LOG_TEMPERATURE_BOUND = float(np.log(1e3))
"""Separable or reversed logits have their optimum at 0 or infinity; the search stops at 1e-3 and 1e3."""


@dataclass(frozen=True)
class TemperatureMap:
    """Divide logits by a temperature: above 1 softens, below 1 sharpens.

    Attributes:
        temperature: The divisor; 1 reproduces the softmax or sigmoid of the logits bit for bit.
        is_at_bound: Whether the likelihood still rises at the bound of the search.
    """

    temperature: float
    is_at_bound: bool = False

    def transform_logits(self, logits: ArrayLike) -> FloatArray:
        """Recalibrated logits, same shape: rank these rather than probabilities, which saturate at 1."""
        return logit_array(logits) / self.temperature

    def transform(self, logits: ArrayLike) -> FloatArray:
        """Logits (n, K) to softmax probabilities (n, K); logits (n,) to positive-class probabilities (n,).

        The top label never changes, nor the order of one column of binary logits.

        Raises:
            ValueError: If the logits are not finite or have another shape.
        """
        return probabilities(self.transform_logits(logits))


def fit_temperature(logits: ArrayLike, y_true: ArrayLike) -> TemperatureMap:
    """Temperature of greatest likelihood [1]_, found as the root of the derivative over log T.

    The negative log-likelihood is convex in 1 / T, so it has one minimum in log T.

    Args:
        logits: Logits (n, K) for classes, or (n,) for one binary label. Log-probabilities are logits.
        y_true: Class indices (n,), or 0/1 labels (n,) of which both occur.

    Raises:
        ValueError: If shapes or values are not as described.

    References:
        .. [1] Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", ICML 2017.
    """
    values, truth = fitting_data(logits, y_true)

    def slope(log_temperature: float) -> float:
        """Derivative of the mean negative log-likelihood with respect to 1 / T: expected minus observed logit."""
        stated = probabilities(values * np.exp(-log_temperature))
        return float(np.sum((stated - truth) * values) / len(values))

    if slope(-_LOG_TEMPERATURE_BOUND) <= 0:
        return TemperatureMap(float(np.exp(-_LOG_TEMPERATURE_BOUND)), is_at_bound=True)
    if slope(_LOG_TEMPERATURE_BOUND) >= 0:
        return TemperatureMap(float(np.exp(_LOG_TEMPERATURE_BOUND)), is_at_bound=True)
    root = brentq(slope, -_LOG_TEMPERATURE_BOUND, _LOG_TEMPERATURE_BOUND, xtol=1e-12)
    return TemperatureMap(float(np.exp(root)))
