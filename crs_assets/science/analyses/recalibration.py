"""Recalibration of one cell and seed: metrics before and after a map, on images that it was not fitted on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science import metrics
from crs_assets.science.analyses.recalibration_cases import Cases, case_subsets
from crs_assets.science.analyses.recalibration_fits import Fit, Prediction, fit_map, methods, recalibrated
from crs_assets.science.evaluation import Logits
from crs_assets.science.protocol import MetricProtocol
from crs_assets.science.recalibration import PerLabelMap, RecalibrationMap

METRICS = ("ece", "log_loss", "brier", "auroc")

ROW_SCHEMA: dict[str, Any] = {
    "method": pl.Utf8,
    "fitted_on": pl.Utf8,
    "n_cases": pl.Int64,
    "all_cases": pl.Boolean,
    "condition": pl.Utf8,
    **{f"{name}_{part}": pl.Float64 for name in METRICS for part in ("before", "after", "difference")},
    "ece_null_high": pl.Float64,
    "meaningful": pl.Boolean,
    "ece_reduction": pl.Float64,
    "n_fit": pl.Int64,
    "n_eval": pl.Int64,
    "fit_rows_sha256": pl.Utf8,
    "reason": pl.Utf8,
}
"""Columns of ``full_rows`` and ``case_curve``, with ``fitted_on`` added by who knows."""


@dataclass(frozen=True, eq=False)
class Judged:
    """Predictions that maps are judged on.

    Attributes:
        condition: What the images went through.
        labels: (n,) int class indices, or (n, L) float with NaN where not observed, as they are read.
        logits: (n, C), as the probe gave them.
        classes: Scored classes, as they are read.
        task: Kind of problem of the probe.
        n_bins: Bins of the calibration error.
        read: Where labels are read from a softmax one by one: from logits of classes to log-odds of labels.
    """

    condition: str
    labels: NDArray[Any]
    logits: Logits
    classes: Sequence[int]
    task: str
    n_bins: int
    read: Callable[[Logits], Logits] | None = None

    @property
    def read_task(self) -> str:
        """Kind of problem that is judged."""
        return "multilabel" if self.read else self.task

    @cached_property
    def chosen(self) -> list[int]:
        """The scored classes that the probe has logits of; of a softmax all or none."""
        if not len(self.logits):
            return []
        finite = np.asarray(np.isfinite(self.logits).all(axis=0))
        if self.task == "multilabel":
            return [column for column in self.classes if finite[column]]
        return list(self.classes) if finite.all() else []

    @cached_property
    def plain(self) -> Prediction | None:
        """The predictions as they are; None where no class is scored."""
        return self.predict(None) if self.chosen else None

    @cached_property
    def before(self) -> Mapping[str, float]:
        """``METRICS`` of the predictions as they are; NaN where no class is scored."""
        return dict.fromkeys(METRICS, np.nan) if self.plain is None else self.measure(self.plain)

    def predict(self, mapping: RecalibrationMap | None) -> Prediction:
        """What a map, or none, makes of the predictions; of labels the chosen columns alone."""
        if self.task == "multilabel":
            if isinstance(mapping, PerLabelMap):
                mapping = PerLabelMap(tuple(mapping.maps[column] for column in self.chosen), ())
            return recalibrated(mapping, self.logits[:, self.chosen], self.task)
        prediction = recalibrated(mapping, self.logits, self.task)
        return prediction.read(self.read, self.chosen) if self.read else prediction

    def measure(self, prediction: Prediction) -> dict[str, float]:
        """``METRICS`` of what ``predict`` gave."""
        if self.read_task == "multilabel":
            return _label_metrics(self.labels[:, self.chosen], prediction, self.n_bins)
        return _softmax_metrics(self.labels, prediction, self.chosen, self.n_bins)


def judge(fit: Fit, judged: Judged, null_high: float) -> dict[str, Any]:
    """One row: metrics before and after, signed differences after - before, and what they rest on.

    Args:
        fit: A fitted method.
        judged: Predictions of images that it was not fitted on.
        null_high: Upper end of the null band of the calibration error before. At or below it a relative reduction is
            not meaningful, and null: the error may be nothing but the finite sample's.

    Returns:
        Columns of ``ROW_SCHEMA``; null where not estimable, with the reason where there is no map.
    """
    reason = fit.reason or _reason_here(fit, judged)
    unknown = dict.fromkeys(METRICS, np.nan)
    after = unknown if reason or fit.mapping is None else judged.measure(judged.predict(fit.mapping))
    before = judged.before
    meaningful = bool(before["ece"] > null_high)
    row: dict[str, Any] = {"method": fit.method, "condition": judged.condition}
    for name in METRICS:
        row[f"{name}_before"] = _known(before[name])
        row[f"{name}_after"] = _known(after[name])
        row[f"{name}_difference"] = _known(after[name] - before[name])
    return {
        **row,
        "ece_null_high": _known(null_high),
        "meaningful": meaningful,
        "ece_reduction": _known((before["ece"] - after["ece"]) / before["ece"]) if meaningful else None,
        "n_fit": fit.n_fit,
        "n_eval": len(judged.logits),
        "fit_rows_sha256": fit.rows_sha256,
        "reason": reason,
    }


def full_rows(
    cases: Cases, classes: Sequence[int], task: str, judged: Sequence[Judged], null_highs: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Every method fitted on all cases, judged under every condition.

    Args:
        cases: What to fit on.
        classes: Scored classes of the problem that is fitted.
        task: Kind of problem that is fitted.
        judged: Predictions of other images, one set per condition.
        null_highs: Condition -> as in ``judge``.

    Returns:
        One row per method and condition.
    """
    shared = {"n_cases": len(cases), "all_cases": True}
    fits = [fit_map(method, cases, classes, task) for method in methods(task)]
    return [{**judge(fit, one, null_highs[one.condition]), **shared} for fit in fits for one in judged]


def case_curve(
    cases: Cases,
    classes: Sequence[int],
    task: str,
    judged: Judged,
    null_high: float,
    *,
    counts: Sequence[int],
    order: Sequence[str | int],
) -> list[dict[str, Any]]:
    """Every method fitted on nested subsets of the cases, judged on one set of predictions.

    Args:
        cases: What subsets are taken of.
        classes: Scored classes of the problem that is fitted.
        task: Kind of problem that is fitted.
        judged: Predictions of other images.
        null_high: As in ``judge``.
        counts: Numbers of cases.
        order: Salt and names that decide the order of groups.

    Returns:
        One row per method and count.
    """
    rows: list[dict[str, Any]] = []
    for count, chosen in case_subsets(cases.groups, counts, *order).items():
        if chosen is None:
            reason = f"{count} cases wanted, there are {len(cases)}"
            fits = [Fit(method, None, reason) for method in methods(task)]
        else:
            subset = cases.take(chosen)
            fits = [fit_map(method, subset, classes, task) for method in methods(task)]
        rows.extend({**judge(fit, judged, null_high), "n_cases": count, "all_cases": False} for fit in fits)
    return rows


def null_band_of(judged: Judged, protocol: MetricProtocol, rng: np.random.Generator) -> float:
    """Upper end of the null band of the calibration error before; NaN where no class is scored."""
    if judged.plain is None:
        return float("nan")
    stated = judged.plain.probabilities
    draws, level = protocol.null_band_draws, protocol.null_band_level
    if judged.read_task != "multilabel":
        return metrics.null_band(stated, draws=draws, level=level, rng=rng, n_bins=judged.n_bins)
    observed = ~np.isnan(judged.labels[:, judged.chosen])
    return metrics.multilabel_null_band(
        stated, draws=draws, level=level, rng=rng, observed=observed, n_bins=judged.n_bins
    )


def _reason_here(fit: Fit, judged: Judged) -> str | None:
    """Why a map that exists cannot be judged here."""
    if not judged.chosen:
        return "no class is scored here"
    lacking = len(fit.unfitted & set(judged.chosen)) if judged.task == "multilabel" else 0
    if not lacking:
        return None
    return f"{lacking} of {len(judged.chosen)} scored labels have no map: their cases have one sign, or no maximum"


def _softmax_metrics(
    labels: NDArray[Any], prediction: Prediction, classes: Sequence[int], n_bins: int
) -> dict[str, float]:
    stated, logits = prediction.probabilities, prediction.logits
    return {
        "ece": metrics.expected_calibration_error(labels, stated, n_bins=n_bins),
        "log_loss": (
            metrics.multiclass_log_loss(labels, stated)
            if logits is None
            else metrics.multiclass_log_loss_from_logits(labels, logits)
        ),
        "brier": metrics.multiclass_brier_score(labels, stated),
        "auroc": metrics.macro_auroc(labels, prediction.scores, classes=classes),
    }


def _label_metrics(labels: NDArray[Any], prediction: Prediction, n_bins: int) -> dict[str, float]:
    stated, logits = prediction.probabilities, prediction.logits
    return {
        "ece": metrics.multilabel_expected_calibration_error(labels, stated, n_bins=n_bins),
        "log_loss": (
            metrics.multilabel_log_loss(labels, stated)
            if logits is None
            else metrics.multilabel_log_loss_from_logits(labels, logits)
        ),
        "brier": metrics.multilabel_brier_score(labels, stated),
        "auroc": metrics.macro_auroc(labels, prediction.scores),
    }


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
