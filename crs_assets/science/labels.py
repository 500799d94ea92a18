"""From the label columns of an index to the arrays that probes and metrics read.

An index holds cells as their source wrote them: 1 positive, 0 negative, -1 uncertain, null blank. What an uncertain
cell means while fitting is a policy of the protocol. In evaluation it is always masked: a score must not depend on a
guess about what a report meant.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import polars as pl

from crs_assets.science.protocol import UncertainPolicyType

TaskType = Literal["multiclass", "ordinal", "multilabel"]

UNCERTAIN = -1
LABEL = "label"

# The usual recipe for CheXpert: uncertain counts as positive for these two labels and as negative for all others
# (LibAUC's loader, after Irvin et al., AAAI 2019, arXiv:1901.07031, table 3).
MIXED_POSITIVE: tuple[str, ...] = ("Edema", "Atelectasis")


class LabelSpace(Protocol):
    """What labels, splits and eligibility need to know of a data set; every data set specification satisfies it."""

    @property
    def id(self) -> str:
        """The data set's id, as it enters the hashes."""

    @property
    def task(self) -> TaskType:
        """``multiclass``, ``ordinal`` or ``multilabel``."""

    @property
    def classes(self) -> Sequence[str]:
        """Class names, in the order of class indices or of label columns."""


class LabelError(ValueError):
    """Labels that cannot be used as they are; the message says which, and what to do."""


def label_columns(space: LabelSpace) -> tuple[str, ...]:
    """The index columns that hold the labels: ``label``, or ``label:<class>`` for each class of a multilabel set."""
    if space.task == "multilabel":
        return tuple(f"{LABEL}:{name}" for name in space.classes)
    return (LABEL,)


def fit_labels(index: pl.DataFrame, space: LabelSpace, policy: UncertainPolicyType) -> npt.NDArray[np.generic]:
    """Labels for fitting.

    Args:
        index: Rows of an index, in any order, without quarantined ones.
        space: The data set.
        policy: What becomes of an uncertain cell: ``u_ignore`` masks it, ``u_zeros`` and ``u_ones`` set it to 0 or 1,
            ``mixed`` sets it to 1 for the labels of ``MIXED_POSITIVE`` and to 0 for the others. Without effect on
            multiclass and ordinal sets, which have no uncertain cell.

    Returns:
        ``(n,)`` int64 class indices, or ``(n, L)`` float32 of 0, 1 and NaN (not observed) for a multilabel set. A blank
        cell is a negative; a row whose cells are all blank has no observed label.

    Raises:
        LabelError: If label columns are missing, a value is out of range, or the policy does not fit the data set.
    """
    if space.task != "multilabel":
        return _class_indices(index, space)
    cells, uncertain = _cells(index, space)
    if policy == "u_ignore":
        cells[uncertain] = np.nan
        return cells
    positive = np.array([name in _uncertain_as_positive(space, policy) for name in space.classes])
    return np.where(uncertain, positive.astype(np.float32), cells)


def evaluation_labels(index: pl.DataFrame, space: LabelSpace) -> npt.NDArray[np.generic]:
    """Labels for evaluation: as ``fit_labels`` with every uncertain cell masked, whatever the protocol fits on.

    Args:
        index: Rows of an index, in any order, without quarantined ones.
        space: The data set.

    Returns:
        ``(n,)`` int64, or ``(n, L)`` float32 with NaN where a label is not observed.

    Raises:
        LabelError: If label columns are missing or a value is out of range.
    """
    return fit_labels(index, space, "u_ignore")


def membership(index: pl.DataFrame, space: LabelSpace) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which rows are a definite positive, and which a definite negative, of each class.

    Uncertain and unobserved cells are neither, so splits and eligibility do not depend on the fitting policy.

    Args:
        index: Rows of an index, in any order, without quarantined ones.
        space: The data set.

    Returns:
        Two ``(n, classes)`` arrays: positive, negative.

    Raises:
        LabelError: If label columns are missing or a value is out of range.
    """
    labels = evaluation_labels(index, space)
    if space.task == "multilabel":
        return labels == 1, labels == 0
    positive = labels[:, None] == np.arange(len(space.classes))
    return positive, ~positive


def _uncertain_as_positive(space: LabelSpace, policy: UncertainPolicyType) -> Sequence[str]:
    if policy == "u_zeros":
        return ()
    if policy == "u_ones":
        return space.classes
    if policy != "mixed":
        raise LabelError(f"unknown policy {policy!r}; expected u_ignore, u_zeros, u_ones or mixed.")
    if missing := [name for name in MIXED_POSITIVE if name not in space.classes]:
        raise LabelError(
            f"{space.id}: the policy 'mixed' is CheXpert's and needs the labels {missing}, which this data set does "
            "not have; choose u_ignore, u_zeros or u_ones in the protocol."
        )
    return MIXED_POSITIVE


def _class_indices(index: pl.DataFrame, space: LabelSpace) -> npt.NDArray[np.int64]:
    _require_columns(index, space)
    labels = index[LABEL]
    if labels.null_count():
        raise LabelError(f"{space.id}: {labels.null_count()} of {index.height} rows have no label; quarantine them.")
    values = labels.cast(pl.Int64).to_numpy()
    outside = (values < 0) | (values >= len(space.classes))
    if outside.any():
        raise LabelError(
            f"{space.id}: class indices {sorted(set(values[outside].tolist()))[:10]} in {int(outside.sum())} rows; "
            f"expected 0 to {len(space.classes) - 1}."
        )
    return values.astype(np.int64)


def _cells(index: pl.DataFrame, space: LabelSpace) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Cells with blanks resolved, and where they are uncertain."""
    _require_columns(index, space)
    raw = np.empty((index.height, len(space.classes)), dtype=np.float32)
    for position, column in enumerate(label_columns(space)):
        raw[:, position] = index[column].cast(pl.Float32).fill_null(np.nan).to_numpy()
    blank = np.isnan(raw)
    outside = ~blank & ~np.isin(raw, (UNCERTAIN, 0, 1))
    if outside.any():
        raise LabelError(
            f"{space.id}: label cells hold {np.unique(raw[outside]).tolist()[:10]} ({int(outside.sum())} cells); "
            "expected 1, 0, -1 or blank."
        )
    cells = np.where(blank & ~blank.all(axis=1, keepdims=True), np.float32(0), raw)
    return cells, raw == UNCERTAIN


def _require_columns(index: pl.DataFrame, space: LabelSpace) -> None:
    if missing := [column for column in label_columns(space) if column not in index.columns]:
        raise LabelError(f"{space.id}: the index lacks the columns {missing}; a {space.task} index needs them.")
