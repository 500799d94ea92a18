"""Axes measured another way from the same runs: what the score would be, had the protocol chosen otherwise."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from crs_assets.science.profiles import dataset_profile, seed_axes
from crs_assets.science.protocol import AxisType, Protocol

Restate = Callable[[pl.DataFrame, Protocol], pl.DataFrame]


@dataclass(frozen=True)
class AxisVariant:
    """Another way to measure an axis.

    Attributes:
        name: In tables.
        axis: The axis that changes; None where nothing does.
        restate: Rows of run metrics of one cell and seed as they have to be read for the axis to come out that way.
    """

    name: str
    axis: AxisType | None
    restate: Restate


def _as_measured(rows: pl.DataFrame, _: Protocol) -> pl.DataFrame:
    return rows


def _family_means(rows: pl.DataFrame, protocol: Protocol) -> pl.DataFrame:
    """AUROC of a degradation as the mean over its family's severities: the mean stays, the worst is the worst family.

    The worst of all conditions is a maximum over many noisy values and therefore too high on average.
    """
    families = {condition.name: condition.perturbation for condition in protocol.degradations()}
    family = pl.col("condition").replace(families)
    return rows.with_columns(pl.col("auroc").mean().over("fraction", family))


def _error(column: str) -> Restate:
    def restate(rows: pl.DataFrame, _: Protocol) -> pl.DataFrame:
        return rows.with_columns(ece=pl.col(column))

    return restate


AS_PUBLISHED = AxisVariant("as published", None, _as_measured)
VARIANTS = (
    AS_PUBLISHED,
    AxisVariant("worst family in place of worst condition", "robustness", _family_means),
    AxisVariant("equal-mass bins", "calibration", _error("ece_equal_mass")),
    AxisVariant("debiased RMS error", "calibration", _error("rms_calibration_debiased")),
)
"""``as published`` has to give the published scores: it shows that runs, profiles and panel belong together."""


def variant_profiles(
    runs: pl.DataFrame, weights: Mapping[str, str], reading: Protocol, variant: AxisVariant
) -> dict[str, Any]:
    """Profiles of every encoder with one axis measured another way.

    Args:
        runs: Run metrics of every seed of whole cells.
        weights: Encoder -> fingerprint of its weights.
        reading: Which form the axes take, and the anchors.
        variant: The other way.

    Returns:
        Encoder -> ``weights`` and ``datasets``: data set -> reading -> profile; a cell without z is left out.
    """
    profiles: dict[str, Any] = {name: {"weights": mark, "datasets": {}} for name, mark in sorted(weights.items())}
    ordered = runs.sort("encoder", "dataset", "seed", "fraction", "condition")
    for (encoder, dataset), cell in ordered.group_by("encoder", "dataset", maintain_order=True):
        seeds = [
            seed_axes(variant.restate(rows, reading), reading, distinct_fractions=has_distinct_fractions(rows))
            for _, rows in cell.group_by("seed", maintain_order=True)
        ]
        profile = dataset_profile(seeds, reading)
        if profile["z"] is not None:
            profiles[str(encoder)]["datasets"][str(dataset)] = {reading.id: profile}
    return profiles


def has_distinct_fractions(rows: pl.DataFrame) -> bool:
    """Whether no two label fractions of one cell and seed came to the same number of images."""
    sizes = rows.select("fraction", "n_fit").unique()
    return sizes["n_fit"].n_unique() == rows["fraction"].n_unique()
