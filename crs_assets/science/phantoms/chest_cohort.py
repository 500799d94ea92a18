"""Patients, studies and label cells of the two chest phantoms."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from crs_assets.science.phantoms import canvas
from crs_assets.science.phantoms.chest_findings import LABELS, VEIL

# What makes the label Lung Opacity true.
OPACITIES = (VEIL, "Lung Lesion", "Edema", "Consolidation", "Pneumonia", "Atelectasis")
NO_FINDING, DEVICES = "No Finding", "Support Devices"


@dataclass(frozen=True)
class Prevalences:
    """How often a study shows each finding, among studies that show any; and how often one shows none."""

    no_finding: float
    devices: float
    findings: Mapping[str, float]


@dataclass(frozen=True)
class Study:
    """One study: a frontal film or two, sometimes a lateral one.

    Attributes:
        patient: Number of the patient.
        number: Number of the study, from 1 for each patient.
        extents: Extent of each finding present.
        cells: 1, 0, -1 or None for each label, as a labeller of its report would fill them.
        ap: Whether its frontal films are anteroposterior.
        frontal: Frontal films.
        lateral: Whether a lateral film follows.
        age: Years.
        male: Sex.
    """

    patient: int
    number: int
    extents: Mapping[str, float]
    cells: Mapping[str, int | None]
    ap: bool
    frontal: int
    lateral: bool
    age: int
    male: bool
    rng: np.random.Generator = field(repr=False, compare=False)


def studies(key: str, seed: int, prevalences: Prevalences, frontal: int) -> Iterator[Study]:
    """Studies until their frontal films number ``frontal``, patient by patient.

    Args:
        key: Enters the random keys.
        seed: Seed of the phantom.
        prevalences: How often findings occur.
        frontal: Frontal films in all.
    """
    patient, left = 0, frontal
    while left:
        patient += 1
        rng = canvas.keyed_generator(key, seed, "patient", patient)
        age, male = int(np.clip(rng.normal(60, 17), 18, 90)), bool(rng.random() < 0.58)
        extents: dict[str, float] = {}
        for number in range(1, 1 + int(rng.choice([1, 2, 3, 4], p=[0.5, 0.25, 0.15, 0.1]))):
            extents = _follow_up(rng, prevalences, extents, first=number == 1)
            films = min(left, 1 + int(rng.random() < 0.06))
            ap = bool(rng.random() < (0.85 if DEVICES in extents else 0.55))
            cells = _report(rng, extents)
            yield Study(patient, number, extents, cells, ap, films, bool(rng.random() < 0.12), age, male, rng)
            left -= films
            if not left:
                return


def certain(cells: Mapping[str, int | None]) -> dict[str, int]:
    """Cells as a reader of the image would fill them: an uncertain cell counts as found, a blank one as absent."""
    return {name: abs(value or 0) for name, value in cells.items()}


def _follow_up(
    rng: np.random.Generator, prevalences: Prevalences, before: Mapping[str, float], *, first: bool
) -> dict[str, float]:
    """The findings of the next study: some persist, the others are drawn anew."""
    drawn = _findings(rng, prevalences)
    if first or not drawn or not before:
        return drawn
    persists = {name for name in (*prevalences.findings, DEVICES) if rng.random() < 0.5}
    kept = {name: extent for name, extent in before.items() if name in persists}
    return kept | {name: extent for name, extent in drawn.items() if name not in persists}


def _findings(rng: np.random.Generator, prevalences: Prevalences) -> dict[str, float]:
    chances = dict(prevalences.findings)
    if rng.random() < prevalences.no_finding:
        chances = {}
    chances[DEVICES] = prevalences.devices
    return {name: float(rng.beta(*EXTENT)) for name, chance in chances.items() if rng.random() < chance}


def _report(rng: np.random.Generator, extents: Mapping[str, float]) -> dict[str, int | None]:
    """What a labeller reads in the report: mostly the truth, sometimes a hedge, rarely an omission."""
    shown = {name for name in extents if name in LABELS}
    if any(name in extents for name in OPACITIES):
        shown.add("Lung Opacity")
    cells: dict[str, int | None] = {}
    for name in LABELS[1:]:
        options, chances = ((1, -1, None), (0.87, 0.10, 0.03)) if name in shown else ((None, 0, -1), (0.72, 0.25, 0.03))
        cells[name] = options[int(rng.choice(3, p=chances))]
    healthy = not shown - {DEVICES}
    if healthy:
        cells |= {name: None for name in LABELS[1:] if name != DEVICES and cells[name] == -1}
    return {NO_FINDING: 1 if healthy else None, **cells}


# Parameters of the beta distribution of extents: most findings are subtle.
EXTENT = (1.6, 2.0)
