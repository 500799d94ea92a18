"""Small data for the tests of probes, and the objective written out once more in plain numpy."""

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

LAMBDAS = np.geomspace(1e-5, 1e3, 13)


def features(n, d, seed=0):
    """Correlated, shifted, unequally scaled float32 features."""
    stream = np.random.default_rng(seed)
    mixing = stream.standard_normal((d, d)) * (np.arange(1, d + 1) ** -0.7)[:, None]
    return (stream.standard_normal((n, d)) @ mixing * np.exp(stream.standard_normal(d)) + 2).astype(np.float32)


def binary_labels(x, labels=4, seed=1, missing=0.2):
    """(n, L) labels of different prevalence, some not observed; each has both values."""
    stream = np.random.default_rng(seed)
    z = (x - x.mean(0)) / x.std(0)
    scores = z @ stream.standard_normal((x.shape[1], labels)) + 2 * stream.logistic(size=(len(x), labels))
    y = (scores > np.quantile(scores, np.linspace(0.3, 0.9, labels), axis=0).diagonal()).astype(np.float64)
    hidden = stream.random(y.shape) < missing
    hidden[np.argmax(scores, axis=0), np.arange(labels)] = False
    hidden[np.argmin(scores, axis=0), np.arange(labels)] = False
    y[hidden] = np.nan
    return y


def classes(x, count=4, seed=1):
    """(n,) class indices, each class with a row."""
    stream = np.random.default_rng(seed)
    z = (x - x.mean(0)) / x.std(0)
    scores = z @ stream.standard_normal((x.shape[1], count)) + stream.gumbel(size=(len(x), count))
    y = scores.argmax(1)
    y[:count] = np.arange(count)
    return y


def sigmoid_objective(x, y, scale, penalty, weights, intercept):
    """Mean log loss over observed rows plus penalty, from weights on the stored features."""
    seen = np.isfinite(y)
    logits = x[seen].astype(np.float64) @ weights.astype(np.float64) + intercept
    standardised = np.where(np.isinf(scale), 0.0, weights * np.where(np.isinf(scale), 0.0, scale))
    sign = 2 * y[seen] - 1
    return np.logaddexp(0, -sign * logits).mean() + penalty / 2 * (standardised**2).sum()


def softmax_objective(x, y, scale, penalty, weights, intercepts):
    """The same for a softmax, weights (K, d)."""
    logits = x.astype(np.float64) @ weights.astype(np.float64).T + intercepts
    standardised = np.where(np.isinf(scale), 0.0, weights * np.where(np.isinf(scale), 0.0, scale))
    return -log_softmax(logits, axis=1)[np.arange(len(y)), y].mean() + penalty / 2 * (standardised**2).sum()


def sigmoid_minimum(x, y, mean, scale, penalty):
    """Least objective and its logits, by scipy's trust-region Newton in float64 on the standardised features."""
    seen = np.isfinite(y)
    z = np.column_stack([(x[seen].astype(np.float64) - mean) / scale, np.ones(seen.sum())])
    target, ridge = y[seen], np.append(np.full(x.shape[1], penalty), 0.0)

    def value(w):
        return np.logaddexp(0, -(2 * target - 1) * (z @ w)).mean() + (ridge * w**2).sum() / 2

    def gradient(w):
        return z.T @ (expit(z @ w) - target) / len(target) + ridge * w

    def hessian(w):
        p = expit(z @ w)
        return (z * (p * (1 - p))[:, None]).T @ z / len(target) + np.diag(ridge)

    found = minimize(value, np.zeros(z.shape[1]), jac=gradient, hess=hessian, method="trust-exact", tol=1e-11)
    return found.fun, np.column_stack([(x.astype(np.float64) - mean) / scale, np.ones(len(x))]) @ found.x
