"""The four axes of a model on the images of one subgroup, and what they are under resampled patients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.analyses.resampling import (
    ClassMetrics,
    case_resamples,
    group_positions,
    mean_of_known,
    signs,
)
from crs_assets.science.analyses.subgroup_columns import UNKNOWN, SubgroupColumn
from crs_assets.science.evaluation import Scored, per_class, probabilities
from crs_assets.science.labels import TaskType
from crs_assets.science.metrics import label_efficiency, multilabel_null_band, null_band, robustness
from crs_assets.science.protocol import AxisType, Protocol
from crs_assets.science.seeding import generator
from crs_assets.science.validation import FloatArray

Rows = NDArray[np.intp]
Classes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class TransferRuns:
    """Both sides of the transfer drop at all labels.

    Attributes:
        task: Kind of problem that the target is scored as.
        source: Clean predictions of the test images, labels and logits as the target names them; classes are K_T.
        target: Predictions of the target's images.
        group_ids: Group of each image of the target, str (m,).
        columns: Subgroup columns of the target's images.
    """

    task: TaskType
    source: Scored
    target: Scored
    group_ids: NDArray[np.str_]
    columns: tuple[SubgroupColumn, ...]


@dataclass(frozen=True, eq=False)
class SubgroupRuns:
    """Everything predicted by one encoder on one data set and seed; test images in one order throughout.

    Attributes:
        task: Kind of problem.
        group_ids: Group (patient, lesion) of each test image, str (n,).
        columns: Subgroup columns of the test images.
        curve: Label fraction -> clean predictions; 1 among them.
        degraded: Condition -> predictions at all labels.
        transfer: The target, where the data set has one.
        problem: Why no axis can be given, for example fits that did not converge; else None.
        distinct_fractions: False where two label fractions came to the same images.
    """

    task: TaskType
    group_ids: NDArray[np.str_]
    columns: tuple[SubgroupColumn, ...]
    curve: Mapping[float, Scored]
    degraded: Mapping[str, Scored]
    transfer: TransferRuns | None = None
    problem: str | None = None
    distinct_fractions: bool = True

    @property
    def clean(self) -> Scored:
        """Clean predictions at all labels."""
        return self.curve[1.0]


@dataclass(frozen=True, eq=False)
class Group:
    """The test images of one subgroup.

    Attributes:
        column: The subgroup column.
        name: The group's name in it.
        rows: Its test images.
        n_groups: Patients (lesions) among them.
        shown: Whether they are enough to be shown.
        classes: Scored classes with enough positives and negatives among the images.
        target_rows: The target's images of the same group; None where they are too few patients or have no class.
        transfer_classes: Classes of K_T with enough positives and negatives on both sides.
    """

    column: str
    name: str
    rows: Rows
    n_groups: int
    shown: bool
    classes: Classes
    target_rows: Rows | None = None
    transfer_classes: Classes = ()

    @property
    def is_known(self) -> bool:
        """Whether the column has a value for these images."""
        return self.name != UNKNOWN


@dataclass(frozen=True, eq=False)
class Measured:
    """AUROC of each class in every run of a group, and its calibration error.

    Attributes:
        group: The group.
        curve: Label fraction -> AUROC of each class, float64 (C,); NaN where it cannot be estimated.
        degraded: Condition -> AUROC of each class.
        transfer: AUROC of each class of the target's naming, source and target; None without a target.
        ece: Expected calibration error, clean, all labels.
        ece_null: Null band of that error at the group's number of images.
        auroc_draws: AUROC of each class under resampled test groups, float64 (C, R).
        ece_draws: The error under the same, float64 (R,).
    """

    group: Group
    curve: Mapping[float, FloatArray]
    degraded: Mapping[str, FloatArray]
    transfer: tuple[FloatArray, FloatArray] | None
    ece: float
    ece_null: float
    auroc_draws: FloatArray
    ece_draws: FloatArray


def select_groups(runs: SubgroupRuns, column: SubgroupColumn, protocol: Protocol) -> list[Group]:
    """The groups of a column, with the classes that can be judged in each.

    A class is judged with at least ``eligibility.test`` positives and as many negatives among the group's test images,
    at the target among its images there as well.

    Args:
        runs: The predictions.
        column: A column of ``runs.columns``.
        protocol: Fewest patients, fewest positives and negatives.
    """
    return [_group(runs, column, name, protocol) for name in column.groups]


def measure(runs: SubgroupRuns, groups: Sequence[Group], protocol: Protocol, dataset: str) -> list[Measured]:
    """Metrics of groups in every run, and under the same resamples of all test groups.

    The resamples are those of every other case bootstrap on this data set: they depend on no encoder, seed or column.
    """
    names, position = group_positions(runs.group_ids)
    counted = [
        ClassMetrics(
            _take(runs.clean, group.rows),
            runs.task,
            protocol.metrics.ece_bins,
            groups=position[group.rows],
            n_groups=len(names),
        )
        for group in groups
    ]
    points = [metric.evaluate(np.ones((len(names), 1)))[1] for metric in counted]
    replicates = protocol.analyses.subgroups.replicates
    chunks = [
        [metric.evaluate(weights) for metric in counted]
        for weights in case_resamples(runs.group_ids, replicates, protocol, dataset)
    ]
    return [
        Measured(
            group=group,
            curve={fraction: _aurocs(run, runs.task, group.rows) for fraction, run in runs.curve.items()},
            degraded={condition: _aurocs(run, runs.task, group.rows) for condition, run in runs.degraded.items()},
            transfer=_transfer_aurocs(runs.transfer, group),
            ece=float(points[at][0]),
            ece_null=_ece_null(runs, group, protocol, dataset),
            auroc_draws=np.concatenate([chunk[at][0] for chunk in chunks], axis=1),
            ece_draws=np.concatenate([chunk[at][1] for chunk in chunks]),
        )
        for at, group in enumerate(groups)
    ]


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
    curve = {fraction: macro_of(aurocs, classes) for fraction, aurocs in measured.curve.items()}
    degraded = {condition: macro_of(aurocs, classes) for condition, aurocs in measured.degraded.items()}
    pair = None
    if transfer_classes and measured.transfer is not None:
        source, target = measured.transfer
        pair = (macro_of(source, transfer_classes), macro_of(target, transfer_classes))
    full = curve.pop(1.0)
    drops = robustness(full, degraded, form=form, source_and_target=pair, skill_min_auroc=threshold)
    return {
        "discrimination": full,
        "calibration": measured.ece,
        "label_efficiency": label_efficiency(curve, full, form=form, skill_min_auroc=threshold),
        "robustness": drops.value,
    }


def macro_of(aurocs: FloatArray, classes: Classes) -> float:
    """Mean AUROC over the given classes, of those that are known; NaN where none is."""
    return float(mean_of_known(aurocs[list(classes)]))


def enough_of_both(run: Scored, rows: Rows, minimum: int) -> Classes:
    """The scored classes with at least ``minimum`` positives and as many negatives among these rows."""
    positive, negative = signs(run.labels[rows], run.logits.shape[1])
    fewer = np.minimum(positive.sum(axis=0), negative.sum(axis=0))
    return tuple(k for k in run.classes if fewer[k] >= minimum)


def _group(runs: SubgroupRuns, column: SubgroupColumn, name: str, protocol: Protocol) -> Group:
    rows = column.rows(name)
    n_groups = len(np.unique(runs.group_ids[rows]))
    known: dict[str, Any] = {
        "column": column.name,
        "name": name,
        "rows": rows,
        "n_groups": n_groups,
        "shown": n_groups >= protocol.analyses.subgroups.min_groups,
        "classes": enough_of_both(runs.clean, rows, protocol.data.eligibility.test),
    }
    target_rows, transfer_classes = _at_target(runs.transfer, column.name, name, rows, protocol)
    return Group(**known, target_rows=target_rows, transfer_classes=transfer_classes)


def _at_target(
    transfer: TransferRuns | None, column: str, name: str, rows: Rows, protocol: Protocol
) -> tuple[Rows | None, Classes]:
    """The same group at the target, and the classes both sides can be judged on; (None, ()) where there is none."""
    of_target = None if transfer is None else next((c for c in transfer.columns if c.name == column), None)
    if transfer is None or of_target is None or name == UNKNOWN:
        return None, ()
    there = of_target.rows(name)
    if len(np.unique(transfer.group_ids[there])) < protocol.analyses.subgroups.min_groups:
        return None, ()
    minimum = protocol.data.eligibility.test
    here = enough_of_both(transfer.source, rows, minimum)
    shared = set(enough_of_both(transfer.target, there, minimum))
    classes = tuple(k for k in here if k in shared)
    return (there, classes) if classes else (None, ())


def _take(run: Scored, rows: Rows) -> Scored:
    return replace(run, labels=run.labels[rows], logits=run.logits[rows])


def _aurocs(run: Scored, task: str, rows: Rows) -> FloatArray:
    return per_class(_take(run, rows), task)


def _transfer_aurocs(transfer: TransferRuns | None, group: Group) -> tuple[FloatArray, FloatArray] | None:
    if transfer is None or group.target_rows is None:
        return None
    return (
        _aurocs(transfer.source, transfer.task, group.rows),
        _aurocs(transfer.target, transfer.task, group.target_rows),
    )


def _ece_null(runs: SubgroupRuns, group: Group, protocol: Protocol, dataset: str) -> float:
    """A group of few images has a large error by chance alone: errors are comparable beside their null bands only."""
    settings, run = protocol.metrics, runs.clean
    fitted = np.asarray(np.isfinite(run.logits).all(axis=0))
    rng = generator(protocol.salt, "subgroup_null_band", dataset, group.column, group.name)
    proba = probabilities(run.logits[group.rows], runs.task)
    options: dict[str, Any] = {
        "draws": settings.null_band_draws,
        "level": settings.null_band_level,
        "rng": rng,
        "n_bins": settings.ece_bins,
    }
    if runs.task != "multilabel":
        return null_band(proba, **options) if fitted.all() else float("nan")
    scored = [k for k in run.classes if fitted[k]]
    if not scored:
        return float("nan")
    observed = ~np.isnan(run.labels[group.rows][:, scored])
    return multilabel_null_band(proba[:, scored], observed=observed, **options)
