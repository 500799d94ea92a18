"""What every recalibration map shares: its input, the link to probabilities, and the penalised likelihood."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, softmax

from crs_assets.science.validation import FloatArray, class_indices, finite_array

RIDGE = 1e-6
"""Weight of (ridge / 2) ||parameters - identity||^2: too small to matter, enough that separable data, an absent class
and the shift a softmax cannot see all leave one finite optimum."""

_GRADIENT_GOAL = 1e-9
_GRADIENT_LIMIT = 1e-6
_MAX_ITERATIONS = 5000


def logit_array(logits: ArrayLike) -> FloatArray:
    """Logits as float64: (n,) for one binary label, (n, K) with K >= 2 for classes.

    Raises:
        ValueError: If they are not finite or have another shape.
    """
    values = finite_array(logits, name="logits", ndim=(1, 2))
    if values.ndim == 2 and values.shape[1] < 2:
        raise ValueError(f"logits has shape {values.shape}, expected at least 2 columns; pass one binary label as 1-D.")
    return values


def probabilities(logits: FloatArray) -> FloatArray:
    """Softmax over the last axis of (n, K), sigmoid of (n,)."""
    linked: FloatArray = expit(logits) if logits.ndim == 1 else softmax(logits, axis=1)
    return linked


def fitting_data(logits: ArrayLike, y_true: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Logits with the truth in their shape: 0/1 for one binary label, one-hot rows for classes.

    Raises:
        ValueError: If shapes or values are wrong, or only one class occurs.
    """
    values = logit_array(logits)
    n_classes = 2 if values.ndim == 1 else values.shape[1]
    if values.ndim == 1 and np.asarray(y_true).dtype.kind == "f" and np.isin(y_true, (0, 1)).all():
        y_true = np.asarray(y_true).astype(np.int64)
    labels = class_indices(y_true, n_classes=n_classes, n_rows=len(values))
    if len(np.unique(labels)) < 2:
        raise ValueError(
            f"the {len(labels)} calibration rows are all of class {labels[0]}, expected at least two classes; "
            "leave this label uncalibrated or enlarge the calibration split."
        )
    if values.ndim == 1:
        return values, labels.astype(np.float64)
    return values, (labels[:, None] == np.arange(n_classes)).astype(np.float64)


def minimise(
    objective: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    what: str,
    *,
    input_scale: float,
    hessian: Callable[[FloatArray], FloatArray] | None = None,
) -> FloatArray:
    """Minimise a smooth, strictly convex function: by L-BFGS, or by trust-region Newton where a Hessian is given.

    Args:
        objective: Returns the value and its gradient.
        start: Where to begin.
        what: Name of the fit in messages.
        input_scale: Largest absolute input: a gradient is an error times an input, and is judged by that.
        hessian: Returns the matrix of second derivatives.

    Raises:
        RuntimeError: If the search ends before the gradient is flat.
    """
    if hessian is None:
        options = {"maxiter": _MAX_ITERATIONS, "maxfun": 2 * _MAX_ITERATIONS, "gtol": _GRADIENT_GOAL, "ftol": 0.0}
        result = minimize(objective, start, jac=True, method="L-BFGS-B", options={**options, "maxcor": 20})
    else:
        options = {"maxiter": _MAX_ITERATIONS, "gtol": _GRADIENT_GOAL}
        result = minimize(objective, start, jac=True, hess=hessian, method="trust-exact", options=options)
    # Near the optimum a step can no longer lower the loss in float64: the gradient, not the status, is the judge.
    steepest = float(np.abs(result.jac).max())
    if not steepest <= _GRADIENT_LIMIT * max(1.0, input_scale):
        raise RuntimeError(
            f"{what} did not converge: largest gradient {steepest:.2g} after {result.nit} iterations "
            f"({result.message}); check the logits for extreme values."
        )
    solution: FloatArray = result.x
    return solution
