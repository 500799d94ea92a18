"""Reference invariance: does a published score move when other encoders arrive?

Two rules. ``cohort``: anchors are the worst and the best raw value of the current cohort, peers are that cohort.
``frozen panel``: the protocol's anchors, and the panel as it was frozen. Under the second nothing that an arrival
brings is read, so the displacement is 0.0 by construction; it is computed all the same.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from crs_assets.science.analyses.cells import is_higher_better
from crs_assets.science.analyses.rescoring import Profiles, chosen, mean_scores
from crs_assets.science.analysis_protocol import InvarianceProtocol
from crs_assets.science.protocol import AXES, Protocol
from crs_assets.science.seeding import generator
from crs_assets.science.validation import FloatArray

COHORT = "cohort"
FROZEN = "frozen panel"
MIN_PANEL = 3
"""One encoder arrives, and the two that were there are each other's peers."""

TRIAL_SCHEMA: dict[str, Any] = {
    "reading": pl.Utf8,
    "rule": pl.Utf8,
    "draw": pl.Int64,
    "encoder": pl.Utf8,
    **dict.fromkeys(("before", "after", "displacement"), pl.Float64),
}
SUMMARY_SCHEMA: dict[str, Any] = {
    "reading": pl.Utf8,
    "rule": pl.Utf8,
    **dict.fromkeys(("mean_displacement", "max_displacement"), pl.Float64),
    **dict.fromkeys(("scores", "draws", "distinct_draws", "panel", "arriving"), pl.Int64),
}


def arriving(n: int, settings: InvarianceProtocol) -> int:
    """How many of n encoders play the newcomers: one per ``panel_per_new``, at least one (3 of 15 at 5)."""
    return max(1, round(n / settings.panel_per_new))


def draw_newcomers(encoders: Sequence[str], settings: InvarianceProtocol, salt: str) -> list[tuple[str, ...]]:
    """The newcomers of each trial: drawn without replacement, whatever the order of the encoders.

    Args:
        encoders: Members of the panel.
        settings: Number of trials and share of newcomers.
        salt: The protocol's.
    """
    names, size = sorted(encoders), arriving(len(encoders), settings)
    draws = []
    for draw in range(settings.draws):
        picked = generator(salt, "reference_invariance", draw).choice(len(names), size=size, replace=False)
        draws.append(tuple(names[position] for position in sorted(picked)))
    return draws


def invariance_trials(
    members: Profiles, reading: Protocol, *, datasets: Sequence[str], settings: InvarianceProtocol, salt: str
) -> pl.DataFrame:
    """Take newcomers out of a panel, score the rest, put them back, score the rest again.

    Args:
        members: The panel's encoders with their profiles.
        reading: Whose anchors and weights apply.
        datasets: Data sets that can rank encoders; each encoder's score is the mean over those that it has.
        settings: Number of trials and share of newcomers.
        salt: The protocol's.

    Returns:
        One row per trial, rule and encoder that was there before (``TRIAL_SCHEMA``).

    Raises:
        ValueError: If the panel has fewer than ``MIN_PANEL`` encoders.
    """
    if len(members) < MIN_PANEL:
        raise ValueError(f"the panel has {len(members)} encoder(s), a trial needs {MIN_PANEL}.")
    rows = [
        {"reading": reading.id, "draw": draw, **row}
        for draw, newcomers in enumerate(draw_newcomers(list(members), settings, salt))
        for row in _trial(members, newcomers, reading, datasets)
    ]
    return pl.DataFrame(rows, schema=TRIAL_SCHEMA)


def displacement(trials: pl.DataFrame, members: Sequence[str], settings: InvarianceProtocol, salt: str) -> pl.DataFrame:
    """Mean and largest displacement of each rule over trials and encoders.

    Args:
        trials: From ``invariance_trials``, one reading or several.
        members: Members of the panel.
        settings: As for the trials.
        salt: As for the trials.

    Returns:
        One row per reading and rule (``SUMMARY_SCHEMA``); a small panel has fewer distinct trials than draws.
    """
    draws = draw_newcomers(members, settings, salt)
    return (
        trials.group_by("reading", "rule", maintain_order=True)
        .agg(
            mean_displacement=pl.col("displacement").mean(),
            max_displacement=pl.col("displacement").max(),
            scores=pl.len().cast(pl.Int64),
        )
        .with_columns(
            pl.lit(value, dtype=pl.Int64).alias(name)
            for name, value in (
                ("draws", len(draws)),
                ("distinct_draws", len(set(draws))),
                ("panel", len(members)),
                ("arriving", arriving(len(members), settings)),
            )
        )
    )


def _trial(
    members: Profiles, newcomers: Sequence[str], reading: Protocol, datasets: Sequence[str]
) -> Iterator[dict[str, Any]]:
    published = chosen(members, set(members) - set(newcomers))
    usable = [name for name in datasets if _has_peers(published, name)]
    for rule in (COHORT, FROZEN):
        before = _scores(published, published, rule, reading, usable)
        after = _scores(members, published, rule, reading, usable)
        for encoder, score in before.items():
            moved = abs(after[encoder] - score)
            yield {"rule": rule, "encoder": encoder, "before": score, "after": after[encoder], "displacement": moved}


def _scores(
    cohort: Profiles, panel: Profiles, rule: str, reading: Protocol, datasets: Sequence[str]
) -> dict[str, float]:
    """Scores of the current cohort, whoever is in it, against what the rule takes as the reference."""
    if rule == FROZEN:
        return mean_scores(cohort, panel, reading, datasets, existing=True)
    renormalised = _min_max(cohort, reading, datasets)
    return mean_scores(renormalised, renormalised, reading, datasets, existing=True)


def _has_peers(profiles: Profiles, dataset: str) -> bool:
    """Whether everyone on a data set has a peer there: two fingerprints of weights are enough."""
    return len({entry["weights"] for entry in profiles.values() if dataset in entry["datasets"]}) > 1


def _min_max(cohort: Profiles, reading: Protocol, datasets: Sequence[str]) -> dict[str, Any]:
    """Profiles with z linear between the worst and the best raw value of the cohort, on each data set."""
    found: dict[str, Any] = {name: {"weights": entry["weights"], "datasets": {}} for name, entry in cohort.items()}
    for dataset in datasets:
        names = [name for name, entry in cohort.items() if dataset in entry["datasets"]]
        cells = [cohort[name]["datasets"][dataset][reading.id]["raw"] for name in names]
        raw = np.array([[cell[axis] for axis in AXES] for cell in cells], dtype=np.float64)
        for name, z in zip(names, _unit(raw, reading), strict=True):
            cell = {"z": dict(zip(AXES, z.tolist(), strict=True))}
            found[name]["datasets"][dataset] = {reading.id: cell}
    return found


def _unit(raw: FloatArray, reading: Protocol) -> FloatArray:
    signs = [1.0 if is_higher_better(reading.axes.anchors[axis]) else -1.0 for axis in AXES]
    values = raw * signs
    low, high = values.min(axis=0), values.max(axis=0)
    width = high - low
    # Where all are equal nobody falls short of the best.
    z = np.divide(values - low, width, out=np.ones_like(values), where=width > 0)
    return np.asarray(np.round(z, reading.axes.score_decimals), dtype=np.float64)
