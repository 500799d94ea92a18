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
GROUP_SIGNS = ("positive_groups", "negative_groups")


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
        validation (the smallest over seeds), ``eligible``, ``reason``, null where eligible, and the groups of these
        images, ``<role>_positive_groups`` and ``<role>_negative_groups`` (the smallest too).

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
    table = _table(space.classes, {f"{role}_": images for role, (images, _) in counts.items()}, list(wanted.values()))
    return table.with_columns(
        pl.Series(f"{role}_{sign}", groups[position])
        for role, (_, groups) in counts.items()
        for position, sign in enumerate(GROUP_SIGNS)
    )


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


def _fewest(
    rows: pl.DataFrame, space: LabelSpace, splits: Sequence[Splits], role: RoleType
) -> tuple[IntArray, IntArray]:
    """Images, then groups, each ``(2, classes)``: positives and negatives of a role, the smallest over seeds."""
    signs = membership(rows, space)
    names, group = np.unique(rows["group_id"].to_numpy().astype(str), return_inverse=True)
    images, groups = [], []
    for split in splits:
        joined = rows.select("image_id").join(split.frame, on="image_id", how="left", maintain_order="left")
        in_role = (joined["role"] == role).fill_null(value=False).to_numpy()
        images.append([sign[in_role].sum(axis=0) for sign in signs])
        groups.append([_count_groups(sign[in_role], group[in_role], len(names)) for sign in signs])
    return np.array(images, dtype=np.int64).min(axis=0), np.array(groups, dtype=np.int64).min(axis=0)


def _count_groups(sign: npt.NDArray[np.bool_], group: IntArray, total: int) -> list[int]:
    """Groups with an image of a sign, per class."""
    return [int(np.bincount(group[of_class], minlength=total).astype(bool).sum()) for of_class in sign.T]


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
