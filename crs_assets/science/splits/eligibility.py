"""The classes that may be scored, from labels alone: one set for all seeds, fractions, conditions and encoders."""

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from crs_assets.science.labels import LabelSpace, membership
from crs_assets.science.protocol import Protocol
from crs_assets.science.splits.assignment import TEST, TRAIN, VALIDATION, RoleType, Splits
from crs_assets.science.splits.groups import usable_rows

IntArray = npt.NDArray[np.int64]
SIGNS = ("positives", "negatives")


def eligible_classes(
    index: pl.DataFrame, space: LabelSpace, splits: Sequence[Splits], protocol: Protocol
) -> pl.DataFrame:
    """K: classes with enough definite positives and negatives in test, and in train and validation of every seed.

    Uncertain and unobserved cells count for neither sign.

    Args:
        index: The index that was split.
        space: The data set.
        splits: The splits of every seed of the protocol.
        protocol: The counts wanted.

    Returns:
        One row per class, in class order: ``class``, ``<role>_positives`` and ``<role>_negatives`` for test, train and
        validation (the smallest over seeds), ``eligible``, and ``reason``, null where eligible.

    Raises:
        ValueError: If seeds of the protocol are missing.
    """
    if missing := sorted(set(protocol.data.seeds) - {split.seed for split in splits}):
        raise ValueError(f"{space.id}: eligibility needs the splits of every seed; missing {missing}.")
    rows = usable_rows(index)
    wanted: dict[RoleType, int] = {
        TEST: protocol.data.eligibility.test,
        TRAIN: protocol.data.eligibility.train,
        VALIDATION: protocol.data.eligibility.validation,
    }
    counts = {role: _fewest(rows, space, splits, role) for role in wanted}
    return _table(space.classes, {f"{role}_": counts[role] for role in wanted}, list(wanted.values()))


def eligible_target_classes(
    target: pl.DataFrame, target_space: LabelSpace, eligible: Collection[str], protocol: Protocol
) -> pl.DataFrame:
    """K_T: the classes of K that pass the test rule at the transfer target as well, matched by name.

    Args:
        target: Index of the target; all its usable rows are evaluated.
        target_space: The target data set.
        eligible: K of the source.
        protocol: The counts wanted.

    Returns:
        One row per class of K, in the target's class order, those it lacks last: ``class``, ``test_positives``,
        ``test_negatives``, ``eligible``, ``reason``.
    """
    positive, negative = membership(usable_rows(target), target_space)
    at = {name: position for position, name in enumerate(target_space.classes)}
    names = [name for name in target_space.classes if name in eligible] + sorted(set(eligible) - set(at))
    counts = np.array(
        [(positive[:, at[name]].sum(), negative[:, at[name]].sum()) if name in at else (0, 0) for name in names],
        dtype=np.int64,
    ).reshape(-1, 2)
    table = _table(names, {"test_": counts.T}, [protocol.data.eligibility.test])
    absent = ~pl.col("class").is_in(list(at))
    return table.with_columns(
        pl.when(absent).then(pl.lit("not a label of the target")).otherwise("reason").alias("reason")
    )


def eligible_names(table: pl.DataFrame) -> tuple[str, ...]:
    """The names of the eligible classes of a table made here, in its order."""
    return tuple(table.filter("eligible")["class"])


def _fewest(rows: pl.DataFrame, space: LabelSpace, splits: Sequence[Splits], role: RoleType) -> IntArray:
    """``(2, classes)``: positives and negatives of a role, the smallest over seeds."""
    positive, negative = membership(rows, space)
    counts = []
    for split in splits:
        joined = rows.select("image_id").join(split.frame, on="image_id", how="left", maintain_order="left")
        in_role = (joined["role"] == role).fill_null(value=False).to_numpy()
        counts.append([positive[in_role].sum(axis=0), negative[in_role].sum(axis=0)])
    fewest: IntArray = np.array(counts, dtype=np.int64).min(axis=0)
    return fewest


def _table(classes: Sequence[str], counts: dict[str, IntArray], wanted: Sequence[int]) -> pl.DataFrame:
    columns = {
        f"{prefix}{sign}": values[position] for prefix, values in counts.items() for position, sign in enumerate(SIGNS)
    }
    minima = [minimum for minimum in wanted for _ in SIGNS]
    reasons = []
    for row in range(len(classes)):
        short = [
            f"{int(values[row])} {name.replace('_', ' ')}, {minimum} needed"
            for (name, values), minimum in zip(columns.items(), minima, strict=True)
            if values[row] < minimum
        ]
        reasons.append("; ".join(short) or None)
    frame = pl.DataFrame({"class": pl.Series(list(classes), dtype=pl.String), **columns})
    reason = pl.Series("reason", reasons, dtype=pl.String)
    return frame.with_columns(reason.is_null().alias("eligible"), reason)
