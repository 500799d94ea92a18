"""Predictions by subgroup: which test images a group has, and the classes that can be judged in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.analyses.resampling import signs
from crs_assets.science.analyses.subgroup_columns import UNKNOWN, SubgroupColumn
from crs_assets.science.evaluation import Scored
from crs_assets.science.labels import TaskType
from crs_assets.science.protocol import Protocol

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
        image_set: The target, which names the resamples of its groups.
    """

    task: TaskType
    source: Scored
    target: Scored
    group_ids: NDArray[np.str_]
    columns: tuple[SubgroupColumn, ...]
    image_set: str


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
