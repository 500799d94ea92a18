"""The raw values of the label-efficiency and robustness axes, from AUROCs of one cell and seed.

Two readings. ``raw`` takes ratios and differences of AUROC as they are; ``skill`` counts only what lies above chance
(AUROC 0.5), because an encoder near chance retains everything and has nothing to drop. NaN means not estimable and
is never replaced.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.validation import FloatArray, numeric_array, refuse

AxisForm = Literal["raw", "skill"]

CHANCE_AUROC = 0.5


@dataclass(frozen=True)
class Robustness:
    """Loss of AUROC under degradation; drops are signed (a gain is negative), lower is better.

    Attributes:
        mean_drop: Mean over the degradations.
        worst_drop: Largest over the degradations.
        transfer_drop: Source minus target on the classes they share; None where the data set has no target.
        value: Mean of the parts, each floored at 0: the raw axis value. NaN if any part is not estimable.
    """

    mean_drop: float
    worst_drop: float
    transfer_drop: float | None
    value: float


def robustness(
    auroc_clean: float,
    auroc_degraded: Sequence[float] | Mapping[str, float],
    *,
    form: AxisForm,
    source_and_target: tuple[float, float] | None = None,
    skill_min_auroc: float | None = None,
) -> Robustness:
    """Robustness axis: mean and worst drop of AUROC, and the drop to the transfer target where there is one.

    The value is (m + w) / 2 without a target and (m + w + t) / 3 with one, each part floored at 0 after it is formed:
    a gain is no credit. ``skill`` divides every drop by what it could lose, the undegraded AUROC minus 0.5.

    Args:
        auroc_clean: Macro-AUROC of the undegraded test set.
        auroc_degraded: Macro-AUROC under each degradation; the names of a mapping are not used.
        form: ``raw`` or ``skill``.
        source_and_target: Macro-AUROC of source and target, both on the classes they share.
        skill_min_auroc: Undegraded AUROC below which a skill drop is not estimable (NaN); needed for ``skill``.

    Raises:
        ValueError: If there is no degradation, an AUROC leaves [0, 1], or ``skill`` lacks its threshold.
    """
    clean = _aurocs([auroc_clean], "auroc_clean")
    drops = _drops(clean, _aurocs(_values(auroc_degraded), "auroc_degraded"), form, skill_min_auroc)
    mean_drop, worst_drop = float(drops.mean()), float(drops.max())
    transfer_drop = None
    if source_and_target is not None:
        source, target = np.split(_aurocs(source_and_target, "source_and_target"), 2)
        transfer_drop = float(_drops(source, target, form, skill_min_auroc)[0])
    parts = [mean_drop, worst_drop] + ([] if transfer_drop is None else [transfer_drop])
    # np.maximum, unlike max, passes NaN on whatever the order of its arguments.
    return Robustness(mean_drop, worst_drop, transfer_drop, float(np.mean(np.maximum(parts, 0.0))))


def label_efficiency(
    auroc_by_fraction: Sequence[float] | Mapping[float, float],
    auroc_full: float,
    *,
    form: AxisForm,
    skill_min_auroc: float | None = None,
) -> float:
    """Label-efficiency axis: mean over label fractions of the share of full-label AUROC that is retained.

    ``raw``: AUROC_f / AUROC_100. ``skill``: (AUROC_f - 0.5) / (AUROC_100 - 0.5).

    Args:
        auroc_by_fraction: Macro-AUROC at each fraction below 1; a mapping's keys are the fractions.
        auroc_full: Macro-AUROC with all training labels.
        form: ``raw`` or ``skill``.
        skill_min_auroc: Full-label AUROC below which ``skill`` is not estimable (NaN); needed for ``skill``.

    Returns:
        The mean retention, about 0 to 1, higher is better; NaN if it is not estimable.

    Raises:
        ValueError: If no fraction is given, the full fraction is among them, an AUROC leaves [0, 1], or ``skill``
            lacks its threshold.
    """
    if isinstance(auroc_by_fraction, Mapping) and any(not 0 < fraction < 1 for fraction in auroc_by_fraction):
        raise ValueError(f"auroc_by_fraction has fractions {list(auroc_by_fraction)}, expected only those in (0, 1).")
    partial = _aurocs(_values(auroc_by_fraction), "auroc_by_fraction")
    full = _aurocs([auroc_full], "auroc_full")
    if form == "raw":
        return float(np.mean(partial / np.where(full > 0, full, np.nan)))
    return float(np.mean((partial - CHANCE_AUROC) / _skill(full, form, skill_min_auroc)))


def area_under_learning_curve(auroc_by_fraction: Mapping[float, float]) -> float:
    """Mean height of the learning curve: trapezoids of AUROC over log(fraction), divided by the width.

    On the log axis every tenfold of labels weighs the same. It measures attainment, not retention.

    Args:
        auroc_by_fraction: Macro-AUROC at each fraction in (0, 1]; at least two.

    Returns:
        A mean AUROC in [0, 1], higher is better; NaN if any AUROC is.

    Raises:
        ValueError: If fewer than two fractions are given, one leaves (0, 1], or an AUROC leaves [0, 1].
    """
    fractions = np.array(sorted(auroc_by_fraction), dtype=np.float64)
    if len(fractions) < 2 or fractions[0] <= 0 or fractions[-1] > 1:
        raise ValueError(f"auroc_by_fraction has fractions {fractions.tolist()}, expected at least two in (0, 1].")
    heights = _aurocs([auroc_by_fraction[fraction] for fraction in sorted(auroc_by_fraction)], "auroc_by_fraction")
    position = np.log(fractions)
    return float(np.trapezoid(heights, position) / (position[-1] - position[0]))


def _values(aurocs: Sequence[float] | Mapping[float, float] | Mapping[str, float]) -> list[float]:
    return list(aurocs.values()) if isinstance(aurocs, Mapping) else list(aurocs)


def _aurocs(values: ArrayLike, name: str) -> FloatArray:
    array = numeric_array(values, name=name, ndim=(1,)).astype(np.float64)
    outside = array[(array < 0) | (array > 1)]
    refuse(
        [f"{name} holds {outside.tolist()}, expected AUROCs in [0, 1], or NaN where not estimable"] * bool(len(outside))
    )
    return array


def _drops(before: FloatArray, after: FloatArray, form: AxisForm, skill_min_auroc: float | None) -> FloatArray:
    return (before - after) / _skill(before, form, skill_min_auroc)


def _skill(reference: FloatArray, form: AxisForm, minimum: float | None) -> FloatArray:
    """What a difference is divided by: 1 in raw form, AUROC above chance in skill form, NaN below the threshold."""
    if form == "raw":
        return np.ones_like(reference)
    if form != "skill":
        raise ValueError(f"form is {form!r}, expected 'raw' or 'skill'.")
    if minimum is None or not CHANCE_AUROC < minimum <= 1:
        raise ValueError(
            f"skill_min_auroc is {minimum!r}, expected a value in (0.5, 1]; pass protocol.metrics.skill_min_auroc."
        )
    return np.where(reference >= minimum, reference - CHANCE_AUROC, np.nan)
