"""The four axes of a model on the images of one subgroup, and what they are under resampled patients.

Groups are worked off one after the other, and resamples in blocks, which bounds the memory: a group's runs take about
16 bytes per row, run and class, its draws 8 bytes per resample, run and class.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from crs_assets.science.analyses.replicated_axes import CaseGroups, case_draws, raw_axes
from crs_assets.science.analyses.replicated_metrics import SeedMetrics
from crs_assets.science.analyses.resampling import ClassMetrics, Weights, group_positions, mean_of_known
from crs_assets.science.analyses.subgroup_axes import Classes, Group, Rows, SubgroupRuns
from crs_assets.science.evaluation import Scored, per_class, probabilities
from crs_assets.science.labels import TaskType
from crs_assets.science.metrics import label_efficiency, multilabel_null_band, null_band, robustness
from crs_assets.science.protocol import AxisType, Protocol
from crs_assets.science.seeding import generator
from crs_assets.science.validation import FloatArray, IntArray

T = TypeVar("T")
U = TypeVar("U")
FULL = 1.0


@dataclass(frozen=True, eq=False)
class PerRun(Generic[T]):
    """Something of every run that axes are made of.

    Attributes:
        curve: Of the clean runs, by label fraction.
        degraded: Of the runs at all labels, by condition.
        transfer: Of source and target, as the target names its labels; None without a target.
    """

    curve: Mapping[float, T]
    degraded: Mapping[str, T]
    transfer: tuple[T, T] | None

    def map(self, function: Callable[[T], U]) -> "PerRun[U]":
        """The function's value of each run."""
        return PerRun(
            curve={fraction: function(item) for fraction, item in self.curve.items()},
            degraded={condition: function(item) for condition, item in self.degraded.items()},
            transfer=None if self.transfer is None else (function(self.transfer[0]), function(self.transfer[1])),
        )

    def __iter__(self) -> Iterator[T]:
        yield from self.curve.values()
        yield from self.degraded.values()
        yield from self.transfer or ()


@dataclass(frozen=True, eq=False)
class Measured:
    """AUROC of each class in every run of a group, and its calibration error.

    Attributes:
        group: The group.
        aurocs: AUROC of each class, float64 (C,); NaN where it cannot be estimated.
        auroc_draws: The same of the judged classes under resampled test groups, float64 (C, R); NaN for the others.
        ece: Expected calibration error, clean, all labels.
        ece_null: Null band of that error at the group's number of images.
        ece_draws: The error under resampled test groups, float64 (R,).
    """

    group: Group
    aurocs: PerRun[FloatArray]
    auroc_draws: PerRun[FloatArray]
    ece: float
    ece_null: float
    ece_draws: FloatArray


def measure(
    runs: SubgroupRuns,
    groups: Sequence[Group],
    protocol: Protocol,
    dataset: str,
    progress: Callable[[int], None] = lambda _: None,
) -> list[Measured]:
    """Metrics of groups in every run, and under the same resamples of all test groups.

    The resamples are those of every other case bootstrap on this data set, and on the target: they depend on no
    encoder, seed or column.

    Args:
        runs: The predictions.
        groups: The groups to measure.
        protocol: Bins, null band, replicates.
        dataset: Names the resamples.
        progress: Told how many groups are done.
    """
    sides = [_Side.of(dataset, runs.group_ids)]
    if runs.transfer is not None:
        sides.append(_Side.of(runs.transfer.image_set, runs.transfer.group_ids))
    found = []
    for done, group in enumerate(groups, start=1):
        found.append(_measured(runs, group, sides, protocol, dataset))
        progress(done)
    return found


def axis_values(
    measured: Measured, classes: Classes, transfer_classes: Classes, protocol: Protocol
) -> dict[AxisType, float]:
    """The four raw axes of a group.

    Args:
        measured: The group's metrics.
        classes: Classes to average AUROC over.
        transfer_classes: Classes of K_T to average the transfer drop over; without any, robustness is without it.
        protocol: Form of the axes.

    Returns:
        Axis -> raw value as in ``profiles.seed_axes``; NaN where not estimable.
    """
    form, threshold = protocol.axes.form, protocol.metrics.skill_min_auroc
    macros = measured.aurocs.map(lambda aurocs: macro_of(aurocs, classes))
    pair = None
    if transfer_classes and measured.aurocs.transfer is not None:
        source, target = measured.aurocs.transfer
        pair = (macro_of(source, transfer_classes), macro_of(target, transfer_classes))
    full = macros.curve[FULL]
    partial = {fraction: value for fraction, value in macros.curve.items() if fraction != FULL}
    drops = robustness(full, macros.degraded, form=form, source_and_target=pair, skill_min_auroc=threshold)
    return {
        "discrimination": full,
        "calibration": measured.ece,
        "label_efficiency": label_efficiency(partial, full, form=form, skill_min_auroc=threshold),
        "robustness": drops.value,
    }


def axis_draws(measured: Measured, classes: Classes, transfer_classes: Classes, protocol: Protocol) -> FloatArray:
    """The four raw axes of a group under resampled test groups, float64 (R, 4); arguments as for ``axis_values``."""
    draws = measured.auroc_draws
    macros = draws.map(lambda aurocs: mean_of_known(aurocs[list(classes)]))
    pair = np.empty((len(measured.ece_draws), 0))
    if transfer_classes and draws.transfer is not None:
        pair = np.stack([mean_of_known(side[list(transfer_classes)]) for side in draws.transfer], axis=1)
    found = SeedMetrics(
        curve=np.stack([macros.curve[fraction] for fraction in sorted(macros.curve)], axis=1),
        degraded=np.stack(list(macros.degraded.values()), axis=1),
        ece=measured.ece_draws,
        transfer=pair,
    )
    return raw_axes(found, protocol, distinct_fractions=True)


def macro_of(aurocs: FloatArray, classes: Classes) -> float:
    """Mean AUROC over the given classes, of those that are known; NaN where none is."""
    return float(mean_of_known(aurocs[list(classes)]))


@dataclass(frozen=True, eq=False)
class _Side:
    """Whose groups are resampled: those of the data set's test images, or of the target."""

    cases: CaseGroups
    position: IntArray

    @classmethod
    def of(cls, image_set: str, group_ids: Any) -> "_Side":
        names, position = group_positions(group_ids)
        return cls(CaseGroups(image_set, len(names), len(group_ids)), position)


@dataclass(frozen=True, eq=False)
class _Part:
    """A group's images in one run, which side's groups they are of, and the classes that are judged."""

    run: Scored
    task: TaskType
    side: int
    rows: Rows
    classes: Classes

    @classmethod
    def of(cls, run: Scored, task: TaskType, side: int, rows: Rows, classes: Classes) -> "_Part":
        return cls(replace(run, labels=run.labels[rows], logits=run.logits[rows]), task, side, rows, classes)

    def metrics(self, side: _Side, n_bins: int | None) -> ClassMetrics:
        groups = side.position[self.rows]
        return ClassMetrics(
            self.run, self.task, n_bins, classes=self.classes, groups=groups, n_groups=side.cases.groups
        )


class _Drawn:
    """One part's metrics under the resamples so far."""

    def __init__(self, part: _Part, sides: Sequence[_Side], n_bins: int | None) -> None:
        self._side, self._metrics = part.side, part.metrics(sides[part.side], n_bins)
        self._blocks: list[tuple[FloatArray, FloatArray]] = []

    def add(self, weights: Sequence[Weights]) -> None:
        self._blocks.append(self._metrics.evaluate(weights[self._side]))

    def aurocs(self) -> FloatArray:
        return np.concatenate([aurocs for aurocs, _ in self._blocks], axis=1)

    def errors(self) -> FloatArray:
        return np.concatenate([errors for _, errors in self._blocks])


def _measured(runs: SubgroupRuns, group: Group, sides: Sequence[_Side], protocol: Protocol, dataset: str) -> Measured:
    parts = _parts(runs, group)
    full, n_bins = parts.curve[FULL], protocol.metrics.ece_bins
    # The calibration axis is read from one run alone.
    drawn = parts.map(lambda part: _Drawn(part, sides, n_bins if part is full else None))
    replicates = protocol.analyses.subgroups.replicates
    for weights in case_draws([side.cases for side in sides], replicates, protocol.salt):
        for each in drawn:
            each.add(weights)
    once = np.ones((sides[0].cases.groups, 1))
    return Measured(
        group=group,
        aurocs=parts.map(lambda part: per_class(part.run, part.task)),
        auroc_draws=drawn.map(_Drawn.aurocs),
        ece=float(full.metrics(sides[0], n_bins).evaluate(once)[1][0]),
        ece_null=_ece_null(full.run, group, runs.task, protocol, dataset),
        ece_draws=drawn.curve[FULL].errors(),
    )


def _parts(runs: SubgroupRuns, group: Group) -> PerRun[_Part]:
    pair = None
    if runs.transfer is not None and group.target_rows is not None:
        task = runs.transfer.task
        source = _Part.of(runs.transfer.source, task, 0, group.rows, group.transfer_classes)
        pair = (source, _Part.of(runs.transfer.target, task, 1, group.target_rows, group.transfer_classes))
    whole = PerRun(runs.curve, runs.degraded, None).map(
        lambda run: _Part.of(run, runs.task, 0, group.rows, group.classes)
    )
    return replace(whole, transfer=pair)


def _ece_null(run: Scored, group: Group, task: TaskType, protocol: Protocol, dataset: str) -> float:
    """A group of few images has a large error by chance alone: errors are comparable beside their null bands only."""
    settings = protocol.metrics
    fitted = np.asarray(np.isfinite(run.logits).all(axis=0))
    rng = generator(protocol.salt, "subgroup_null_band", dataset, group.column, group.name)
    proba = probabilities(run.logits, task)
    options: dict[str, Any] = {
        "draws": settings.null_band_draws,
        "level": settings.null_band_level,
        "rng": rng,
        "n_bins": settings.ece_bins,
    }
    if task != "multilabel":
        return null_band(proba, **options) if fitted.all() else float("nan")
    scored = [k for k in run.classes if fitted[k]]
    if not scored:
        return float("nan")
    return multilabel_null_band(proba[:, scored], observed=~np.isnan(run.labels[:, scored]), **options)
