"""CRS under changed circumstances: other peers, other anchors, other profiles; the formula is always the published."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crs_assets.science.panel import score_against
from crs_assets.science.protocol import AXES, Anchor, AxisType, Protocol
from crs_assets.science.scoring import normalize

Profiles = Mapping[str, Mapping[str, Any]]
"""Encoder -> ``weights`` and ``datasets``: data set -> reading -> profile; the form of a panel's ``encoders``."""


def mean_scores(
    profiles: Profiles, peers: Profiles, reading: Protocol, datasets: Sequence[str], *, existing: bool = False
) -> dict[str, float]:
    """Mean CRS over data sets of each encoder, against peers.

    Args:
        profiles: Encoders to score.
        peers: The panel; an encoder's own entry, and any with its weights, is no peer.
        reading: Whose z and weights are read.
        datasets: Data sets to average over.
        existing: Average over those that an encoder has; otherwise one without all of them has no score.

    Raises:
        PanelError: If an encoder has no peer on a data set.
    """
    panel = {"name": "of the trial", "encoders": peers}
    scores = {}
    for encoder, entry in profiles.items():
        here = [name for name in datasets if _z(entry, name, reading) is not None]
        if here and (existing or len(here) == len(datasets)):
            cells = [
                score_against(
                    panel,
                    reading,
                    encoder=encoder,
                    weights=entry["weights"],
                    dataset=name,
                    z=entry["datasets"][name][reading.id]["z"],
                ).crs
                for name in here
            ]
            scores[encoder] = float(np.mean(cells))
    return scores


def with_anchors(profiles: Profiles, reading: Protocol, anchors: Mapping[AxisType, Anchor]) -> dict[str, Any]:
    """Profiles with z normalised anew from their raw axes; a cell without z keeps none."""
    decimals = reading.axes.score_decimals
    return {
        encoder: {
            "weights": entry["weights"],
            "datasets": {
                name: {reading.id: {**cell[reading.id], "z": _normalised(cell[reading.id], anchors, decimals)}}
                for name, cell in entry["datasets"].items()
            },
        }
        for encoder, entry in profiles.items()
    }


def chosen(profiles: Profiles, encoders: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """The profiles of some encoders, sorted by id."""
    return {name: profiles[name] for name in sorted(encoders)}


def _z(entry: Mapping[str, Any], dataset: str, reading: Protocol) -> Mapping[str, float] | None:
    cell = entry["datasets"].get(dataset)
    return None if cell is None else cell[reading.id]["z"]


def _normalised(
    cell: Mapping[str, Any], anchors: Mapping[AxisType, Anchor], decimals: int
) -> dict[AxisType, float] | None:
    if cell["z"] is None:
        return None
    z = normalize([cell["raw"][axis] for axis in AXES], anchors, decimals=decimals)
    return dict(zip(AXES, z.tolist(), strict=True))
