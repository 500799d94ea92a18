"""Subgroups: the four axes within each group of a column, the group that fares worst, and how far the groups differ.

Groups of few patients are named and shown without a figure. Images without a value of the column are a group apart,
which is never the worst. Every figure of a group rests on the classes that the group can be judged on, so groups may
rest on different classes; a gap is therefore given twice, each group on its own classes, and all on common ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crs_assets.science.analyses.resampling import interval_of
from crs_assets.science.analyses.subgroup_axes import Classes, Group, SubgroupRuns, select_groups
from crs_assets.science.analyses.subgroup_measures import Measured, axis_draws, axis_values, measure
from crs_assets.science.analyses.suppression import shown_count
from crs_assets.science.protocol import AXES, AxisType, Protocol
from crs_assets.science.validation import FloatArray

OWN_CLASSES = "own"
COMMON_CLASSES = "common"

SUBGROUP_SCHEMA: dict[str, Any] = {
    "column": pl.String,
    "group": pl.String,
    "axis": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "ece_null": pl.Float64,
    "n_images": pl.String,
    "n_groups": pl.String,
    "classes": pl.Int64,
    "with_transfer": pl.Boolean,
    "suppressed": pl.Boolean,
    "reason": pl.String,
}
GAP_SCHEMA: dict[str, Any] = {
    "column": pl.String,
    "axis": pl.String,
    "basis": pl.String,
    "classes": pl.Int64,
    "worst": pl.String,
    "best": pl.String,
    "gap": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "with_transfer": pl.Boolean,
    "reason": pl.String,
}


@dataclass(frozen=True)
class SubgroupTables:
    """Results of one encoder, data set and seed.

    Attributes:
        groups: One row per column, group and axis, as ``SUBGROUP_SCHEMA``. ``low`` and ``high`` bound the value under
            resampled patients. Resampling adds noise to every bin, and robustness holds the worst of many drops, so
            their intervals may lie above their values; ``ece_null`` stands beside a calibration error. Robustness holds
            the drop to the target only where every known group that is shown has its like there (``with_transfer``).
            Counts are text: ``<10`` where they are suppressed.
        gaps: One row per column, axis and ``basis``, as ``GAP_SCHEMA``: the largest minus the smallest value over known
            groups that are shown, AUROC over each group's ``own`` classes or over ``common`` ones (calibration needs no
            classes: null). ``low`` and ``high`` bound the difference between these two groups, signed so that the gap
            itself is positive: an interval that reaches below 0 leaves open which of them fares worse. Both were chosen
            on these images, so with many groups the interval is too narrow.
    """

    groups: pl.DataFrame
    gaps: pl.DataFrame


def subgroup_tables(
    runs: SubgroupRuns, protocol: Protocol, dataset: str, progress: Callable[[int, int], None] = lambda *_: None
) -> SubgroupTables:
    """The axes of every group of every column.

    Intervals are percentile intervals over resampled test groups (patients, lesions), the same for all encoders.

    Args:
        runs: Predictions with subgroup columns.
        protocol: Fewest patients, eligibility, form of the axes, replicates, level.
        dataset: Names the resamples.
        progress: Told how many groups are done, and how many there are.
    """
    columns = [select_groups(runs, column, protocol) for column in runs.columns]
    shown = [group for groups in columns for group in groups if group.shown and runs.problem is None]
    measured = measure(runs, shown, protocol, dataset, lambda done: progress(done, len(shown)))
    found = {(entry.group.column, entry.group.name): entry for entry in measured}
    rows: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    for groups in columns:
        report = _ColumnReport(runs, groups, found, protocol)
        rows.extend(report.rows())
        gaps.extend(report.gaps())
    return SubgroupTables(pl.DataFrame(rows, schema=SUBGROUP_SCHEMA), pl.DataFrame(gaps, schema=GAP_SCHEMA))


class _ColumnReport:
    """Rows of one subgroup column."""

    def __init__(
        self,
        runs: SubgroupRuns,
        groups: Sequence[Group],
        found: Mapping[tuple[str, str], Measured],
        protocol: Protocol,
    ) -> None:
        self._runs, self._groups, self._protocol = runs, groups, protocol
        self._level = protocol.statistics.interval
        self._measured = {group.name: found.get((group.column, group.name)) for group in groups}
        self._known = [entry for entry in self._measured.values() if entry is not None and entry.group.is_known]
        self._hides = not all(group.shown for group in groups)
        # One formula per column: a drop to the target in some groups only would not compare.
        self._with_transfer = bool(self._known) and all(entry.aurocs.transfer is not None for entry in self._known)

    def rows(self) -> list[dict[str, Any]]:
        return [row for group in self._groups for row in self._group_rows(group)]

    def gaps(self) -> list[dict[str, Any]]:
        name = self._groups[0].column
        own = {entry.group.name: entry.group.classes for entry in self._known}
        shared = _common(own)
        common = {name: shared if classes else () for name, classes in own.items()}
        gaps = []
        for axis in AXES:
            bases = {None: own} if axis == "calibration" else {OWN_CLASSES: own, COMMON_CLASSES: common}
            gaps += [{"column": name, "axis": axis, **self._gap(axis, basis, on)} for basis, on in bases.items()]
        return gaps

    def _group_rows(self, group: Group) -> list[dict[str, Any]]:
        entry, minimum = self._measured[group.name], self._protocol.analyses.subgroups.min_groups
        values = self._values(entry, group.classes, OWN_CLASSES) if entry else dict.fromkeys(AXES, float("nan"))
        shared = {
            "column": group.column,
            "group": group.name,
            "n_images": shown_count(len(group.rows), minimum, people=group.n_groups, coarse=self._hides),
            "n_groups": shown_count(group.n_groups, minimum, coarse=self._hides),
            "classes": len(group.classes) if group.shown else None,
            "suppressed": not group.shown,
        }
        rows = []
        for axis in AXES:
            is_known = bool(np.isfinite(values[axis]))
            low, high = self._interval(entry if is_known else None, axis, group.classes)
            rows.append(
                {
                    **shared,
                    "axis": axis,
                    "value": _known(values[axis]),
                    "low": low,
                    "high": high,
                    "ece_null": _known(entry.ece_null) if entry and axis == "calibration" else None,
                    "with_transfer": self._transfers(group) if entry and axis == "robustness" else None,
                    "reason": self._reason(group, axis, values[axis]),
                }
            )
        return rows

    def _transfers(self, group: Group) -> bool:
        return self._with_transfer and group.is_known

    def _transfer_classes(self, entry: Measured, basis: str | None) -> Classes:
        if not self._transfers(entry.group):
            return ()
        if basis == COMMON_CLASSES:
            return _intersection([other.group.transfer_classes for other in self._known])
        return entry.group.transfer_classes

    def _values(self, entry: Measured, classes: Classes, basis: str | None) -> dict[AxisType, float]:
        values = axis_values(entry, classes, self._transfer_classes(entry, basis), self._protocol)
        return values if self._runs.distinct_fractions else {**values, "label_efficiency": float("nan")}

    def _draws(self, entry: Measured, axis: AxisType, classes: Classes, basis: str | None) -> FloatArray | None:
        if axis == "label_efficiency" and not self._runs.distinct_fractions:
            return None
        drawn = axis_draws(entry, classes, self._transfer_classes(entry, basis), self._protocol)
        return drawn[:, AXES.index(axis)]

    def _interval(self, entry: Measured | None, axis: AxisType, classes: Classes) -> tuple[float | None, float | None]:
        draws = self._draws(entry, axis, classes, OWN_CLASSES) if entry else None
        if draws is None:
            return None, None
        low, high = interval_of(draws, level=self._level)
        return _known(low), _known(high)

    def _gap(self, axis: AxisType, basis: str | None, classes: Mapping[str, Classes]) -> dict[str, Any]:
        values = {
            entry.group.name: self._values(entry, classes[entry.group.name], basis)[axis] for entry in self._known
        }
        values = {name: value for name, value in values.items() if np.isfinite(value)}
        row: dict[str, Any] = dict.fromkeys(("worst", "best", "gap", "low", "high", "reason")) | {
            "basis": basis,
            "classes": len(_common(classes)) if basis == COMMON_CLASSES else None,
            "with_transfer": self._gap_has_transfer(basis) if axis == "robustness" else None,
        }
        if len(values) < 2:
            return row | {"reason": self._runs.problem or "fewer than two groups can be compared"}
        anchor = self._protocol.axes.anchors[axis]
        ends = min(values, key=lambda name: values[name]), max(values, key=lambda name: values[name])
        worst, best = ends if anchor.one > anchor.zero else reversed(ends)
        low, high = self._difference(axis, basis, {name: classes[name] for name in ends})
        gap = values[ends[1]] - values[ends[0]]
        return row | {"worst": worst, "best": best, "gap": gap, "low": low, "high": high}

    def _gap_has_transfer(self, basis: str | None) -> bool:
        return self._with_transfer and all(self._transfer_classes(entry, basis) for entry in self._known)

    def _difference(
        self, axis: AxisType, basis: str | None, ends: Mapping[str, Classes]
    ) -> tuple[float | None, float | None]:
        """Interval of the second group's value minus the first's, under the same resamples."""
        measured = {entry.group.name: entry for entry in self._known}
        draws = [self._draws(measured[name], axis, classes, basis) for name, classes in ends.items()]
        if len(draws) < 2 or draws[0] is None or draws[1] is None:
            return None, None
        low, high = interval_of(draws[1] - draws[0], level=self._level)
        return _known(low), _known(high)

    def _reason(self, group: Group, axis: AxisType, value: float) -> str | None:
        """Why a figure is missing; None where it is there."""
        if not group.shown:
            return f"fewer than {self._protocol.analyses.subgroups.min_groups} patients"
        if self._runs.problem is not None:
            return self._runs.problem
        if np.isfinite(value):
            return None
        if axis != "calibration" and not group.classes:
            needed = self._protocol.data.eligibility.test
            return f"no scored class has {needed} positives and {needed} negatives in the group"
        if axis == "label_efficiency" and not self._runs.distinct_fractions:
            return "two label fractions come to the same images"
        return "not estimable"


def _intersection(sets: Sequence[Classes]) -> Classes:
    """What all have in common, ascending; nothing where there is none to begin with."""
    return tuple(sorted(set(sets[0]).intersection(*sets[1:]))) if sets else ()


def _common(classes: Mapping[str, Classes]) -> Classes:
    """The classes that every group can be judged on, of those that can be judged on any."""
    return _intersection([own for own in classes.values() if own])


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
