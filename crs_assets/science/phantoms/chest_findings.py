"""The findings of a chest film, each drawn where and how a radiologist would look for it."""

from collections.abc import Callable, Mapping

import numpy as np

from crs_assets.science.phantoms import canvas
from crs_assets.science.phantoms.canvas import ByteImage
from crs_assets.science.phantoms.chest import SIDES, Film, Site, develop, draw_bones, draw_thorax

# The labels of CheXpert, in the order of its tables.
LABELS = (
    "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation",
    "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices",
)  # fmt: skip

# A veil of no other kind: what makes Lung Opacity true on its own.
VEIL = "Veil"

Draw = Callable[[Film, np.random.Generator, float], None]


def render(
    site: Site, seed: int, patient: str, film_key: str, extents: Mapping[str, float], size: int, *, ap: bool
) -> ByteImage:
    """Draw a frontal film.

    Args:
        site: Where it was taken.
        seed: Seed of the phantom.
        patient: Key of the patient: anatomy.
        film_key: Key of the film: everything else.
        extents: Extent in 0 to 1 of each finding present; absent ones are not named.
        size: Short side in pixels.
        ap: Anteroposterior rather than posteroanterior.

    Returns:
        ``(height, width)`` uint8 with short side ``size``.
    """
    rng = canvas.keyed_generator(site.key, seed, film_key)
    film = draw_thorax(canvas.keyed_generator(site.key, seed, patient), rng, site, size, extents, ap=ap)
    _draw_all(film, rng, IN_LUNG, extents)
    draw_bones(film, rng)
    _draw_all(film, rng, OVER_BONE, extents)
    return develop(film, rng, site)


def _draw_all(film: Film, rng: np.random.Generator, findings: Mapping[str, Draw], extents: Mapping[str, float]) -> None:
    for name, draw in findings.items():
        if name in extents:
            draw(film, rng, extents[name])


def _side(rng: np.random.Generator) -> int:
    return int(rng.choice(SIDES))


def _veil(film: Film, rng: np.random.Generator, extent: float) -> None:
    side = _side(rng)
    where = film.spot((0.42 * side, rng.uniform(-0.45, 0.3)), 0.22 + 0.15 * extent, 0.10)
    canvas.paint(film.image, where * film.lungs[side], 0.55, 0.3 + 0.35 * extent)


def _lesion(film: Film, rng: np.random.Generator, extent: float) -> None:
    for _ in range(1 + int(rng.integers(0, 3))):
        side = _side(rng)
        radius = 0.05 + 0.055 * extent * rng.uniform(0.6, 1.2)
        nodule = film.spot((side * rng.uniform(0.25, 0.55), rng.uniform(-0.5, 0.35)), radius, 0.008)
        canvas.paint(film.image, nodule, 0.62, 0.45 + 0.4 * extent)


def _edema(film: Film, rng: np.random.Generator, extent: float) -> None:
    for side in SIDES:
        wing = film.spot((0.24 * side, 0.02), 0.24, 0.12) * (np.float32(0.5) + film.clouds(rng, 0.08, 0.0))
        canvas.paint(film.image, np.clip(wing, 0, 1) * film.lungs[side], 0.6, 0.25 + 0.4 * extent)
        septa = [
            np.array([(u * side, v), ((u - 0.08) * side, v + rng.normal(0, 0.01))])
            for u, v in zip(rng.uniform(0.58, 0.66, 7), rng.uniform(0.1, 0.5, 7), strict=True)
        ]
        canvas.paint(film.image, film.lines(septa, 0.012) * film.lungs[side], 0.7, 0.5 * extent)


def _consolidation(film: Film, rng: np.random.Generator, extent: float) -> None:
    side = _side(rng)
    top, height = rng.uniform(-0.55, 0.1), 0.25 + 0.25 * extent
    lobe = film.patch(
        [(0.14 * side, top), (0.7 * side, top + 0.05), (0.72 * side, top + height), (0.14 * side, top + height)], 0.02
    )
    lobe *= np.float32(0.7) + np.float32(0.3) * film.clouds(rng, 0.12, -0.3)
    canvas.paint(film.image, lobe * film.lungs[side], 0.66, 0.5 + 0.4 * extent)
    trunk = canvas.wander(rng, (0.15 * side, top + height / 2), 0.0 if side > 0 else np.pi, 0.4, bend=0.08)
    airways = [trunk, *canvas.branches(rng, [trunk], 4, 0.18, bend=0.08)]
    canvas.paint(film.image, film.lines(airways, 0.016) * lobe * film.lungs[side], 0.25, 0.6)


def _pneumonia(film: Film, rng: np.random.Generator, extent: float) -> None:
    side = _side(rng)
    where = film.spot((0.4 * side, rng.uniform(-0.3, 0.4)), 0.26, 0.06) * film.clouds(rng, 0.075, 0.1)
    canvas.paint(film.image, where * film.lungs[side], 0.66, 0.5 + 0.45 * extent)


def _atelectasis(film: Film, rng: np.random.Generator, extent: float) -> None:
    side = _side(rng)
    for _ in range(2 + int(rng.integers(0, 3))):
        v, slope = rng.uniform(0.12, 0.45), rng.normal(0, 0.05)
        inner, outer = rng.uniform(0.18, 0.3), rng.uniform(0.45, 0.64)
        band = film.line([(inner * side, v), (outer * side, v + slope)], 0.055, 0.008)
        canvas.paint(film.image, band * film.lungs[side], 0.72, 0.6 + 0.4 * extent)


def _pneumothorax(film: Film, rng: np.random.Generator, extent: float) -> None:
    """A lung that has shrunk away from the chest wall: no vessels outside a fine line."""
    side = _side(rng)
    outline = film.outlines[side]
    hilum = np.array([0.13 * side, 0.15])
    shrunken = hilum + (outline - hilum) * (0.92 - 0.28 * extent)
    lung = film.patch(shrunken, 0.006)
    gap = np.clip(film.lungs[side] - lung, 0, 1) * (film.lungs[side] > 0.5)
    canvas.paint(film.image, gap, 0.08, 0.9)
    edge = np.clip(lung - film.patch(hilum + (shrunken - hilum) * 0.965, 0.006), 0, 1)
    canvas.paint(film.image, edge * film.lungs[side], 0.6, 0.6)


def _effusion(film: Film, rng: np.random.Generator, extent: float) -> None:
    """Fluid that fills the base and climbs the lateral wall: the meniscus."""
    for side in SIDES if rng.random() < 0.3 else (_side(rng),):
        level = 0.45 - 0.5 * extent * rng.uniform(0.6, 1.0)
        t = np.linspace(0, 1, 9)
        surface = np.stack([side * (0.08 + 0.7 * t), level + 0.14 - 0.30 * t**2.5], axis=1)
        fluid = film.patch(np.vstack([surface, [(0.85 * side, 0.8), (0.08 * side, 0.8)]]), 0.02)
        canvas.paint(film.image, fluid * film.lungs[side], 0.68, 0.92)


def _pleural_other(film: Film, rng: np.random.Generator, extent: float) -> None:
    side = _side(rng)
    wall = film.outlines[side][2:5] * (0.97, 1)
    canvas.paint(film.image, film.line(wall, 0.05 + 0.05 * extent, 0.008) * film.lungs[side], 0.7, 0.8)
    for _ in range(4):
        u, v = 0.45 * side + rng.normal(0, 0.1), rng.uniform(-0.1, 0.4)
        canvas.paint(film.image, film.line([(u, v), (u + 0.08, v + rng.normal(0, 0.03))], 0.025, 0.004), 0.85, 0.6)


def _fracture(film: Film, rng: np.random.Generator, extent: float) -> None:
    """Ribs with a gap, a step and a callus."""
    for number in rng.choice(len(film.ribs), 2 + round(2 * extent), replace=False):
        rib = film.ribs[number]
        at = int(rng.integers(8, 15))
        canvas.paint(film.image, film.line(rib[at : at + 2], 0.07, 0.004), 0.15, 0.7)
        canvas.paint(film.image, film.line(np.add(rib[at + 2 : at + 6], (0, 0.045)), 0.05, 0.005), 0.85, 0.55)
        canvas.paint(film.image, film.spot(rib[at + 2], 0.035, 0.006), 0.9, 0.35 + 0.5 * extent)


def _devices(film: Film, rng: np.random.Generator, extent: float) -> None:
    chosen = rng.random(4) < (0.55, 0.55, 0.3, 0.5)
    chosen[rng.integers(4)] = True
    if chosen[0]:  # endotracheal and gastric tube
        canvas.paint(film.image, film.line([(0.0, -1.1), (0.01, -0.35)], 0.02, 0.003), 0.95, 0.75)
        canvas.paint(film.image, film.line([(0.03, -1.1), (0.02, 0.4), (0.2, 0.75)], 0.014, 0.003), 0.95, 0.65)
    if chosen[1]:  # central venous line
        side = _side(rng)
        line = [(0.6 * side, -0.78), (0.3 * side, -0.68), (-0.06, -0.5), (-0.1, 0.0)]
        canvas.paint(film.image, film.line(line, 0.014, 0.003), 0.95, 0.75)
    if chosen[2]:  # pacemaker with a lead
        side = _side(rng)
        box = film.patch(np.array([(0.38, -0.62), (0.58, -0.62), (0.58, -0.42), (0.38, -0.42)]) * (side, 1), 0.005)
        canvas.paint(film.image, box, 0.97, 0.85)
        lead = [(0.4 * side, -0.5), (-0.05, -0.55), (-0.1, 0.1), (0.15, 0.4)]
        canvas.paint(film.image, film.line(lead, 0.016, 0.003), 0.95, 0.75)
    if chosen[3]:  # electrodes and their wires
        wires = [
            canvas.wander(rng, (rng.uniform(-0.6, 0.6), rng.uniform(-0.6, 0.4)), rng.uniform(0.5, 2.5), 0.9, bend=0.1)
            for _ in range(3)
        ]
        canvas.paint(film.image, film.lines(wires, 0.012), 0.9, 0.3 + 0.3 * extent)
        for wire in wires:
            canvas.paint(film.image, film.spot(wire[0], 0.03, 0.005), 0.9, 0.7)


# In drawing order.
IN_LUNG: dict[str, Draw] = {
    VEIL: _veil,
    "Edema": _edema,
    "Pneumonia": _pneumonia,
    "Consolidation": _consolidation,
    "Atelectasis": _atelectasis,
    "Lung Lesion": _lesion,
    "Pneumothorax": _pneumothorax,
    "Pleural Effusion": _effusion,
    "Pleural Other": _pleural_other,
}
OVER_BONE: dict[str, Draw] = {"Fracture": _fracture, "Support Devices": _devices}
