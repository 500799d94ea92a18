"""The same fits by scikit-learn, one at a time: slow, independent, for comparison."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from crs_assets.science.probes.path import SetFits
from crs_assets.science.validation import FloatArray, IntArray

_TOLERANCE = 1e-10


def solve_set_with_sklearn(
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    rows: IntArray,
    lambdas: FloatArray,
    scale: FloatArray,
    *,
    gap: float,  # noqa: ARG001  # same call as solve_set; this estimator has a tolerance of its own
    max_iterations: int,
    device: str,
) -> SetFits:
    """Fit every target at every penalty with ``LogisticRegression(solver="newton-cholesky")`` in float64.

    Arguments as of ``solver.solve_set``. Rows are standardised as a whole, in memory; ``device`` must be the CPU. The
    estimator reports neither decrement nor dual: ``newton_decrement`` is the bound ``duality_gap``, which is far above
    the truth at small penalties, and ``converged`` says only that the iterations did not run out.

    Raises:
        ValueError: If the device is not ``cpu``.
    """
    if device != "cpu":
        raise ValueError(f"the sklearn backend computes on the cpu, not on {device!r}; choose backend='batched'.")
    mean = features[rows].mean(axis=0, dtype=np.float64)
    standardised = (features[rows].astype(np.float64) - mean) / scale
    columns = labels[:, None] if labels.ndim == 1 else labels
    fits = [[_fit(standardised, column, penalty, max_iterations) for column in columns.T] for penalty in lambdas]
    coefficients = np.array([np.concatenate([fit[0] for fit in row]) for row in fits]) / scale
    offsets = np.array([np.concatenate([fit[1] for fit in row]) for row in fits])
    weights = coefficients.astype(np.float32)
    objective, bound = (np.array([[fit[which] for fit in row] for row in fits]) for which in (2, 3))
    iterations = np.array([[fit[4] for fit in row] for row in fits])
    return SetFits(
        weights=weights,
        intercepts=offsets - weights.astype(np.float64) @ mean,
        objective=objective,
        newton_decrement=bound,
        duality_gap=bound,
        passes=iterations,
        converged=iterations < max_iterations,
    )


def _fit(
    standardised: FloatArray, column: NDArray[np.generic], penalty: float, max_iterations: int
) -> tuple[FloatArray, FloatArray, float, float, int]:
    """Coefficients (K, d), intercepts (K,), objective, bound on the gap and iterations of one problem.

    scikit-learn fits two classes as a sigmoid: with weights -w / 2 and w / 2 the softmax has the same probabilities and
    the squared norm |w|^2 / 2, hence half the penalty.
    """
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    observed = np.isfinite(column.astype(np.float64))
    x, y = standardised[observed], column[observed].astype(np.int64)
    is_two_class_softmax = column.dtype.kind == "i" and y.max() == 1
    effective = penalty / 2 if is_two_class_softmax else penalty
    model = LogisticRegression(
        C=1 / (effective * len(y)), solver="newton-cholesky", tol=_TOLERANCE, max_iter=max_iterations
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    coefficients, offsets = model.coef_, model.intercept_
    if is_two_class_softmax:
        coefficients, offsets = np.concatenate([-coefficients, coefficients]) / 2, np.append(-offsets, offsets) / 2
    value, gradient = _objective(x, y, coefficients, offsets, penalty)
    return coefficients, offsets, value, float((gradient**2).sum() / (2 * penalty)), int(np.max(model.n_iter_))


def _objective(
    x: FloatArray, y: IntArray, coefficients: FloatArray, offsets: FloatArray, penalty: float
) -> tuple[float, FloatArray]:
    """Value, and gradient by the coefficients (K, d); one coefficient row is a sigmoid."""
    logits = x @ coefficients.T + offsets
    if len(coefficients) == 1:
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
    log_probability = log_softmax(logits, axis=1)
    residual = np.exp(log_probability)
    residual[np.arange(len(y)), y] -= 1
    gradient = residual[:, -len(coefficients) :].T @ x / len(y) + penalty * coefficients
    loss = -log_probability[np.arange(len(y)), y].mean()
    return float(loss + penalty / 2 * (coefficients**2).sum()), gradient
