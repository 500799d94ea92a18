"""Transfer: which labels of a source its target is scored on, and what the source's probe says about each of them.

A target uses only what was fitted on its source: classes, and labels derived from them. Labels are matched by name,
after the target's ``label_map``, never by position. Where source and target are one kind of problem and every class of
the target is a class of the source, they are compared as they are. Else (a target that knows melanoma and nothing else)
every mapped label is a binary problem of its own: AUROC is one-vs-rest, ECE that of each mapped probability, and the
clean side of the drop is computed in the same way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.labels import LABEL, UNCERTAIN, LabelSpace, TaskType, evaluation_labels, membership

_KEPT = ("image_id", "group_id", "quarantine")


class TransferError(ValueError):
    """A source and a target that have no label in common, or a label map that leads nowhere."""


@dataclass(frozen=True)
class LabelView:
    """Names that labels are read under; a ``LabelSpace``.

    Attributes:
        id: The data set that the labels are of.
        task: Kind of problem.
        classes: Names, in the order of class indices or label columns.
    """

    id: str
    task: TaskType
    classes: tuple[str, ...]


def fitted_labels(source: DatasetSpec) -> LabelView:
    """What a probe is fitted on: the classes and, behind them, the derived labels of a multilabel source."""
    derived = tuple(source.derived) if source.task == "multilabel" else ()
    return LabelView(source.id, source.task, (*source.classes, *derived))


def derived_labels(source: DatasetSpec) -> LabelView:
    """The derived labels alone, each a binary problem: what their eligibility is decided on."""
    return LabelView(source.id, "multilabel", tuple(source.derived))


def mapped_labels(source: DatasetSpec, target: DatasetSpec) -> dict[str, str]:
    """Label of the target -> class or derived label of the source; labels that the source does not know are left out.

    Raises:
        TransferError: If the map leads to a label that the source does not have, or if nothing is in common.
    """
    known = (*source.classes, *source.derived)
    if unknown := sorted(set(target.label_map.values()) - set(known)):
        raise TransferError(
            f"{target.id}: label_map leads to {unknown}, but its source {source.id} has {list(known)}. Correct the "
            "map, or add a derived label to the source."
        )
    mapped = {name: target.label_map.get(name, name) for name in target.classes}
    shared = {name: label for name, label in mapped.items() if label in known}
    if not shared:
        raise TransferError(
            f"{target.id} has the labels {list(target.classes)}, its source {source.id} {list(known)}: none in common. "
            "Map them in the target's label_map."
        )
    return shared


def transfer_labels(source: DatasetSpec, target: DatasetSpec) -> LabelView:
    """The labels that a target is scored on, in the source's order; those it lacks are in it, and have no AUROC.

    Returns:
        The source's fitted labels where both are one kind of problem and the map is complete; else one binary problem
        for each class and derived label of the source.

    Raises:
        TransferError: As ``mapped_labels``.
    """
    if source.task == "multilabel" or _complete(source, target):
        return fitted_labels(source)
    return LabelView(source.id, "multilabel", (*source.classes, *source.derived))


def target_in_source_names(
    index: pl.DataFrame, source: DatasetSpec, target: DatasetSpec
) -> tuple[pl.DataFrame, LabelView]:
    """A target's index under the names of its source.

    Where several labels of the target lead to one of the source, it holds where any of them does.

    Args:
        index: Index of the target.
        source: The source.
        target: The target.

    Returns:
        The index with its label columns replaced, and the names in it: only what the target knows. Cells that are
        neither a definite positive nor a definite negative are uncertain.

    Raises:
        TransferError: As ``mapped_labels``.
    """
    mapped = mapped_labels(source, target)
    if source.task != "multilabel" and _complete(source, target):
        return index, LabelView(target.id, target.task, tuple(mapped[name] for name in target.classes))
    view = transfer_labels(source, target)
    names = tuple(name for name in view.classes if name in mapped.values())
    usable = pl.col("quarantine").is_null() if "quarantine" in index.columns else pl.lit(value=True)
    rows = index.filter(usable)
    positive, negative = membership(rows, target)
    columns = {}
    for name in names:
        at = [position for position, label in enumerate(target.classes) if mapped.get(label) == name]
        holds, fails = positive[:, at].any(axis=1), negative[:, at].all(axis=1)
        columns[f"{LABEL}:{name}"] = np.where(holds, 1, np.where(fails, 0, UNCERTAIN)).astype(np.int8)
    kept = rows.select(column for column in _KEPT if column in rows.columns)
    return kept.with_columns(pl.Series(name, cells) for name, cells in columns.items()), LabelView(
        target.id, "multilabel", names
    )


def source_transfer_labels(index: pl.DataFrame, source: DatasetSpec, view: LabelSpace) -> NDArray[np.generic]:
    """A source's own evaluation labels under the view that its target is scored on: the clean side of the drop.

    Args:
        index: Usable rows of the source's index.
        source: The source.
        view: What ``transfer_labels`` returned.

    Returns:
        (n,) int64, or (n, L) float32 with NaN where not observed; columns as in ``view``.
    """
    if view.task != "multilabel" or source.task == "multilabel":
        return evaluation_labels(index, view)
    positive, _ = membership(index, source)
    classes = [pl.Series(f"{LABEL}:{name}", positive[:, at].astype(np.int8)) for at, name in enumerate(source.classes)]
    return evaluation_labels(index.drop(LABEL).with_columns(classes), view)


def transfer_logits(
    logits: NDArray[np.floating[Any]], source: DatasetSpec, view: LabelSpace
) -> NDArray[np.floating[Any]]:
    """What the source's probe says about each label of the view.

    Args:
        logits: (n, C), in the order of the source's fitted labels.
        source: The source.
        view: What ``transfer_labels`` returned.

    Returns:
        The logits themselves; or, where a softmax is read one label at a time, float64 (n, L): the log-odds of the
        label's probability, log p - log(1 - p), p the summed softmax probability of its classes. For a single class
        they rank images as its log-softmax does, and their sigmoid is its probability.
    """
    if view.task != "multilabel" or source.task == "multilabel":
        return logits
    values = logits.astype(np.float64)
    at = {name: position for position, name in enumerate(source.classes)}
    columns = [_log_odds(values, [at[member] for member in source.derived.get(name, (name,))]) for name in view.classes]
    return np.stack(columns, axis=1)


def _log_odds(logits: NDArray[np.float64], members: Sequence[int]) -> NDArray[np.float64]:
    rest = np.setdiff1d(np.arange(logits.shape[1]), members)
    inside: NDArray[np.float64] = np.logaddexp.reduce(logits[:, members], axis=1)
    outside: NDArray[np.float64] = np.logaddexp.reduce(logits[:, rest], axis=1)
    return inside - outside


def _complete(source: DatasetSpec, target: DatasetSpec) -> bool:
    """Whether every class of the target is one class of the source, and both are single-label problems."""
    mapped = mapped_labels(source, target)
    return (
        "multilabel" not in (source.task, target.task)
        and len(mapped) == len(target.classes) == len(set(mapped.values()))
        and set(mapped.values()) <= set(source.classes)
    )
