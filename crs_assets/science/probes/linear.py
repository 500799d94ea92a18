"""The linear probe: every label, class and penalty of a cell and seed, on every sample set."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import logsumexp

from crs_assets.science.probes.path import LinearPath, SetFits
from crs_assets.science.probes.standardisation import non_finite_rows
from crs_assets.science.validation import FloatArray, IntArray, refuse

KindType = Literal["multiclass", "multilabel"]
BackendType = Literal["batched", "sklearn"]

_ABSENT_CLASS_COUNT = 0.5


def fit_linear_path(
    features: NDArray[np.floating],
    labels: NDArray[np.generic],
    sample_sets: Sequence[ArrayLike],
    lambdas: ArrayLike,
    *,
    kind: KindType,
    mean: ArrayLike,
    scale: ArrayLike,
    gap: float = 1e-8,
    max_iterations: int = 400,
    device: str = "cpu",
    backend: BackendType = "batched",
) -> LinearPath:
    """Fit regularised logistic regressions on every sample set at every penalty.

    Minimises, over the rows of a sample set on which a problem is observed,

        mean negative log-likelihood + lambda / 2 * |W|^2,    logits = W (x - mean) / scale + b,

    with ``b`` free. ``kind="multiclass"`` is one softmax over all classes, ``"multilabel"`` a sigmoid per label on the
    rows where it is observed. In scikit-learn's terms, C = 1 / (lambda n). Features are neither copied nor standardised
    as a whole: rows are gathered a block at a time and the standardisation is folded into the weights.

    The default backend solves all problems of a sample set together, see ``solver``, and is deterministic for a given
    number of threads. A fit depends on no other fit's result.

    A label with one class among its observed rows has no optimum (its intercept runs away): weights and intercept are
    NaN, ``converged`` is False. A class without a row gets weight 0 and the intercept that gives it half a count at the
    mean of the sample set; the softmax over the others is the same as without it. Both are stated in ``notes``.

    Args:
        features: (n, d) float32 or float16; may be memory-mapped.
        labels: (n,) class indices from 0, or (n, L) with 1, 0 and NaN = not observed.
        sample_sets: Row indices to fit on, one array per sample set.
        lambdas: (P,) penalties, above 0.
        kind: What the labels are.
        mean: (d,) subtracted from each feature. The intercept is free, so it decides no prediction.
        scale: (d,) divisors, above 0; ``inf`` sets a feature to 0. See ``standardisation``.
        gap: Relative objective gap at which a fit has converged, by the Newton decrement.
        max_iterations: Most iterations of a fit: quasi-Newton passes and Newton steps together.
        device: Where to compute: ``cpu``, ``cuda`` or ``cuda:0``.
        backend: ``batched``, or ``sklearn`` for the slow independent reference.

    Raises:
        ValueError: If shapes, labels or values are not as described; every problem is listed.
    """
    targets = np.asarray(labels, dtype=np.int64 if np.issubdtype(np.asarray(labels).dtype, np.integer) else np.float64)
    row_sets = [np.asarray(rows, dtype=np.int64) for rows in sample_sets]
    penalties = np.asarray(lambdas, dtype=np.float64)
    divisors = np.asarray(scale, dtype=np.float64)
    refuse(_shape_problems(features, targets, row_sets, kind))
    refuse(
        [
            *_number_problems(penalties, divisors, np.asarray(mean, dtype=np.float64), features.shape[1], gap),
            *_label_problems(targets, row_sets, kind),
            *non_finite_rows(features, np.unique(np.concatenate(row_sets))),
        ]
    )
    problems = 1 if kind == "multiclass" else targets.shape[1]
    outputs = int(targets.max()) + 1 if kind == "multiclass" else problems
    path = _empty_path(len(row_sets), penalties, outputs, features.shape[1], problems)
    notes: list[str] = []
    for position, rows in enumerate(row_sets):
        fittable = _fittable(targets[rows], outputs)
        notes.extend(f"sample set {position}: {note}" for note in fittable.notes)
        if len(fittable.outputs):
            fits = _solver(backend)(
                features,
                fittable.labels,
                rows,
                penalties,
                divisors,
                gap=gap,
                max_iterations=max_iterations,
                device=device,
            )
            _store(path, position, fits, fittable)
            if len(fittable.outputs) < outputs and kind == "multiclass":
                _set_absent_classes(path, position, features[rows], fittable.outputs)
    return replace(path, notes=tuple(notes))


class Fittable(NamedTuple):
    """What of a sample set's labels has an optimum.

    Attributes:
        labels: The labels to fit: classes renumbered without gaps, or the columns that hold both values.
        outputs: Positions of those classes or columns among all.
        notes: What was left out, and why.
    """

    labels: NDArray[np.generic]
    outputs: IntArray
    notes: list[str]


def _fittable(labels: NDArray[np.generic], outputs: int) -> Fittable:
    if labels.ndim == 1:
        present, renumbered = np.unique(labels, return_inverse=True)
        absent = sorted(set(range(outputs)) - set(present.tolist()))
        notes = [f"classes {absent} have no row; they get weight 0 and half a count"] if absent else []
        if len(present) < 2:
            return Fittable(
                labels, present[:0].astype(np.int64), [f"only class {present.tolist()} has rows; not fitted"]
            )
        return Fittable(renumbered.astype(np.int64), present.astype(np.int64), notes)
    positives, negatives = (labels == 1).sum(axis=0), (labels == 0).sum(axis=0)
    both = (positives > 0) & (negatives > 0)
    notes = [
        f"label {label} has {positives[label]} positives and {negatives[label]} negatives; not fitted, it needs both"
        for label in np.flatnonzero(~both)
    ]
    return Fittable(labels[:, both], np.flatnonzero(both), notes)


def _solver(backend: BackendType) -> Callable[..., SetFits]:
    """The backend's solver of one sample set, imported when first used."""
    if backend == "sklearn":
        from crs_assets.science.probes.reference import solve_set_with_sklearn

        return solve_set_with_sklearn
    from crs_assets.science.probes.solver import solve_set

    return solve_set


def _empty_path(sets: int, lambdas: FloatArray, outputs: int, features: int, problems: int) -> LinearPath:
    fits, problem_grid = (sets, len(lambdas), outputs), (sets, len(lambdas), problems)
    return LinearPath(
        weights=np.full((*fits, features), np.nan, dtype=np.float32),
        intercepts=np.full(fits, np.nan),
        lambdas=lambdas,
        objective=np.full(problem_grid, np.nan),
        newton_decrement=np.full(problem_grid, np.nan),
        duality_gap=np.full(problem_grid, np.nan),
        passes=np.zeros(problem_grid, dtype=np.int64),
        converged=np.zeros(problem_grid, dtype=np.bool_),
    )


def _store(path: LinearPath, position: int, fits: SetFits, fittable: Fittable) -> None:
    """Write one sample set's fits into the arrays of the path."""
    path.weights[position][:, fittable.outputs] = fits.weights
    path.intercepts[position][:, fittable.outputs] = fits.intercepts
    problems = [0] if fittable.labels.ndim == 1 else fittable.outputs
    for name in ("objective", "newton_decrement", "duality_gap", "passes", "converged"):
        getattr(path, name)[position][:, problems] = getattr(fits, name)


def _set_absent_classes(path: LinearPath, position: int, rows: NDArray[np.floating], present: IntArray) -> None:
    """Weight 0, and the intercept that predicts half a count at the mean of the rows, for classes without a row."""
    absent = np.setdiff1d(np.arange(path.weights.shape[2]), present)
    weights, intercepts = path.weights[position], path.intercepts[position]
    centre = rows.mean(axis=0, dtype=np.float64)
    logits = weights[:, present].astype(np.float64) @ centre + intercepts[:, present]
    weights[:, absent] = 0
    intercepts[:, absent] = logsumexp(logits, axis=1, keepdims=True) + np.log(_ABSENT_CLASS_COUNT / len(rows))


def _shape_problems(
    features: NDArray[np.floating], labels: NDArray[np.generic], row_sets: Sequence[IntArray], kind: KindType
) -> list[str]:
    problems = []
    if features.ndim != 2 or features.dtype not in (np.float32, np.float16, np.float64):
        problems.append(f"features: {features.dtype} of shape {features.shape}, expected float32 or float16 (n, d)")
    if kind not in ("multiclass", "multilabel"):
        problems.append(f"kind: {kind!r}, expected 'multiclass' or 'multilabel'")
    expected = 1 if kind == "multiclass" else 2
    if labels.ndim != expected or len(labels) != len(features):
        wanted = "(n,)" if expected == 1 else "(n, L)"
        problems.append(f"labels: shape {labels.shape}, expected {wanted} with n = {len(features)} for {kind}")
    if kind == "multiclass" and not np.issubdtype(labels.dtype, np.integer):
        problems.append(f"labels: {labels.dtype}, expected integer class indices")
    if not row_sets:
        problems.append("sample_sets: none given")
    for position, rows in enumerate(row_sets):
        if rows.ndim != 1 or not len(rows) or rows.min() < 0 or rows.max() >= len(features):
            problems.append(f"sample set {position}: expected row indices within 0..{len(features) - 1}, at least one")
    return problems


def _number_problems(lambdas: FloatArray, scale: FloatArray, mean: FloatArray, features: int, gap: float) -> list[str]:
    problems = []
    if lambdas.ndim != 1 or not lambdas.size or not (np.isfinite(lambdas) & (lambdas > 0)).all():
        problems.append(f"lambdas: {lambdas}, expected a list of finite numbers above 0")
    if scale.shape != (features,) or not (scale > 0).all():
        problems.append(f"scale: shape {scale.shape}, expected ({features},) of numbers above 0 (inf drops a feature)")
    if mean.shape != (features,) or not np.isfinite(mean).all():
        problems.append(f"mean: shape {mean.shape}, expected ({features},) of finite numbers")
    if not gap > 0:
        problems.append(f"gap: {gap}, expected a number above 0")
    return problems


def _label_problems(labels: NDArray[np.generic], row_sets: Sequence[IntArray], kind: KindType) -> list[str]:
    used = labels[np.unique(np.concatenate(row_sets))]
    if kind == "multiclass":
        bad = int((used.astype(np.int64) < 0).sum())
        return (
            [f"labels: {bad} rows have a negative class index; leave such rows out of the sample sets"] if bad else []
        )
    bad = int((~np.isnan(used) & (used != 0) & (used != 1)).sum())
    return [f"labels: {bad} cells are neither 0, 1 nor NaN; apply the label policy first"] if bad else []
