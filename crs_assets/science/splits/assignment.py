"""Which role each image has: the seed-free test set, and train, validation and calibration of a seed."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import polars as pl

from crs_assets.science.labels import LabelSpace
from crs_assets.science.protocol import Protocol
from crs_assets.science.splits.groups import BoolArray, Groups, IntArray, cut_strata, group_rows, hash_rank, usable_rows
from crs_assets.science.splits.subsets import NestedSubsets, nest

RoleType = Literal["train", "validation", "calibration", "test"]
TRAIN: RoleType = "train"
VALIDATION: RoleType = "validation"
CALIBRATION: RoleType = "calibration"
TEST: RoleType = "test"
ROLES: tuple[RoleType, ...] = (TRAIN, VALIDATION, CALIBRATION, TEST)

IS_TEST = "is_test"


@dataclass(frozen=True)
class Splits:
    """The roles of one data set at one seed.

    Attributes:
        dataset: Data set id.
        seed: Split seed.
        frame: One row per usable image, sorted by ``image_id``: ``image_id``, ``role``, and ``enters_at``, the
            smallest label fraction whose subset holds the image (train and validation; null elsewhere).
        sizes: One row per label fraction: ``fraction``, ``n_fit`` train images, ``n_val`` validation images, and
            ``floor``, whether one group of every class is already more than the fraction of train.
        distinct_fractions: False where two fractions fit on the same images: label efficiency is then not estimable.
    """

    dataset: str
    seed: int
    frame: pl.DataFrame
    sizes: pl.DataFrame
    distinct_fractions: bool

    @cached_property
    def digest(self) -> str:
        """SHA-256 over ``image_id|role|enters_at`` of every row: equal digests are equal splits."""
        sha = hashlib.sha256()
        for image_id, role, enters_at in self.frame.select("image_id", "role", "enters_at").iter_rows():
            sha.update(f"{image_id}|{role}|{'' if enters_at is None else repr(enters_at)}\n".encode())
        return sha.hexdigest()

    def ids(self, role: RoleType, fraction: float = 1.0) -> pl.Series:
        """Image ids of a role, for train and validation those of a label fraction, ascending.

        Raises:
            ValueError: If the protocol of these splits has no such fraction.
        """
        if fraction not in self.sizes["fraction"]:
            raise ValueError(f"no label fraction {fraction}; the protocol has {self.sizes['fraction'].to_list()}.")
        rows = self.frame.filter(pl.col("role") == role)
        return rows.filter(pl.col("enters_at").is_null() | (pl.col("enters_at") <= fraction))["image_id"]


def assign_test(index: pl.DataFrame, space: LabelSpace, protocol: Protocol) -> pl.Series:
    """Choose the test set, the same for all seeds.

    Within a stratum, groups in ascending SHA-256 of ``<salt>|test|<data set>|<group_id>`` go to test until their images
    first reach the protocol's test fraction of the stratum's images.

    Args:
        index: An index, in any row order.
        space: The data set.
        protocol: Salt and test fraction.

    Returns:
        Boolean series ``is_test`` aligned with ``index``; null for quarantined rows, which have no role.

    Raises:
        ValueError: If the index lacks columns, repeats image ids, or has ungrouped usable rows.
        LabelError: If its labels are unusable.
    """
    rows = usable_rows(index)
    groups = group_rows(rows, space)
    rank = hash_rank(f"{protocol.salt}|test|{space.id}", groups.ids)
    part = cut_strata(groups.images, groups.stratum, rank, [protocol.data.test_fraction])
    chosen = pl.DataFrame({"image_id": rows["image_id"], IS_TEST: (part == 0)[groups.code]})
    return index.select("image_id").join(chosen, on="image_id", how="left", maintain_order="left")[IS_TEST]


def split_seed(index: pl.DataFrame, space: LabelSpace, seed: int, protocol: Protocol) -> Splits:
    """Divide everything but the test set into train, validation and calibration, and nest the label subsets.

    Within a stratum, groups outside the test set go, in ascending SHA-256 of
    ``<salt>|split|<data set>|<seed>|<group_id>``, to train until their images first reach ``train_until`` of the
    stratum's images outside the test set, then to validation until they first reach ``validation_until``; the rest is
    calibration.

    Args:
        index: An index, in any row order. Its column ``is_test`` is the test set where it has one (an official test
            set, or one that was recorded); otherwise ``assign_test`` decides.
        space: The data set.
        seed: Split seed.
        protocol: Salt, fractions and sizes.

    Raises:
        ValueError: If the index lacks columns, repeats image ids, has ungrouped usable rows or divided test groups.
        LabelError: If its labels are unusable.
    """
    if IS_TEST not in index.columns:
        index = index.with_columns(assign_test(index, space, protocol))
    rows = usable_rows(index)
    groups = group_rows(rows, space)
    rank = hash_rank(f"{protocol.salt}|split|{space.id}|{seed}", groups.ids)
    role = _roles(groups, rank, _test_groups(rows, groups), protocol)
    train, validation = (_subsets(groups, role, name, rank, space, protocol) for name in (TRAIN, VALIDATION))
    return Splits(
        dataset=space.id,
        seed=seed,
        frame=_frame(rows, groups, role, (train, validation), protocol),
        sizes=pl.DataFrame(
            {
                "fraction": protocol.data.fractions,
                "n_fit": train.images,
                "n_val": validation.images,
                "floor": train.floor,
            },
            schema={"fraction": pl.Float64, "n_fit": pl.Int64, "n_val": pl.Int64, "floor": pl.Boolean},
        ),
        distinct_fractions=train.distinct,
    )


def _test_groups(rows: pl.DataFrame, groups: Groups) -> BoolArray:
    if unknown := rows[IS_TEST].null_count():
        raise ValueError(f"{unknown} usable rows have no value in {IS_TEST!r}; expected true or false.")
    test_images = np.bincount(groups.code, weights=rows[IS_TEST].to_numpy(), minlength=len(groups.ids))
    if divided := int(((test_images > 0) & (test_images < groups.images)).sum()):
        raise ValueError(f"{divided} groups lie partly in the test set; {IS_TEST!r} must hold whole groups.")
    return test_images > 0


def _roles(groups: Groups, rank: IntArray, is_test: BoolArray, protocol: Protocol) -> IntArray:
    """Position in ``ROLES`` of each group."""
    role = np.full(len(groups.ids), ROLES.index(TEST), dtype=np.int64)
    rest = ~is_test
    cuts = [protocol.data.train_until, protocol.data.validation_until]
    role[rest] = cut_strata(groups.images[rest], groups.stratum[rest], rank[rest], cuts)
    return role


def _subsets(
    groups: Groups, role: IntArray, name: RoleType, rank: IntArray, space: LabelSpace, protocol: Protocol
) -> NestedSubsets:
    return nest(
        groups,
        np.flatnonzero(role == ROLES.index(name)),
        rank,
        protocol.data.fractions,
        both_signs=space.task == "multilabel",
        min_images=protocol.data.validation_min_images if name == VALIDATION else 0,
    )


def _frame(
    rows: pl.DataFrame, groups: Groups, role: IntArray, subsets: tuple[NestedSubsets, ...], protocol: Protocol
) -> pl.DataFrame:
    enters_at = np.full(len(groups.ids), np.nan)
    fractions = np.array(protocol.data.fractions)
    for subset in subsets:
        enters_at[subset.members] = fractions[subset.enters_at]
    return pl.DataFrame(
        {
            "image_id": rows["image_id"],
            "role": pl.Series(np.array(ROLES)[role][groups.code], dtype=pl.String),
            "enters_at": pl.Series(enters_at[groups.code], dtype=pl.Float64).fill_nan(None),
        }
    )
