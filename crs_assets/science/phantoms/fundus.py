"""Fundus photographs graded by what they show: lesion kinds and counts after the international scale of retinopathy.

Grades follow Wilkinson et al., Ophthalmology 2003: 0 nothing, 1 microaneurysms only, 2 more than that, 3 haemorrhages
in all quadrants or venous beading, 4 new vessels or preretinal haemorrhage. Counts of neighbouring grades overlap.
"""

from dataclasses import dataclass

import numpy as np

from crs_assets.science.phantoms import canvas
from crs_assets.science.phantoms.canvas import ByteImage, FloatImage, Shape

GRADES = ("No DR", "Mild", "Moderate", "Severe", "Proliferative DR")

# Mean count of each kind of lesion in each grade, in the order of GRADES.
COUNTS: dict[str, tuple[float, ...]] = {
    "microaneurysms": (0.3, 7.0, 14.0, 22.0, 18.0),
    "haemorrhages":   (0.0, 0.2, 4.0, 14.0, 9.0),
    "exudates":       (0.1, 0.2, 3.0, 4.0, 4.0),
    "cotton_wool":    (0.0, 0.1, 0.8, 2.5, 2.0),
    "beading":        (0.0, 0.0, 0.1, 1.0, 0.7),
    "new_vessels":    (0.0, 0.0, 0.0, 0.1, 1.6),
    "preretinal":     (0.0, 0.0, 0.0, 0.0, 0.6),
}  # fmt: skip

BLOOD, FRESH, YELLOW, PALE = (0.36, 0.09, 0.06), (0.50, 0.12, 0.08), (0.95, 0.85, 0.50), (0.90, 0.80, 0.62)
DISC, VESSEL, MACULA = (0.97, 0.83, 0.58), (0.45, 0.12, 0.09), (0.42, 0.17, 0.09)
FUNDUS_TONES = ((0.78, 0.38, 0.20), (0.70, 0.32, 0.17), (0.85, 0.46, 0.28), (0.60, 0.27, 0.16))


@dataclass(frozen=True)
class Eye:
    """One eye of one patient."""

    patient: str
    side: str
    grade: int


@dataclass(frozen=True)
class _Geometry:
    """Where disc and macula are, in pixels."""

    shape: Shape
    disc: tuple[float, float]
    macula: tuple[float, float]
    nasal: int


def render(eye: Eye, seed: int, size: int, clarity: float) -> ByteImage:
    """Draw one eye.

    Args:
        eye: Patient, side and grade.
        seed: Seed of the phantom.
        size: Short side in pixels; the image is 9:8.
        clarity: How strongly lesions show, about 1; smaller is harder.

    Returns:
        ``(size, 9 size / 8, 3)`` uint8, RGB, black outside the field of view.
    """
    rng = canvas.keyed_generator("fundus", seed, eye.patient, eye.side)
    geometry = _geometry(rng, (size, round(size * 9 / 8)), eye.side)
    image = _retina(canvas.keyed_generator("fundus", seed, eye.patient), rng, geometry)
    counts = _counts(rng, eye.grade)
    _draw_vessels(image, geometry, rng, beading=counts["beading"])
    _draw_lesions(image, geometry, counts, rng, clarity)
    return _photograph(image, geometry, rng)


def _geometry(rng: np.random.Generator, shape: Shape, side: str) -> _Geometry:
    height, width = shape
    nasal = 1 if side == "right" else -1
    x, y = width / 2 + rng.normal(0, 0.03 * width), height / 2 + rng.normal(0, 0.03 * height)
    disc = (x + nasal * 0.24 * height, y - 0.02 * height)
    macula = (x - nasal * 0.14 * height, y + 0.02 * height)
    return _Geometry(shape, disc, macula, nasal)


def _retina(patient: np.random.Generator, rng: np.random.Generator, geometry: _Geometry) -> FloatImage:
    shape, size = geometry.shape, geometry.shape[0]
    tone = np.array(FUNDUS_TONES[patient.integers(len(FUNDUS_TONES))], dtype=np.float32)
    choroid = 0.05 * canvas.smooth_noise(rng, shape, 0.3 * size) + 0.025 * canvas.smooth_noise(rng, shape, 0.06 * size)
    image = np.asarray(tone.reshape(3, 1, 1) * (1 + choroid), dtype=np.float32)
    macula = canvas.dots(shape, np.array([geometry.macula]), np.array([0.085 * size]))
    canvas.paint(image, canvas.blur(macula, 0.045 * size), MACULA, rng.uniform(0.4, 0.8))
    disc = canvas.soft_region(shape, geometry.disc, canvas.wavy_outline(rng, 0.075 * size, 0.05, 0.95), 0.01 * size)
    canvas.paint(image, disc, DISC, rng.uniform(0.6, 0.95))
    cup = canvas.dots(shape, np.array([geometry.disc]), np.array([size * rng.uniform(0.02, 0.045)]))
    canvas.paint(image, canvas.blur(cup, 0.01 * size), (1.0, 0.95, 0.8), 0.6)
    return image


def _counts(rng: np.random.Generator, grade: int) -> dict[str, int]:
    """Lesion counts, overdispersed: the same grade holds few and many."""
    burden = rng.gamma(3.0, 1 / 3.0)
    return {name: int(rng.poisson(mean[grade] * burden)) for name, mean in COUNTS.items()}


def _draw_vessels(image: FloatImage, geometry: _Geometry, rng: np.random.Generator, *, beading: int) -> None:
    shape, size = geometry.shape, geometry.shape[0]
    arcades, nasal = [], []
    for vertical in (-1, 1):
        for calibre, spread in ((0.018, 1.15), (0.012, 1.35)):
            heading, drift = rng.normal(np.pi / 2 * vertical, 0.15), 0.05 * spread * vertical * geometry.nasal
            arcades.append(canvas.wander(rng, geometry.disc, heading, 0.75 * size, bend=0.06, drift=drift))
            canvas.paint(image, _calibre(shape, arcades[-1], calibre * size, rng, beading), VESSEL, 0.75)
        outward = 0.8 * vertical if geometry.nasal > 0 else np.pi - 0.8 * vertical
        nasal.append(canvas.wander(rng, geometry.disc, outward, 0.35 * size, bend=0.08))
    fine = [*nasal, *canvas.branches(rng, nasal, 2, 0.15 * size, bend=0.1)]
    fine += canvas.branches(rng, arcades, 6, 0.28 * size, bend=0.1)
    canvas.paint(image, canvas.strokes(shape, fine, 0.007 * size), VESSEL, 0.65)


def _calibre(shape: Shape, trunk: np.ndarray, width: float, rng: np.random.Generator, beading: int) -> FloatImage:
    """A trunk of even calibre, or with a string of swellings where veins are beaded."""
    vessel = canvas.strokes(shape, [trunk], width)
    if not beading:
        return vessel
    beads = trunk[4::2] + rng.normal(0, 0.2, trunk[4::2].shape)
    return np.maximum(vessel, canvas.dots(shape, beads, np.full(len(beads), 1.0 * width)))


def _draw_lesions(
    image: FloatImage, geometry: _Geometry, counts: dict[str, int], rng: np.random.Generator, clarity: float
) -> None:
    shape, size = geometry.shape, geometry.shape[0]
    strength = clarity * rng.uniform(0.5, 1.0)
    field = canvas.blur(_field_of_view(shape, 0.40 * size), 0.03 * size)

    def draw(count: int, radii: tuple[float, float], softness: float, colour: canvas.Colour, amount: float) -> None:
        if count:
            where, radius = canvas.scatter(rng, field, count), size * rng.uniform(*radii, count)
            spots = canvas.dots(shape, where, radius)
            canvas.paint(image, canvas.blur(spots, softness * size) if softness else spots, colour, amount)

    draw(counts["microaneurysms"], (0.005, 0.010), 0, FRESH, 0.9 * strength)
    draw(counts["haemorrhages"], (0.012, 0.028), 0.004, BLOOD, 0.9 * strength)
    canvas.paint(image, _exudates(geometry, counts["exudates"], rng), YELLOW, strength)
    draw(counts["cotton_wool"], (0.025, 0.045), 0.014, PALE, 0.8 * strength)
    canvas.paint(image, _new_vessels(geometry, counts["new_vessels"], rng), FRESH, strength)
    draw(min(1, counts["preretinal"]), (0.07, 0.13), 0.008, BLOOD, 0.9 * strength)
    # Drusen belong to another disease: they look like exudates and say nothing about the grade.
    if rng.random() < 0.3:
        draw(int(rng.integers(4, 16)), (0.006, 0.014), 0.006, PALE, 0.6)


def _exudates(geometry: _Geometry, clusters: int, rng: np.random.Generator) -> FloatImage:
    """Clusters of small sharp deposits around the macula."""
    shape, size = geometry.shape, geometry.shape[0]
    centres = np.array(geometry.macula) + rng.normal(0, 0.14 * size, (clusters, 2))
    each = rng.integers(4, 12, clusters)
    where = np.repeat(centres, each, axis=0) + rng.normal(0, 0.025 * size, (int(each.sum()), 2))
    return canvas.dots(shape, where, size * rng.uniform(0.005, 0.011, len(where)))


def _new_vessels(geometry: _Geometry, tufts: int, rng: np.random.Generator) -> FloatImage:
    """Tufts of fine curling vessels on the disc or elsewhere."""
    shape, size = geometry.shape, geometry.shape[0]
    lines = []
    for _ in range(tufts):
        at = np.array(geometry.disc) if rng.random() < 0.5 else np.array(geometry.macula) + rng.normal(0, 0.2 * size, 2)
        count = int(rng.integers(8, 14))
        headings, drifts = rng.uniform(0, 2 * np.pi, count), rng.choice([-0.22, 0.22], count)
        lengths = size * rng.uniform(0.08, 0.2, count)
        lines += canvas.wander_all(rng, np.tile(at, (count, 1)), headings, lengths, bend=0.25, drift=drifts)
    return canvas.strokes(shape, lines, 0.006 * size) if lines else np.zeros(shape, dtype=np.float32)


def _field_of_view(shape: Shape, radius: float) -> FloatImage:
    return canvas.dots(shape, np.array([[shape[1] / 2, shape[0] / 2]]), np.array([radius]))


def _photograph(image: FloatImage, geometry: _Geometry, rng: np.random.Generator) -> ByteImage:
    """Light, haze, focus, dust and the camera's aperture."""
    shape, size = geometry.shape, geometry.shape[0]
    image = canvas.illuminate(rng, image, gradient=0.12, cast=0.08, vignette=rng.uniform(0.1, 0.4))
    if rng.random() < 0.25:
        haze = canvas.soft_step(np.float32(0.4) * canvas.smooth_noise(rng, shape, 0.3 * size))
        canvas.paint(image, haze, PALE, rng.uniform(0.1, 0.35))
    image = canvas.blur(canvas.interleave(image), 0.003 * size * rng.uniform(0.8, 2.4))
    image *= np.float32(rng.uniform(0.7, 1.15))
    image += np.float32(0.01) * rng.standard_normal(image.shape, dtype=np.float32)
    image *= _field_of_view(shape, size * rng.uniform(0.47, 0.53))[..., None]
    return canvas.to_bytes(image)
