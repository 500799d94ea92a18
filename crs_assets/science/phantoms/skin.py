"""Skin lesions after dermoscopy's vocabulary: classes differ in structure, and share their colours.

A class is a profile of dermoscopic structures (Kittler et al., J Am Acad Dermatol 2016, the third consensus on
terminology, names them). Every lesion shows its class's structures at its own strength and a few of another class's
faintly, so no structure decides alone.
"""

from dataclasses import dataclass

import numpy as np

from crs_assets.science.phantoms import canvas
from crs_assets.science.phantoms.canvas import ByteImage, FloatImage, Shape

CLASSES = ("MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC")

# Mean strength of each structure in each class, in the order of CLASSES.
PROFILES: dict[str, tuple[float, ...]] = {
    #                MEL  NV   BCC  AK   BKL  DF   VASC SCC
    "irregularity": (1.0, 0.1, 0.4, 0.6, 0.2, 0.1, 0.2, 0.6),
    "blurred_edge": (0.3, 0.3, 0.3, 1.0, 0.0, 0.6, 0.1, 0.5),
    "blotches":     (1.0, 0.1, 0.2, 0.2, 0.3, 0.0, 0.0, 0.3),
    "network":      (0.5, 1.0, 0.0, 0.0, 0.1, 0.5, 0.0, 0.0),
    "globules":     (0.6, 0.5, 0.1, 0.0, 0.1, 0.0, 0.0, 0.0),
    "streaks":      (0.8, 0.0, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0),
    "arborising":   (0.1, 0.0, 1.0, 0.1, 0.0, 0.0, 0.0, 0.2),
    "nests":        (0.1, 0.0, 0.8, 0.0, 0.0, 0.0, 0.0, 0.0),
    "coils":        (0.1, 0.0, 0.0, 0.3, 0.0, 0.1, 0.0, 1.0),
    "scale":        (0.0, 0.0, 0.1, 1.0, 0.2, 0.0, 0.0, 0.5),
    "follicles":    (0.0, 0.0, 0.0, 0.8, 0.1, 0.0, 0.0, 0.1),
    "cysts":        (0.0, 0.1, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0),
    "ridges":       (0.0, 0.0, 0.0, 0.0, 0.9, 0.0, 0.0, 0.1),
    "lacunae":      (0.0, 0.0, 0.1, 0.0, 0.0, 0.0, 1.0, 0.0),
    "centre":       (0.1, 0.0, 0.1, 0.0, 0.0, 1.0, 0.0, 0.8),
}  # fmt: skip

SKIN_TONES = ((0.93, 0.76, 0.68), (0.87, 0.68, 0.58), (0.80, 0.60, 0.50), (0.68, 0.48, 0.38))
PIGMENTS = ((0.48, 0.30, 0.22), (0.36, 0.22, 0.18), (0.66, 0.40, 0.34), (0.58, 0.42, 0.36))
DARK, BLUE, RED, WHITE = (0.20, 0.13, 0.12), (0.42, 0.44, 0.52), (0.62, 0.20, 0.20), (0.93, 0.87, 0.82)


@dataclass(frozen=True)
class Lesion:
    """One lesion: what all its photographs share."""

    key: str
    label: int


def render(lesion: Lesion, photograph: int, seed: int, size: int, clarity: float) -> ByteImage:
    """Draw one photograph of a lesion.

    Args:
        lesion: The lesion.
        photograph: Number of the photograph; pose, light, hair and focus differ between photographs.
        seed: Seed of the phantom.
        size: Short side in pixels; the image is 4:3.
        clarity: How strongly structures show, about 1; smaller is harder.

    Returns:
        ``(size, 4 size / 3, 3)`` uint8, RGB.
    """
    shape = (size, round(size * 4 / 3))
    rng = canvas.keyed_generator("skin", seed, lesion.key)
    image = _skin(rng, shape)
    _draw_lesion(image, _traits(rng, lesion.label, clarity), rng)
    return _photograph(image, canvas.keyed_generator("skin", seed, lesion.key, photograph))


def _traits(rng: np.random.Generator, label: int, clarity: float) -> dict[str, float]:
    """Strength of each structure: the class's, scattered, with a faint share of a random other class's."""
    other = int(rng.integers(len(CLASSES)))
    own, foreign = clarity * rng.beta(2.5, 2.0), clarity * rng.uniform(0, 0.6)
    scatter = rng.uniform(0.4, 1.4, len(PROFILES))
    noise = rng.uniform(0, 0.25, len(PROFILES)) * (rng.random(len(PROFILES)) < 0.35)
    return {
        name: float((own * profile[label] + foreign * profile[other]) * scatter[i] + noise[i])
        for i, (name, profile) in enumerate(PROFILES.items())
    }


def _skin(rng: np.random.Generator, shape: Shape) -> FloatImage:
    tone = np.array(SKIN_TONES[rng.integers(len(SKIN_TONES))], dtype=np.float32) * np.float32(rng.uniform(0.9, 1.05))
    size = shape[0]
    texture = 0.03 * canvas.smooth_noise(rng, shape, 0.25 * size) + 0.015 * canvas.smooth_noise(rng, shape, 0.02 * size)
    return np.asarray(tone.reshape(3, 1, 1) * (1 + texture), dtype=np.float32)


def _shape(image: FloatImage) -> Shape:
    return (image.shape[1], image.shape[2])


def _draw_lesion(image: FloatImage, traits: dict[str, float], rng: np.random.Generator) -> None:
    shape = _shape(image)
    size = shape[0]
    centre = np.array([shape[1] / 2, shape[0] / 2]) + rng.normal(0, 0.04 * size, 2)
    radius = size * rng.uniform(0.22, 0.38)
    outline = canvas.wavy_outline(rng, radius, 0.08 + 0.55 * traits["irregularity"], rng.uniform(1.0, 1.25))
    softness = size * (0.008 + 0.07 * traits["blurred_edge"])
    region = canvas.soft_region(shape, centre, outline, softness)
    pigment = np.array(PIGMENTS[rng.integers(len(PIGMENTS))]) * rng.uniform(0.85, 1.2)
    canvas.paint(image, region, pigment, rng.uniform(0.45, 0.85))
    _pigment_structures(image, region, traits, rng)
    _surface_structures(image, region, traits, rng)
    _vessels(image, region, traits, rng)
    _border_structures(image, region, centre, outline, traits, rng)


def _pigment_structures(
    image: FloatImage, region: FloatImage, traits: dict[str, float], rng: np.random.Generator
) -> None:
    shape = _shape(image)
    size = shape[0]
    blotch = canvas.soft_step(canvas.smooth_noise(rng, shape, 0.16 * size) - np.float32(0.4))
    canvas.paint(image, region * blotch, DARK if rng.random() < 0.6 else BLUE, 0.75 * min(1.0, traits["blotches"]))
    canvas.paint(image, region * _honeycomb(rng, shape), DARK, 0.75 * min(1.0, traits["network"]))
    count = round(28 * traits["globules"])
    globules = canvas.dots(shape, canvas.scatter(rng, region, count), size * rng.uniform(0.008, 0.018, count))
    canvas.paint(image, globules * region, DARK, 0.8)
    count = round(7 * traits["nests"])
    nests = canvas.dots(shape, canvas.scatter(rng, region, count), size * rng.uniform(0.025, 0.055, count))
    canvas.paint(image, canvas.blur(nests, 0.008 * size) * region, BLUE, 0.75)
    count = round(9 * traits["lacunae"])
    lacunae = canvas.dots(shape, canvas.scatter(rng, region, count), size * rng.uniform(0.035, 0.075, count))
    canvas.paint(image, lacunae, RED if rng.random() < 0.6 else DARK, 0.65)


def _honeycomb(rng: np.random.Generator, shape: Shape) -> FloatImage:
    """The pigment network: cell walls of a warped hexagonal lattice."""
    size = shape[0]
    y, x = np.mgrid[: shape[0], : shape[1]].astype(np.float32)
    x += np.float32(0.012 * size) * canvas.smooth_noise(rng, shape, 0.1 * size)
    y += np.float32(0.012 * size) * canvas.smooth_noise(rng, shape, 0.1 * size)
    wave, turn = 2 * np.pi / (size * rng.uniform(0.04, 0.055)), rng.uniform(0, np.pi)
    angles = turn + np.arange(3) * (2 * np.pi / 3)
    lattice = sum(np.cos(np.float32(wave) * (x * np.float32(np.cos(a)) + y * np.float32(np.sin(a)))) for a in angles)
    return canvas.soft_step(np.asarray(-lattice - np.float32(0.4), dtype=np.float32))


def _surface_structures(
    image: FloatImage, region: FloatImage, traits: dict[str, float], rng: np.random.Generator
) -> None:
    shape = _shape(image)
    size = shape[0]
    flakes = canvas.soft_step(3 * (canvas.smooth_noise(rng, shape, 0.035 * size) - np.float32(0.9)))
    canvas.paint(image, region * flakes, WHITE, 0.8 * min(1.0, traits["scale"]))
    count = round(20 * traits["follicles"])
    where = canvas.scatter(rng, region, count)
    rings = canvas.dots(shape, where, np.full(count, 0.026 * size)) - canvas.dots(
        shape, where, np.full(count, 0.014 * size)
    )
    canvas.paint(image, np.clip(rings, 0, 1), WHITE, 0.55)
    count = round(16 * traits["cysts"])
    cysts = canvas.dots(shape, canvas.scatter(rng, region, count), size * rng.uniform(0.008, 0.02, count))
    canvas.paint(image, canvas.blur(cysts, 0.004 * size), WHITE, 0.85)
    plugs = canvas.dots(shape, canvas.scatter(rng, region, count // 2), np.full(count // 2, 0.016 * size))
    canvas.paint(image, plugs, DARK, 0.7)
    y, x = np.mgrid[: shape[0], : shape[1]].astype(np.float32)
    turn, warp = rng.uniform(0, np.pi), np.float32(0.03 * size) * canvas.smooth_noise(rng, shape, 0.14 * size)
    along = x * np.float32(np.cos(turn)) + y * np.float32(np.sin(turn)) + warp
    stripes = canvas.soft_step(np.cos(along * np.float32(2 * np.pi / (0.07 * size))) - np.float32(0.2))
    canvas.paint(image, region * stripes, DARK, 0.5 * min(1.0, traits["ridges"]))


def _vessels(image: FloatImage, region: FloatImage, traits: dict[str, float], rng: np.random.Generator) -> None:
    shape = _shape(image)
    size = shape[0]
    starts = canvas.scatter(rng, region, round(5 * traits["arborising"]))
    trunks = canvas.wander_all(rng, starts, _turns(rng, starts), np.full(len(starts), 0.35 * size), bend=0.18)
    if trunks:
        lines = [*trunks, *canvas.branches(rng, trunks, 4, 0.14 * size, bend=0.2)]
        canvas.paint(image, canvas.strokes(shape, lines, 0.009 * size), RED, 0.8)
    rim = region * (1 - region) + np.float32(0.02) * region
    starts = canvas.scatter(rng, rim, round(24 * traits["coils"]))
    coils = canvas.wander_all(rng, starts, _turns(rng, starts), np.full(len(starts), 0.09 * size), bend=0.2, drift=0.5)
    if coils:
        canvas.paint(image, canvas.strokes(shape, coils, 0.008 * size), RED, 0.85)


def _turns(rng: np.random.Generator, starts: np.ndarray) -> np.ndarray:
    return rng.uniform(0, 2 * np.pi, len(starts))


def _border_structures(
    image: FloatImage,
    region: FloatImage,
    centre: np.ndarray,
    outline: np.ndarray,
    traits: dict[str, float],
    rng: np.random.Generator,
) -> None:
    shape = _shape(image)
    size = shape[0]
    at = rng.integers(0, len(outline), round(20 * traits["streaks"]))
    angle = at * (2 * np.pi / len(outline))
    starts = centre + 0.85 * outline[at, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    lines = canvas.wander_all(rng, starts, angle, size * rng.uniform(0.07, 0.13, len(at)), bend=0.03)
    if lines:
        canvas.paint(image, canvas.strokes(shape, lines, 0.009 * size), DARK, 0.75)
    core = canvas.soft_region(shape, centre, outline * rng.uniform(0.35, 0.5), 0.03 * size)
    canvas.paint(image, core * region, WHITE, 0.6 * min(1.0, traits["centre"]))


def _photograph(image: FloatImage, rng: np.random.Generator) -> ByteImage:
    """Pose, hair, light, focus and sensor noise of one photograph."""
    import cv2

    height, width = _shape(image)
    pose = cv2.getRotationMatrix2D((width / 2, height / 2), rng.uniform(0, 360), rng.uniform(1.0, 1.4))
    pose[:, 2] += rng.normal(0, 0.05 * height, 2)
    image = cv2.warpAffine(
        canvas.interleave(image), pose, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
    )
    image = np.ascontiguousarray(image.transpose(2, 0, 1))
    if rng.random() < 0.4:
        starts = rng.uniform(0, 1, (int(rng.integers(3, 14)), 2)) * (width, height)
        hair = canvas.wander_all(rng, starts, _turns(rng, starts), np.full(len(starts), 0.8 * height), bend=0.05)
        canvas.paint(image, canvas.strokes((height, width), hair, 0.007 * height), DARK, 0.75)
    image = canvas.illuminate(rng, image, gradient=0.08, cast=0.05, vignette=rng.uniform(0, 0.25))
    image = canvas.blur(canvas.interleave(image), 0.003 * height * rng.uniform(0.5, 2.0))
    image *= np.float32(rng.uniform(0.8, 1.1))
    image += np.float32(0.012) * rng.standard_normal(image.shape, dtype=np.float32)
    return canvas.to_bytes(image)
