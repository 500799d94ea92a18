"""Dirichlet calibration: a full linear map of log-probabilities, off-diagonal and intercept regularised (ODIR)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax

from crs_assets.science.recalibration.folds import balanced_folds
from crs_assets.science.recalibration.logits import RIDGE, fitting_data, logit_array, minimise, probabilities
from crs_assets.science.validation import BoolArray, FloatArray

DIRICHLET_LAMBDAS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1)
"""Penalties tried by default: from practically free to practically vector scaling without its biases."""


@dataclass(frozen=True, eq=False)
class DirichletMap:
    """Linear map of log-probabilities.

    Attributes:
        weight: float64 (K, K); row k gives the new logit of class k.
        bias: float64 (K,).
        penalty: The lambda that was used.
        validation_losses: Mean held-out log loss of each lambda tried, in nats; empty if one was given.
    """

    weight: FloatArray
    bias: FloatArray
    penalty: float
    validation_losses: tuple[float, ...] = ()

    def transform_logits(self, logits: ArrayLike) -> FloatArray:
        """Recalibrated logits (n, K): rank these rather than probabilities, which saturate at 1.

        Raises:
            ValueError: If the logits are not (n, K) with the fitted K.
        """
        values = logit_array(logits)
        if values.ndim != 2 or values.shape[1] != len(self.bias):
            raise ValueError(f"logits has shape {values.shape}, the map was fitted on (n, {len(self.bias)}).")
        return _log_probabilities(values) @ self.weight.T + self.bias

    def transform(self, logits: ArrayLike) -> FloatArray:
        """Logits or log-probabilities (n, K) to probabilities (n, K).

        Raises:
            ValueError: If the logits are not finite or not (n, K) with the fitted K.
        """
        return probabilities(self.transform_logits(logits))


def fit_dirichlet(
    logits: ArrayLike,
    y_true: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    lambdas: Sequence[float] = DIRICHLET_LAMBDAS,
    n_folds: int = 3,
) -> DirichletMap:
    """Dirichlet calibration with ODIR [1]_, its penalty chosen by inner cross-validation.

    Minimises the mean negative log-likelihood + lambda (mean of squared off-diagonal weights + mean of squared
    biases). Ties between penalties go to the larger one. One binary label has the equivalent ``fit_vector``.

    Args:
        logits: Logits or log-probabilities (n, K).
        y_true: Class indices (n,), at least two classes.
        groups: Group of each row (n,); no group is on both sides of a fold. By default each row is its own.
        lambdas: Penalties to choose from; a single one is used without cross-validation.
        n_folds: Number of inner folds.

    Raises:
        ValueError: If shapes or values are not as described, or there are fewer groups than folds.
        RuntimeError: If an optimum is not reached.

    References:
        .. [1] Kull et al., "Beyond temperature scaling: Obtaining well-calibrated multi-class probabilities with
           Dirichlet calibration", NeurIPS 2019.
    """
    values, truth = fitting_data(logits, y_true)
    if values.ndim != 2:
        raise ValueError("logits is 1-D, expected (n, K); on one binary logit Dirichlet calibration is fit_vector.")
    if not len(lambdas) or min(lambdas) <= 0:
        raise ValueError(f"lambdas is {list(lambdas)}, expected at least one value above 0.")
    inputs = _log_probabilities(values)
    if len(lambdas) == 1:
        return DirichletMap(*_fit(inputs, truth, lambdas[0]), penalty=float(lambdas[0]))
    folds = balanced_folds(inputs, truth.argmax(axis=1), groups, n_folds)
    losses = [_held_out_loss(inputs, truth, folds == fold, lambdas) for fold in range(n_folds)]
    mean_losses = np.sum(losses, axis=0) / len(inputs)
    penalty = float(max(lam for lam, loss in zip(lambdas, mean_losses, strict=True) if loss == mean_losses.min()))
    weight, bias = _fit(inputs, truth, penalty)
    return DirichletMap(weight, bias, penalty, tuple(float(loss) for loss in mean_losses))


def _log_probabilities(logits: FloatArray) -> FloatArray:
    normalised: FloatArray = log_softmax(logits, axis=1)
    return normalised


def _held_out_loss(
    inputs: FloatArray,
    truth: FloatArray,
    held_out: BoolArray,
    lambdas: Sequence[float],
) -> FloatArray:
    """Summed log loss of the held-out rows for each penalty, largest first so that each fit starts near the last."""
    losses, start = np.empty(len(lambdas)), None
    for index in np.argsort(lambdas)[::-1]:
        start = _fit(inputs[~held_out], truth[~held_out], lambdas[index], start)
        losses[index] = _loss(inputs[held_out] @ start[0].T + start[1], truth[held_out])
    return losses


def _loss(scaled: FloatArray, truth: FloatArray) -> float:
    return float(-np.sum(truth * log_softmax(scaled, axis=1)))


def _fit(
    inputs: FloatArray, truth: FloatArray, penalty: float, start: tuple[FloatArray, FloatArray] | None = None
) -> tuple[FloatArray, FloatArray]:
    n_rows, n_classes = inputs.shape
    identity = np.concatenate((np.eye(n_classes), np.zeros((n_classes, 1))), axis=1)
    off_diagonal = 2 * penalty / (n_classes * (n_classes - 1))
    strength = np.where(np.eye(n_classes, n_classes + 1) == 1, 0.0, off_diagonal)
    strength[:, -1] = 2 * penalty / n_classes
    design = np.concatenate((inputs, np.ones((n_rows, 1))), axis=1)

    def objective(flat: FloatArray) -> tuple[float, FloatArray]:
        parameters = flat.reshape(identity.shape)
        scaled = design @ parameters.T
        # The penalties pull to the identity: its off-diagonal weights and biases are 0, as ODIR asks.
        away = parameters - identity
        gradient = (probabilities(scaled) - truth).T @ design / n_rows + (strength + RIDGE) * away
        loss = _loss(scaled, truth) / n_rows + float(np.sum((strength + RIDGE) * away**2)) / 2
        return loss, gradient.ravel()

    def hessian(flat: FloatArray) -> FloatArray:
        stated = probabilities(design @ flat.reshape(identity.shape).T)
        return _softmax_curvature(design, stated) + np.diag((strength + RIDGE).ravel())

    first = identity if start is None else np.concatenate((start[0], start[1][:, None]), axis=1)
    scale = float(np.abs(inputs).max())
    flat = minimise(objective, first.ravel(), "Dirichlet calibration", input_scale=scale, hessian=hessian)
    solution = flat.reshape(identity.shape)
    return solution[:, :-1], solution[:, -1]


def _softmax_curvature(design: FloatArray, stated: FloatArray) -> FloatArray:
    """Hessian of the mean softmax log loss, blocks X' diag(p_j (1[j = k] - p_k)) X / n."""
    n_classes, width = stated.shape[1], design.shape[1]
    blocks = np.empty((n_classes, width, n_classes, width))
    for j in range(n_classes):
        for k in range(j, n_classes):
            weight = stated[:, j] * (float(j == k) - stated[:, k]) / len(design)
            blocks[j, :, k, :] = blocks[k, :, j, :] = (design * weight[:, None]).T @ design
    return blocks.reshape(n_classes * width, n_classes * width)
