"""Axis profiles: the four raw axes of an encoder on each data set, their parts, and their normalised values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crs_assets.science.metrics import area_under_learning_curve, label_efficiency, robustness
from crs_assets.science.protocol import AXES, CLEAN, TRANSFER, AxisType, Protocol
from crs_assets.science.scoring import normalize

COMPONENTS = ("mean_drop", "worst_drop", "transfer_drop", "aulc")


@dataclass(frozen=True)
class SeedAxes:
    """The raw axes of one cell and seed under one reading, or why there are none.

    Attributes:
        seed: Split seed.
        raw: Axis -> raw value.
        without_transfer: Robustness without the transfer term.
        components: Signed parts: mean, worst and transfer drop of AUROC; area under the learning curve.
        problem: Why an axis is not estimable; None where all four are.
    """

    seed: int
    raw: dict[AxisType, float]
    without_transfer: float
    components: dict[str, float]
    problem: str | None


def seed_axes(rows: pl.DataFrame, protocol: Protocol, *, distinct_fractions: bool) -> SeedAxes:
    """The four axes of one cell and seed from its rows of run metrics.

    Args:
        rows: Run metrics of one encoder, data set and seed: one row per (fraction, condition).
        protocol: The reading: which form the axes take.
        distinct_fractions: False where two label fractions came to the same images.

    Raises:
        ValueError: If a run of the grid has no row, or has two.
    """
    table = _by_run(rows, protocol)
    full = protocol.data.fractions[-1]
    clean = table[full, CLEAN]
    form, threshold = protocol.axes.form, protocol.metrics.skill_min_auroc
    curve = {fraction: table[fraction, CLEAN]["auroc"] for fraction in protocol.data.fractions}
    degraded = {condition.name: table[full, condition.name]["auroc"] for condition in protocol.degradations()}
    target = table.get((full, TRANSFER))
    pair = (target["auroc_source"], target["auroc"]) if target else None
    partial = {fraction: value for fraction, value in curve.items() if fraction < full}
    with_target = robustness(clean["auroc"], degraded, form=form, source_and_target=pair, skill_min_auroc=threshold)
    alone = robustness(clean["auroc"], degraded, form=form, skill_min_auroc=threshold)
    efficiency = label_efficiency(partial, curve[full], form=form, skill_min_auroc=threshold)
    raw: dict[AxisType, float] = {
        "discrimination": clean["auroc"],
        "calibration": clean["ece"],
        "label_efficiency": efficiency if distinct_fractions else float("nan"),
        "robustness": with_target.value,
    }
    return SeedAxes(
        seed=int(clean["seed"]),
        raw=raw,
        without_transfer=alone.value,
        components={
            "mean_drop": with_target.mean_drop,
            "worst_drop": with_target.worst_drop,
            "transfer_drop": float("nan") if with_target.transfer_drop is None else with_target.transfer_drop,
            "aulc": area_under_learning_curve(curve),
        },
        problem=_problem(rows, raw, distinct_fractions=distinct_fractions),
    )


def dataset_profile(seeds: list[SeedAxes], protocol: Protocol) -> dict[str, Any]:
    """The profile of one cell under one reading: means over seeds, and z where all four axes are estimable.

    Returns:
        ``raw``, ``without_transfer``, ``components``, ``per_seed``, ``z``, ``z_without_transfer`` (None where not
        estimable) and ``problem``.
    """
    problems = sorted({axes.problem for axes in seeds if axes.problem})
    raw = {axis: float(np.mean([axes.raw[axis] for axes in seeds])) for axis in AXES}
    without = float(np.mean([axes.without_transfer for axes in seeds]))
    estimable = not problems and all(np.isfinite(list(raw.values())))
    return {
        "raw": {axis: _number(value) for axis, value in raw.items()},
        "robustness_without_transfer": _number(without),
        "components": {name: _number(float(np.mean([axes.components[name] for axes in seeds]))) for name in COMPONENTS},
        "per_seed": [{"seed": axes.seed, **{axis: _number(axes.raw[axis]) for axis in AXES}} for axes in seeds],
        "z": _z(raw, protocol) if estimable else None,
        "z_without_transfer": _z({**raw, "robustness": without}, protocol) if estimable else None,
        "problem": "; ".join(problems) or None,
    }


def _z(raw: Mapping[AxisType, float], protocol: Protocol) -> dict[str, float]:
    z = normalize([raw[axis] for axis in AXES], protocol.axes.anchors, decimals=protocol.axes.score_decimals)
    return dict(zip(AXES, z.tolist(), strict=True))


def _number(value: float) -> float | None:
    # JSON has no NaN: what is not estimable is null, never a number.
    return float(value) if np.isfinite(value) else None


def _by_run(rows: pl.DataFrame, protocol: Protocol) -> dict[tuple[float, str], dict[str, Any]]:
    table: dict[tuple[float, str], dict[str, Any]] = {}
    for row in rows.iter_rows(named=True):
        key = (row["fraction"], row["condition"])
        if key in table:
            raise ValueError(f"two rows for label fraction {key[0]:g} and condition {key[1]}; expected one per run.")
        table[key] = row
    wanted = [
        (fraction, condition.name)
        for fraction in protocol.data.fractions
        for condition in protocol.conditions(transfer=False)
    ]
    missing = [f"{fraction:g}/{condition}" for fraction, condition in wanted if (fraction, condition) not in table]
    if missing:
        raise ValueError(f"{len(missing)} run(s) of the grid have no row: {', '.join(missing[:10])}.")
    return table


def _problem(rows: pl.DataFrame, raw: Mapping[AxisType, float], *, distinct_fractions: bool) -> str | None:
    if not distinct_fractions:
        return "two label fractions come to the same images: label efficiency is not estimable"
    if failed := rows.filter(~pl.col("converged")).height:
        return f"{failed} run(s) did not converge"
    if unknown := [axis for axis in AXES if not np.isfinite(raw[axis])]:
        return f"not estimable: {', '.join(unknown)}"
    return None
