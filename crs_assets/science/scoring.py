"""From raw axis values to the Clinical Reliability Score, against a frozen panel.

A score reads the encoder's own profile and the panel, nothing else: adding any other encoder moves it by exactly 0.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.protocol import AXES, Anchor, AxisType, ScoreWeights
from crs_assets.science.validation import FloatArray, finite_array, refuse

AnchorLike = Anchor | tuple[float, float]
WeightsLike = ScoreWeights | Mapping[str, float] | Sequence[float]


@dataclass(frozen=True)
class ReliabilityScore:
    """A Clinical Reliability Score with the terms it is made of; all in [0, 1], higher is better.

    Attributes:
        crs: The weighted sum of the three terms.
        dominance: Share of the panel that the profile Pareto-dominates.
        closeness: 1 minus half the Euclidean distance to the ideal profile (1, 1, 1, 1).
        worst_axis: Smallest of the four axis values.
        dominated: Number of panel profiles dominated.
        peers: Number of panel profiles.
    """

    crs: float
    dominance: float
    closeness: float
    worst_axis: float
    dominated: int
    peers: int


def normalize(
    raw: ArrayLike | Mapping[AxisType, ArrayLike], anchors: Mapping[AxisType, AnchorLike], *, decimals: int = 6
) -> FloatArray:
    """Map raw axis values to [0, 1]: linear between the anchors, clipped once, then rounded.

    Args:
        raw: Values in the order of ``protocol.AXES``, shape (4,) or (n, 4); or a mapping from each axis to its value.
        anchors: For each axis the raw values that map to 0 and to 1, as ``Anchor`` or (zero, one).
        decimals: Rounding before a value is stored, compared or combined.

    Returns:
        z, float64 of shape (4,) or (n, 4), in [0, 1], higher is better.

    Raises:
        ValueError: If an axis is missing or unknown, a value is not finite, or two anchors coincide.
    """
    refuse(_axis_problems("anchors", anchors))
    if isinstance(raw, Mapping):
        refuse(_axis_problems("raw", raw))
        raw = np.stack([np.asarray(raw[axis]) for axis in AXES], axis=-1)
    values = _profiles(raw, "raw", ndim=(1, 2))
    zero, one = np.array([_pair(anchors[axis]) for axis in AXES], dtype=np.float64).T
    refuse(
        [
            f"the anchors of {axis} coincide at {low:g}"
            for axis, low, high in zip(AXES, zero, one, strict=True)
            if low == high
        ]
    )
    # Adding 0 turns -0 into 0.
    return np.asarray(np.round(np.clip((values - zero) / (one - zero), 0.0, 1.0), decimals) + 0.0, dtype=np.float64)


def reliability_score(z: ArrayLike, panel_z: ArrayLike, *, weights: WeightsLike) -> ReliabilityScore:
    """Clinical Reliability Score of one profile against the profiles of its peers in the frozen panel.

    CRS = w_D D + w_I I + w_W W, with D the share of peers that z Pareto-dominates (at least as good on all four axes,
    better on one), I = 1 - ||1 - z|| / 2, W = min z.

    Args:
        z: Normalised profile (4,), from ``normalize``.
        panel_z: Normalised profiles of the peers (n, 4): panel entries of other encoders.
        weights: ``ScoreWeights``, a mapping with keys dominance, closeness and worst_axis, or three numbers in that
            order; they sum to 1.

    Raises:
        ValueError: If the panel is empty, a value leaves [0, 1] or is not finite, or the weights do not sum to 1.
    """
    profile = _profiles(z, "z", ndim=(1,))
    if np.size(panel_z) == 0:
        raise ValueError(
            "the panel has no peers for this encoder and data set, and dominance needs at least one; score against a "
            "panel that covers the data set, or run the panel encoders on it and freeze a local panel."
        )
    peers = _profiles(panel_z, "panel_z", ndim=(2,))
    refuse(_unit_problems("z", profile) + _unit_problems("panel_z", peers))
    share = _weights(weights)
    dominated = int(np.sum(np.all(profile >= peers, axis=1) & np.any(profile > peers, axis=1)))
    dominance = dominated / len(peers)
    closeness = 1 - math.dist(profile, np.ones_like(profile)) / 2
    worst_axis = float(profile.min())
    # fsum rounds once, so the score is monotone in each term and never above 1.
    crs = math.fsum((share.dominance * dominance, share.closeness * closeness, share.worst_axis * worst_axis))
    return ReliabilityScore(crs, dominance, closeness, worst_axis, dominated, len(peers))


def _profiles(values: ArrayLike, name: str, *, ndim: tuple[int, ...]) -> FloatArray:
    array = finite_array(values, name=name, ndim=ndim)
    if array.shape[-1] != len(AXES):
        raise ValueError(f"{name} has shape {array.shape}, expected {len(AXES)} values in the order {list(AXES)}.")
    return array


def _pair(anchor: AnchorLike) -> tuple[float, float]:
    if isinstance(anchor, Anchor):
        return anchor.zero, anchor.one
    zero, one = anchor
    return float(zero), float(one)


def _weights(weights: WeightsLike) -> ScoreWeights:
    if isinstance(weights, ScoreWeights):
        return weights
    if isinstance(weights, Mapping):
        return ScoreWeights.model_validate(dict(weights))
    if len(weights) != 3:
        raise ValueError(f"weights has {len(weights)} values, expected 3: dominance, closeness, worst axis.")
    return ScoreWeights(dominance=weights[0], closeness=weights[1], worst_axis=weights[2])


def _axis_problems(name: str, given: Mapping[AxisType, object]) -> list[str]:
    if set(given) == set(AXES):
        return []
    return [f"{name} names {sorted(map(str, given))}, expected exactly {list(AXES)}"]


def _unit_problems(name: str, values: FloatArray) -> list[str]:
    if values.min() >= 0 and values.max() <= 1:
        return []
    return [f"{name} spans {values.min():g}..{values.max():g}, expected [0, 1]; normalize the raw axes first"]
