"""What recalibration does over cells and seeds: means before and after, relative reductions, seed intervals."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science.analyses.recalibration import METRICS
from crs_assets.science.protocol import CLEAN, TRANSFER, Protocol
from crs_assets.science.statistics import percentile_interval, seed_bootstrap_means
from crs_assets.science.validation import IntArray

OVERALL = "overall"
ALL_CASES = "all"
REDUCTION = "ece_reduction"
HIGHER_IS_BETTER = ("auroc",)

SUMMARY_SCHEMA: dict[str, Any] = {
    "method": pl.Utf8,
    "dataset": pl.Utf8,
    "kind": pl.Utf8,
    "cases": pl.Utf8,
    "condition_group": pl.Utf8,
    "metric": pl.Utf8,
    "before": pl.Float64,
    "after": pl.Float64,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "n_meaningful": pl.Int64,
    "n_worse": pl.Int64,
    "n_without_map": pl.Int64,
}
_KEYS = ("method", "dataset", "kind", "cases", "condition_group")
_ROW_ORDER = ("dataset", "method", "fitted_on", "all_cases", "n_cases", "encoder", "seed", "condition")


def condition_groups(protocol: Protocol) -> dict[str, str]:
    """Condition -> the group that it is summarised in: clean, each severity over its families, the target."""
    severities = {condition.name: f"severity-{condition.severity}" for condition in protocol.degradations()}
    return {CLEAN: CLEAN, **severities, TRANSFER: TRANSFER}


def summarise(
    rows: pl.DataFrame, groups: Mapping[str, str], seeds: Sequence[int], indices: IntArray, level: float
) -> pl.DataFrame:
    """Means over runs (an encoder, data set, seed and condition) that have a value before and after.

    Args:
        rows: Rows of the tasks, in any order: ``ROW_SCHEMA`` with ``fitted_on``, ``encoder``, ``dataset``, ``seed``.
        groups: What ``condition_groups`` returned.
        seeds: Seeds, in the order of ``indices``.
        indices: Drawn seeds (replicates, seeds).
        level: Level of the intervals.

    Returns:
        One row per method, data set or ``overall``, kind (what was fitted on), cases (a number, or ``all``), condition
        group, and metric. ``difference`` is the mean of after - before, signed, and ``low``, ``high`` its percentile
        interval over resampled seeds, null where a seed has no run. Of the metric ``ece_reduction``, ``difference`` is
        the mean of (before - after) / before over the ``n_meaningful`` of ``n`` runs where that is meaningful, and
        ``before`` and ``after`` are their calibration errors. ``n_worse`` counts runs that got worse,
        ``n_without_map`` those that no map could be fitted for.
    """
    cases = pl.when("all_cases").then(pl.lit(ALL_CASES)).otherwise(pl.col("n_cases").cast(pl.Utf8))
    table = rows.sort(_ROW_ORDER).with_columns(
        cases=cases,
        kind="fitted_on",
        condition_group=pl.col("condition").replace_strict(dict(groups), return_dtype=pl.Utf8),
        position=pl.col("seed").replace_strict(list(seeds), list(range(len(seeds))), return_dtype=pl.Int64),
    )
    both = pl.concat([table, table.with_columns(dataset=pl.lit(OVERALL))])
    found = [
        {**dict(zip(_KEYS, key, strict=True)), **entry}
        for key, frame in both.group_by(_KEYS, maintain_order=True)
        for entry in _entries(frame, indices, level)
    ]
    return pl.DataFrame(found, schema=SUMMARY_SCHEMA)


def _entries(frame: pl.DataFrame, indices: IntArray, level: float) -> Iterator[dict[str, Any]]:
    for metric in METRICS:
        used = frame.drop_nulls(f"{metric}_difference")
        worse = -1 if metric in HIGHER_IS_BETTER else 1
        changes = used[f"{metric}_difference"].to_numpy()
        yield _entry(frame, used, metric, metric, changes, worse, indices, level)
    used = frame.drop_nulls(REDUCTION)
    entry = _entry(frame, used, REDUCTION, "ece", used[REDUCTION].to_numpy(), -1, indices, level)
    yield {**entry, "n": frame.drop_nulls("ece_difference").height}


def _entry(
    frame: pl.DataFrame,
    used: pl.DataFrame,
    name: str,
    metric: str,
    changes: NDArray[np.float64],
    worse: int,
    indices: IntArray,
    level: float,
) -> dict[str, Any]:
    low, high = _seed_interval(changes, used["position"].to_numpy(), indices, level)
    return {
        "metric": name,
        "before": _mean(used[f"{metric}_before"].to_numpy()),
        "after": _mean(used[f"{metric}_after"].to_numpy()),
        "difference": _mean(changes),
        "low": low,
        "high": high,
        "n": used.height,
        "n_meaningful": int(used["meaningful"].sum()),
        "n_worse": int((np.sign(changes) == worse).sum()),
        "n_without_map": frame["reason"].count(),
    }


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None


def _seed_interval(
    values: NDArray[np.float64], positions: NDArray[np.int64], indices: IntArray, level: float
) -> tuple[float | None, float | None]:
    """Interval of the mean over the runs of drawn seeds, each seed weighing by its number of runs."""
    seeds = indices.shape[1]
    counts = np.bincount(positions, minlength=seeds).astype(np.float64)
    if seeds < 2 or not counts.all():
        return None, None
    sums = np.bincount(positions, weights=values, minlength=seeds)
    totals = seed_bootstrap_means(np.stack([sums, counts]), indices)
    lower, upper = percentile_interval(totals[0] / totals[1], level=level)
    return float(lower), float(upper)
