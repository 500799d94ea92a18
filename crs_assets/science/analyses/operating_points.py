"""Operating points: thresholds chosen for a target before the test set is read, and what they do there.

Probes, recalibration maps and thresholds are held fixed under resampling: intervals are those of the test set alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crs_assets.science.analyses.operating_cases import (
    Case,
    SplitPredictions,
    SplitsByRole,
    Target,
    build_cases,
    resample_cases,
)
from crs_assets.science.analyses.resampling import Confusion, interval_of
from crs_assets.science.analyses.thresholds import net_benefit, predictive_values, wilson_interval
from crs_assets.science.labels import TaskType
from crs_assets.science.protocol import Protocol
from crs_assets.science.splits import TEST

WILSON = "wilson"
BOOTSTRAP = "bootstrap"

POINT_SCHEMA: dict[str, Any] = {
    "label": pl.String,
    "scores": pl.String,
    "chosen_on": pl.String,
    "target_kind": pl.String,
    "target": pl.Float64,
    "threshold": pl.Float64,
    "sensitivity": pl.Float64,
    "sensitivity_low": pl.Float64,
    "sensitivity_high": pl.Float64,
    "specificity": pl.Float64,
    "specificity_low": pl.Float64,
    "specificity_high": pl.Float64,
    "interval": pl.String,
    "prevalences": pl.List(pl.Float64),
    **dict.fromkeys(
        [f"{value}{end}" for value in ("ppv", "npv") for end in ("", "_low", "_high")], pl.List(pl.Float64)
    ),
    "n_positives": pl.Int64,
    "n_negatives": pl.Int64,
    "reason": pl.String,
}
BENEFIT_SCHEMA: dict[str, Any] = {
    "label": pl.String,
    "scores": pl.String,
    "threshold": pl.Float64,
    "net_benefit": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "treat_all": pl.Float64,
    "treat_none": pl.Float64,
    "prevalence": pl.Float64,
    "n": pl.Int64,
    "reason": pl.String,
}


@dataclass(frozen=True)
class OperatingPointTables:
    """Results of one encoder, data set and seed.

    Attributes:
        points: One row per label, scores and target, as ``POINT_SCHEMA``. ``interval`` says what bounds sensitivity and
            specificity: ``wilson`` where every test group has one image, else the ``bootstrap`` over groups, whose
            interval has no width where all or none are called right. ``ppv`` and ``npv`` are in the order of
            ``prevalences``; their bounds, ``ppv_low`` and so on, are always those of the bootstrap over groups.
        net_benefit: One row per label, scores and threshold probability, as ``BENEFIT_SCHEMA``, at the prevalence of
            the test set; the bounds are those of the bootstrap.
    """

    points: pl.DataFrame
    net_benefit: pl.DataFrame


def operating_point_tables(
    task: TaskType,
    classes: Sequence[str],
    splits: SplitsByRole,
    protocol: Protocol,
    dataset: str,
    *,
    problems: Mapping[str, str] | None = None,
) -> OperatingPointTables:
    """Choose a threshold for every label and target, and read the test set at it.

    A label with fewer than 10 positives or negatives in a split that something is fitted on, or fewer than 10 patients
    with either in test, gets its reason and no figure: a threshold among so few is hardly more than somebody's score.

    Args:
        task: ``multiclass``, ``ordinal`` or ``multilabel``; a class of a softmax is taken against the rest.
        classes: Names of the first columns of the logits; further columns are not looked at.
        splits: Predictions of validation, calibration and test.
        protocol: Targets, prevalences, threshold probabilities, replicates, level.
        dataset: Names the resamples, which are the same for all encoders.
        problems: Label -> why it gets no figure, decided elsewhere (not scored, not converged).
    """
    groups = splits[TEST].group_ids
    cases = build_cases(task, classes, splits, protocol.analyses.operating_points, problems or {})
    resampled = resample_cases(cases, groups, protocol, dataset)
    n_groups = len(np.unique(groups))
    once = np.ones((n_groups, 1))
    kind = WILSON if n_groups == len(groups) else BOOTSTRAP
    points: list[dict[str, Any]] = []
    benefits: list[dict[str, Any]] = []
    for case, draws in zip(cases, resampled, strict=True):
        seen = None if case.counts is None else case.counts.evaluate(once)
        points.extend(_point_rows(case, seen, draws, protocol, kind))
        benefits.extend(_benefit_rows(case, seen, draws, protocol))
    return OperatingPointTables(
        pl.DataFrame(points, schema=POINT_SCHEMA), pl.DataFrame(benefits, schema=BENEFIT_SCHEMA)
    )


def _point_rows(
    case: Case, seen: Confusion | None, draws: Confusion | None, protocol: Protocol, kind: str
) -> Iterator[dict[str, Any]]:
    prevalences = list(protocol.analyses.operating_points.prevalences)
    for place, target in enumerate(case.targets):
        row = {
            "label": case.label,
            "scores": case.scores,
            "chosen_on": case.chosen_on,
            "target_kind": target.kind,
            "target": target.value,
            "threshold": target.threshold,
            "prevalences": prevalences,
            "reason": case.point_reason or _unreachable(target),
        }
        if row["reason"] is not None or seen is None or draws is None:
            yield row
            continue
        level = protocol.statistics.interval
        rates = _wilson_rates(seen, place, level) if kind == WILSON else _resampled_rates(seen, draws, place, level)
        values = _predictive_values(seen, draws, place, prevalences, level)
        counts = {"n_positives": int(seen.positives[0]), "n_negatives": int(seen.negatives[0])}
        yield {**row, **rates, "interval": kind, **values, **counts}


def _unreachable(target: Target) -> str | None:
    return None if target.threshold is not None else "no score reaches the target: too many share the highest"


def _wilson_rates(seen: Confusion, place: int, level: float) -> dict[str, float]:
    positives, negatives = int(seen.positives[0]), int(seen.negatives[0])
    hits = {
        "sensitivity": (int(seen.true_positives[place, 0]), positives),
        "specificity": (negatives - int(seen.false_positives[place, 0]), negatives),
    }
    rates: dict[str, float] = {}
    for name, (count, of) in hits.items():
        low, high = wilson_interval(count, of, level=level)
        rates |= {name: count / of, f"{name}_low": low, f"{name}_high": high}
    return rates


def _resampled_rates(seen: Confusion, draws: Confusion, place: int, level: float) -> dict[str, float]:
    rates: dict[str, float] = {}
    for name, value, drawn in (
        ("sensitivity", seen.sensitivity, draws.sensitivity),
        ("specificity", seen.specificity, draws.specificity),
    ):
        low, high = interval_of(drawn[place], level=level)
        rates |= {name: float(value[place, 0]), f"{name}_low": low, f"{name}_high": high}
    return rates


def _predictive_values(
    seen: Confusion, draws: Confusion, place: int, prevalences: Sequence[float], level: float
) -> dict[str, list[float | None]]:
    """Predictive values at each prevalence with their bounds; None where nobody is called so."""
    at = [predictive_values(each.sensitivity[place], each.specificity[place], prevalences) for each in (seen, draws)]
    values: dict[str, list[float | None]] = {}
    for name, point, drawn in zip(("ppv", "npv"), *at, strict=True):
        ends = [interval_of(row, level=level) for row in drawn]
        values |= {
            name: [_known(value) for value in point[:, 0]],
            f"{name}_low": [_known(low) for low, _ in ends],
            f"{name}_high": [_known(high) for _, high in ends],
        }
    return values


def _benefit_rows(
    case: Case, seen: Confusion | None, draws: Confusion | None, protocol: Protocol
) -> Iterator[dict[str, Any]]:
    for position, threshold in enumerate(protocol.analyses.operating_points.net_benefit_thresholds):
        row: dict[str, Any] = {
            "label": case.label,
            "scores": case.scores,
            "threshold": threshold,
            "reason": case.benefit_reason,
        }
        if seen is None or draws is None:
            yield row
            continue
        place = len(case.targets) + position
        low, high = interval_of(_benefit(draws, place, threshold), level=protocol.statistics.interval)
        positives, negatives = seen.positives[0], seen.negatives[0]
        n = positives + negatives
        yield row | {
            "net_benefit": float(_benefit(seen, place, threshold)[0]),
            "low": low,
            "high": high,
            "treat_all": float(net_benefit(positives, negatives, n, threshold)),
            "treat_none": 0.0,
            "prevalence": float(positives / n),
            "n": int(n),
        }


def _benefit(counts: Confusion, place: int, threshold: float) -> np.ndarray[Any, np.dtype[np.float64]]:
    cases = counts.positives + counts.negatives
    return net_benefit(counts.true_positives[place], counts.false_positives[place], cases, threshold)


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


__all__ = [
    "BENEFIT_SCHEMA",
    "BOOTSTRAP",
    "POINT_SCHEMA",
    "WILSON",
    "OperatingPointTables",
    "SplitPredictions",
    "operating_point_tables",
]
