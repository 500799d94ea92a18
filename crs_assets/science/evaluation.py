"""From fitted probes to one row of metrics per run of the grid."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit

from crs_assets.science import metrics
from crs_assets.science.labels import LabelSpace
from crs_assets.science.protocol import Protocol
from crs_assets.science.seeding import generator

Logits = NDArray[np.floating[Any]]
Float64 = NDArray[np.float64]

RELIABILITY_SCHEMA = {
    "lower": pl.Float64,
    "upper": pl.Float64,
    "count": pl.Int64,
    "mean_probability": pl.Float64,
    "frequency": pl.Float64,
}
METRICS = (
    "auroc",
    "auprc",
    "accuracy",
    "quadratic_weighted_kappa",
    "log_loss",
    "brier",
    "ece",
    "ece_null",
    "ece_equal_mass",
    "ece_classwise",
    "rms_calibration_debiased",
)


@dataclass(frozen=True)
class Scored:
    """Predictions of one run with their labels.

    Attributes:
        labels: (n,) int class indices, or (n, L) float with NaN where not observed, in the source's class order.
        logits: (n, C) float32, or float64 where a softmax is read one label at a time.
        classes: Indices of the classes that are scored: K of the data set, or K_T at the target.
        votes: Where probabilities are shares of that many votes, their number; None where they are continuous.
    """

    labels: NDArray[Any]
    logits: Logits
    classes: Sequence[int]
    votes: int | None = None


def probabilities(logits: Logits, task: str) -> Float64:
    """Softmax over classes, or a sigmoid per label, in float64; shape (n, C). NaN where a probe was not fitted."""
    if task == "multilabel":
        return np.asarray(expit(logits.astype(np.float64)), dtype=np.float64)
    return np.exp(log_softmax(logits))


def log_softmax(logits: Logits) -> Float64:
    """Log-probabilities of the classes in float64: what a class is ranked by; shape (n, C)."""
    values = logits.astype(np.float64)
    return values - np.logaddexp.reduce(values, axis=1, keepdims=True)


def class_scores(logits: Logits, task: str) -> Float64:
    """What each class is ranked by: the label's own logit, or the log-softmax; float64, shape (n, C)."""
    return logits.astype(np.float64) if task == "multilabel" else log_softmax(logits)


def run_probabilities(run: Scored, task: str) -> Float64:
    """What a run states of each class: its probabilities (n, C), shares of votes to the last bit.

    Rounding of logits must not order what has the same votes.
    """
    values = probabilities(run.logits, task)
    return values if run.votes is None else np.rint(values * run.votes) / run.votes


def per_class(run: Scored, task: str) -> Float64:
    """AUROC of every class, scored or not; float64 (C,), NaN where a class has one side only or was not fitted."""
    scores = class_scores(run.logits, task) if run.votes is None else run_probabilities(run, task)
    fitted = np.asarray(np.isfinite(scores).all(axis=0))
    aurocs: Float64 = np.full(len(fitted), np.nan)
    if task == "multilabel" and fitted.any():
        aurocs[fitted] = metrics.per_class_auroc(run.labels[:, fitted], scores[:, fitted])
    elif fitted.all():
        aurocs = metrics.per_class_auroc(run.labels, scores)
    return aurocs


def macro(run: Scored, task: str) -> float:
    """Macro-AUROC over the scored classes, in [0, 1], higher is better; NaN where none can be estimated."""
    chosen = per_class(run, task)[list(run.classes)]
    estimable = chosen[~np.isnan(chosen)]
    return float(estimable.mean()) if len(estimable) else float("nan")


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
    chosen = _fitted(run, task)
    if not chosen:
        return dict.fromkeys(METRICS, float("nan"))
    rng = generator(protocol.salt, "null_band", *seed_parts)
    row = _multilabel(run, chosen, protocol, rng) if task == "multilabel" else _softmax(run, task, protocol, rng)
    return {"auroc": macro(run, task), **row}


def _fitted(run: Scored, task: str) -> list[int]:
    """The scored classes whose probe gives finite logits; of a softmax all or none."""
    finite = np.asarray(np.isfinite(run.logits).all(axis=0))
    return [c for c in run.classes if (finite[c] if task == "multilabel" else finite.all())]


def _multilabel(run: Scored, chosen: list[int], protocol: Protocol, rng: np.random.Generator) -> dict[str, float]:
    bins, draws, level = protocol.metrics.ece_bins, protocol.metrics.null_band_draws, protocol.metrics.null_band_level
    truth, logits = np.asarray(run.labels)[:, chosen], run.logits[:, chosen]
    proba, observed = run_probabilities(run, "multilabel")[:, chosen], ~np.isnan(truth)
    return {
        "auprc": metrics.macro_auprc(truth, proba),
        "accuracy": float("nan"),
        "quadratic_weighted_kappa": float("nan"),
        "log_loss": metrics.multilabel_log_loss_from_logits(truth, logits),
        "brier": metrics.multilabel_brier_score(truth, proba),
        "ece": metrics.multilabel_expected_calibration_error(truth, proba, n_bins=bins),
        "ece_null": metrics.multilabel_null_band(
            proba, draws=draws, level=level, rng=rng, observed=observed, n_bins=bins
        ),
        "ece_equal_mass": metrics.multilabel_equal_mass_expected_calibration_error(truth, proba, n_bins=bins),
        "ece_classwise": float("nan"),
        "rms_calibration_debiased": metrics.multilabel_debiased_rms_calibration_error(truth, proba, n_bins=bins),
    }


def _softmax(run: Scored, task: str, protocol: Protocol, rng: np.random.Generator) -> dict[str, float]:
    bins, draws, level = protocol.metrics.ece_bins, protocol.metrics.null_band_draws, protocol.metrics.null_band_level
    proba = run_probabilities(run, task)
    return {
        "auprc": metrics.macro_auprc(run.labels, proba, classes=run.classes),
        "accuracy": metrics.accuracy(run.labels, proba),
        "quadratic_weighted_kappa": (
            metrics.quadratic_weighted_kappa(run.labels, proba) if task == "ordinal" else float("nan")
        ),
        "log_loss": metrics.multiclass_log_loss_from_logits(run.labels, run.logits),
        "brier": metrics.multiclass_brier_score(run.labels, proba),
        "ece": metrics.expected_calibration_error(run.labels, proba, n_bins=bins),
        "ece_null": metrics.null_band(proba, draws=draws, level=level, rng=rng, n_bins=bins),
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
    order = np.array([at[name] for name in target.classes], dtype=np.int64)
    aligned_indices: NDArray[Any] = order[labels]
    return aligned_indices


def reliability(run: Scored, task: str, *, n_bins: int) -> pl.DataFrame:
    """Bins of the reliability diagram, pooled over scored labels for a multilabel set.

    Returns:
        Columns ``lower``, ``upper``, ``count``, ``mean_probability``, ``frequency``; empty bins are left out.
    """
    chosen = _fitted(run, task)
    if not chosen:
        return pl.DataFrame(schema=RELIABILITY_SCHEMA)
    if task == "multilabel":
        truth, proba = np.asarray(run.labels)[:, chosen], run_probabilities(run, "multilabel")[:, chosen]
        observed = ~np.isnan(truth)
        outcome, stated = truth[observed], proba[observed]
    else:
        stated, outcome = metrics.top_label(run.labels, run_probabilities(run, task))
    return metrics.reliability_bins(outcome, stated, n_bins=n_bins).filter(pl.col("count") > 0)
