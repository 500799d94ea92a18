"""Recalibration maps of one task: which methods there are, whether cases suffice, what a map makes of logits.

What ranks images is kept where it can be. A temperature of its own divides each label's logit, so every label's AUROC
stays exactly as it was. Of a softmax, temperature keeps the top label of every image; the AUROC of a class, which is
ranked by its log-softmax, may move a little, because the normaliser changes from image to image (not with two classes,
where a log-softmax is monotone in the one difference of logits, up to rounding).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.analyses.recalibration_cases import Cases
from crs_assets.science.evaluation import Float64, Logits, class_scores, probabilities
from crs_assets.science.recalibration import (
    DirichletMap,
    PerLabelMap,
    RecalibrationMap,
    TemperatureMap,
    VectorMap,
    fit_dirichlet,
    fit_isotonic,
    fit_per_label,
    fit_temperature,
    fit_vector,
)

SOFTMAX_METHODS = ("temperature", "vector", "isotonic", "dirichlet")
LABEL_METHODS = ("temperature", "platt", "isotonic")

_DIRICHLET_FOLDS = 3
_FITTERS: Mapping[str, Callable[[ArrayLike, ArrayLike], RecalibrationMap]] = {
    "temperature": fit_temperature,
    "vector": fit_vector,
    "platt": fit_vector,
    "isotonic": fit_isotonic,
}


def methods(task: str) -> tuple[str, ...]:
    """Methods of a kind of problem; in a multilabel one each label is fitted by itself, vector scaling as Platt's."""
    return LABEL_METHODS if task == "multilabel" else SOFTMAX_METHODS


@dataclass(frozen=True)
class Fit:
    """A method fitted on cases, or why it could not be.

    Attributes:
        method: One of ``methods``.
        mapping: The map; None where there is none.
        reason: Why there is none.
        unfitted: Columns of a multilabel map that have none of their own.
        n_fit: Images that it was fitted on.
        rows_sha256: ``rows_sha256`` of their ids; None where nothing was fitted.
    """

    method: str
    mapping: RecalibrationMap | None
    reason: str | None = None
    unfitted: frozenset[int] = frozenset()
    n_fit: int = 0
    rows_sha256: str | None = None


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is stated of each image and class, and how images are ranked; float64 (n, C).

    Attributes:
        probabilities: In [0, 1].
        scores: Higher = more likely: logits or log-probabilities where there are any, else probabilities.
        logits: None where a map gives probabilities only.
    """

    probabilities: Float64
    scores: Float64
    logits: Float64 | None

    def read(self, read: Callable[[Logits], Logits], columns: Sequence[int]) -> "Prediction":
        """The same as labels that are read from a softmax one by one.

        Args:
            read: From logits of classes, of which log-probabilities are some, to log-odds of labels.
            columns: The labels that are wanted.
        """
        if self.logits is not None:
            return recalibrated(None, read(self.logits)[:, columns], "multilabel")
        with np.errstate(divide="ignore"):
            log_probabilities = np.log(self.probabilities)
        stated = probabilities(read(log_probabilities)[:, columns], "multilabel")
        return Prediction(stated, stated, None)


def recalibrated(mapping: RecalibrationMap | None, logits: Logits, task: str) -> Prediction:
    """Predictions under a map; under none, or under temperature 1, those of the logits themselves to the bit.

    Args:
        mapping: The map, or None.
        logits: (n, C).
        task: ``multiclass``, ``ordinal`` or ``multilabel``.

    Raises:
        ValueError: If the logits are not finite or not of the fitted shape.
    """
    values = logits.astype(np.float64)
    if mapping is not None:
        moved = _moved_logits(mapping, values)
        if moved is None:
            stated = mapping.transform(values)
            return Prediction(stated, stated, None)
        values = moved
    return Prediction(probabilities(values, task), class_scores(values, task), values)


def fit_map(method: str, cases: Cases, classes: Sequence[int], task: str) -> Fit:
    """Fit one method on cases and nothing else.

    A map of a softmax with parameters of each class needs a case of every scored class; a temperature needs two
    classes. A label needs a positive and a negative; one that lacks either goes without a map, and the others do not.
    Where the likelihood rises as long as the temperature falls, it has no maximum, and there is no map either.

    Args:
        method: One of ``methods(task)``.
        cases: What to fit on.
        classes: Scored classes.
        task: ``multiclass``, ``ordinal`` or ``multilabel``.
    """
    if not len(cases):
        return Fit(method, None, "there is no case")
    try:
        if task == "multilabel":
            mapping = _fit_labels(method, cases)
            return Fit(method, mapping, None, _without_map(mapping), len(cases), cases.sha256)
        obstacle = _softmax_obstacle(method, cases, classes)
        softmax_map = None if obstacle else _fit_softmax(method, cases)
    except RuntimeError as error:
        # An optimum that is not reached is no map, and no reason to lose the other methods.
        return Fit(method, None, str(error))
    if softmax_map is not None and _is_unbounded(softmax_map):
        obstacle = "the likelihood has no maximum: it rises as long as the temperature falls"
    if obstacle:
        return Fit(method, None, obstacle)
    return Fit(method, softmax_map, None, frozenset(), len(cases), cases.sha256)


def _moved_logits(mapping: RecalibrationMap, values: Float64) -> Float64 | None:
    """Recalibrated logits, or None where a map gives probabilities only."""
    if isinstance(mapping, TemperatureMap | VectorMap | DirichletMap):
        return mapping.transform_logits(values)
    if not isinstance(mapping, PerLabelMap):
        return None
    moved = [_moved_logits(each, column) for each, column in zip(mapping.maps, values.T, strict=True)]
    known = [column for column in moved if column is not None]
    return np.stack(known, axis=1) if len(known) == len(moved) else None


def _softmax_obstacle(method: str, cases: Cases, classes: Sequence[int]) -> str | None:
    """Why a method cannot be fitted on cases of a softmax problem, or None."""
    if not np.isfinite(cases.logits).all():
        return "the probe was not fitted"
    present = set(np.unique(cases.labels).tolist())
    if len(present) < 2:
        return "all cases are of one class"
    if method == "temperature":
        return None
    if absent := len(set(classes) - present):
        return f"{absent} of {len(classes)} scored classes have no case"
    if method == "dirichlet" and len(set(cases.groups)) < _DIRICHLET_FOLDS:
        return f"the cases are of {len(set(cases.groups))} group(s), and choosing the penalty takes {_DIRICHLET_FOLDS}"
    return None


def _fit_softmax(method: str, cases: Cases) -> RecalibrationMap:
    if method == "dirichlet":
        groups = np.asarray(cases.groups)
        return fit_dirichlet(cases.logits, cases.labels, groups=groups, n_folds=_DIRICHLET_FOLDS)
    return _FITTERS[method](cases.logits, cases.labels)


def _fit_labels(method: str, cases: Cases) -> PerLabelMap:
    has_logits = np.isfinite(cases.logits).all(axis=0)
    return fit_per_label(_FITTERS[method], cases.logits, np.where(has_logits, cases.labels, np.nan))


def _without_map(mapping: PerLabelMap) -> frozenset[int]:
    return frozenset(mapping.unfitted) | {column for column, each in enumerate(mapping.maps) if _is_unbounded(each)}


def _is_unbounded(mapping: RecalibrationMap) -> bool:
    return isinstance(mapping, TemperatureMap) and mapping.is_at_bound and mapping.temperature < 1
