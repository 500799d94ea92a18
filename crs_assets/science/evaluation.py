"""From fitted probes to one row of metrics per run of the grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science import metrics
from crs_assets.science.labels import LabelSpace
from crs_assets.science.protocol import Protocol
from crs_assets.science.seeding import generator

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

@dataclass(frozen=True)
class Scored:
    """Predictions of one run with their labels.

    Attributes:
        labels: (n,) int class indices, or (n, L) float with NaN where not observed, in the source's class order.
        logits: (n, C) float32.
        classes: Indices of the classes that are scored: K of the data set, or K_T at the target.
    """

    labels: NDArray[Any]
    logits: Float32
    classes: Sequence[int]


def probabilities(logits: Float32, task: str) -> Float64:
    """Softmax over classes, or a sigmoid per label, in float64; shape (n, C)."""
    values = logits.astype(np.float64)
    if task == "multilabel":
        return np.exp(-np.logaddexp(0.0, -values))
    return np.exp(log_softmax(logits))


def log_softmax(logits: Float32) -> Float64:
    """Log-probabilities of the classes in float64: what a class is ranked by; shape (n, C)."""
    values = logits.astype(np.float64)
    return values - np.logaddexp.reduce(values, axis=1, keepdims=True)


def class_scores(logits: Float32, task: str) -> Float64:
    """What each class is ranked by: the label's own logit, or the log-softmax; float64, shape (n, C)."""
    return logits.astype(np.float64) if task == "multilabel" else log_softmax(logits)


def per_class(run: Scored, task: str) -> Float64:
    """AUROC of every class, scored or not; float64 (C,), NaN where a class has one side only."""
    return metrics.per_class_auroc(run.labels, class_scores(run.logits, task))


def macro(run: Scored, task: str) -> float:
    """Macro-AUROC over the scored classes, in [0, 1], higher is better."""
    return metrics.macro_auroc(run.labels, class_scores(run.logits, task), classes=run.classes)


def score(run: Scored, task: str, protocol: Protocol, *seed_parts: str | int) -> dict[str, float]:
    """Every metric of one run.

    Args:
        run: Labels, logits and scored classes.
        task: ``multiclass``, ``ordinal`` or ``multilabel``.
        protocol: Bins and null band.
        seed_parts: Name the run; the null band's draws follow from them and from no encoder.

    Returns:
        Metric name -> value; NaN where it does not apply or cannot be estimated.
    """
    rng = generator(protocol.salt, "null_band", *seed_parts)
    band = {"draws": protocol.metrics.null_band_draws, "level": protocol.metrics.null_band_level, "rng": rng}
    bins = protocol.metrics.ece_bins
    proba = probabilities(run.logits, task)
    if task == "multilabel":
        chosen = list(run.classes)
        truth, proba = np.asarray(run.labels)[:, chosen], proba[:, chosen]
        observed = ~np.isnan(truth)
        return {
            "auroc": macro(run, task),
            "auprc": metrics.macro_auprc(truth, proba),
            "accuracy": float("nan"),
            "quadratic_weighted_kappa": float("nan"),
            "log_loss": metrics.multilabel_log_loss_from_logits(truth, run.logits[:, chosen]),
            "brier": metrics.multilabel_brier_score(truth, proba),
            "ece": metrics.multilabel_expected_calibration_error(truth, proba, n_bins=bins),
            "ece_null": metrics.multilabel_null_band(proba, observed=observed, n_bins=bins, **band),
            "ece_equal_mass": metrics.multilabel_equal_mass_expected_calibration_error(truth, proba, n_bins=bins),
            "ece_classwise": float("nan"),
            "rms_calibration_debiased": metrics.multilabel_debiased_rms_calibration_error(truth, proba, n_bins=bins),
        }
    return {
        "auroc": macro(run, task),
        "auprc": metrics.macro_auprc(run.labels, proba, classes=run.classes),
        "accuracy": metrics.accuracy(run.labels, proba),
        "quadratic_weighted_kappa": (
            metrics.quadratic_weighted_kappa(run.labels, proba) if task == "ordinal" else float("nan")
        ),
        "log_loss": metrics.multiclass_log_loss_from_logits(run.labels, run.logits),
        "brier": metrics.multiclass_brier_score(run.labels, proba),
        "ece": metrics.expected_calibration_error(run.labels, proba, n_bins=bins),
        "ece_null": metrics.null_band(proba, n_bins=bins, **band),
        "ece_equal_mass": metrics.equal_mass_expected_calibration_error(run.labels, proba, n_bins=bins),
        "ece_classwise": metrics.classwise_expected_calibration_error(run.labels, proba, n_bins=bins),
        "rms_calibration_debiased": metrics.debiased_rms_calibration_error(run.labels, proba, n_bins=bins),
    }


def class_rows(run: Scored, space: LabelSpace) -> list[dict[str, Any]]:
    """AUROC of each class with its counts and whether it is scored."""
    aurocs = per_class(run, space.task)
    if space.task == "multilabel":
        positives, negatives = (run.labels == 1).sum(axis=0), (run.labels == 0).sum(axis=0)
    else:
        member = np.asarray(run.labels)[:, None] == np.arange(len(space.classes))
        positives, negatives = member.sum(axis=0), (~member).sum(axis=0)
    return [
        {
            "class": name,
            "auroc": float(aurocs[position]),
            "positives": int(positives[position]),
            "negatives": int(negatives[position]),
            "scored": position in run.classes,
        }
        for position, name in enumerate(space.classes)
    ]


def align_target_labels(labels: NDArray[Any], target: LabelSpace, source: LabelSpace) -> NDArray[Any]:
    """Labels of a target in the class order of its source, matched by name, never by position.

    Args:
        labels: Evaluation labels of the target.
        target: The target data set.
        source: The source data set.

    Returns:
        (n, L) float with NaN for a label that the target lacks, or (n,) int64 for a softmax problem.

    Raises:
        ValueError: If the two are different kinds of problem, or a softmax target has a class that the source lacks.
    """
    if (target.task == "multilabel") != (source.task == "multilabel"):
        raise ValueError(f"{target.id} is {target.task}, its source {source.id} is {source.task}; they must agree.")
    at = {name: position for position, name in enumerate(source.classes)}
    if source.task == "multilabel":
        aligned = np.full((len(labels), len(source.classes)), np.nan, dtype=np.float32)
        for position, name in enumerate(target.classes):
            if name in at:
                aligned[:, at[name]] = labels[:, position]
        return aligned
    if unknown := [name for name in target.classes if name not in at]:
        raise ValueError(f"{target.id} has the classes {unknown}, which its source {source.id} lacks.")
    return np.array([at[name] for name in target.classes], dtype=np.int64)[labels]


def reliability(run: Scored, task: str, *, n_bins: int) -> pl.DataFrame:
    """Bins of the reliability diagram, pooled over scored labels for a multilabel set.

    Returns:
        Columns ``lower``, ``upper``, ``count``, ``mean_probability``, ``frequency``; empty bins are left out.
    """
    proba = probabilities(run.logits, task)
    if task == "multilabel":
        chosen = list(run.classes)
        truth, proba = np.asarray(run.labels)[:, chosen], proba[:, chosen]
        observed = ~np.isnan(truth)
        outcome, stated = truth[observed], proba[observed]
    else:
        stated, outcome = metrics.top_label(run.labels, proba)
    return metrics.reliability_bins(outcome, stated, n_bins=n_bins).filter(pl.col("count") > 0)
