"""Chest radiographs: a thorax drawn part by part, and fourteen findings drawn into it.

Chest coordinates: ``u`` to the right of the image and ``v`` down, the midline at 0, lungs within about -0.75 to 0.75.
A finding keeps its place and extent for one study; exposure, positioning and noise belong to the site.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from crs_assets.science.phantoms import canvas
from crs_assets.science.phantoms.canvas import ByteImage, FloatImage, Shape

SIDES = (-1, 1)


@dataclass(frozen=True)
class Site:
    """How one hospital's films look.

    Attributes:
        key: Enters the random keys.
        ratio: Width over height of the film.
        zoom: Mean field of view; smaller shows more around the lungs.
        gamma: Mean exponent of the grey curve.
        equalise: Share of histogram equalisation in the grey curve.
        noise: Standard deviation of the noise at full scale 1.
        tilt: Standard deviation of the rotation in degrees.
        marker: What is written on the film.
    """

    key: str
    ratio: float
    zoom: float
    gamma: float
    equalise: float
    noise: float
    tilt: float
    marker: str


@dataclass
class Film:
    """A film being drawn: image, scale and the parts that findings refer to."""

    image: FloatImage
    origin: tuple[float, float]
    scale: float
    lungs: dict[int, FloatImage] = field(default_factory=dict)
    outlines: dict[int, npt.NDArray[np.floating]] = field(default_factory=dict)
    ribs: list[npt.NDArray[np.floating]] = field(default_factory=list)

    @property
    def shape(self) -> Shape:
        """Height and width."""
        return (self.image.shape[0], self.image.shape[1])

    def at(self, points: npt.ArrayLike) -> npt.NDArray[np.floating]:
        """Pixels of points in chest coordinates."""
        return np.asarray(points, dtype=float) * self.scale + self.origin

    def line(self, points: npt.ArrayLike, width: float, softness: float = 0.01) -> FloatImage:
        """Coverage of a line in chest coordinates."""
        return canvas.blur(canvas.strokes(self.shape, [self.at(points)], width * self.scale), softness * self.scale)

    def lines(self, lines: list[npt.NDArray[np.floating]], width: float) -> FloatImage:
        """Coverage of many lines given in chest coordinates."""
        drawn = canvas.strokes(self.shape, [self.at(line) for line in lines], width * self.scale)
        return canvas.blur(drawn, 0.005 * self.scale)

    def spot(self, centre: canvas.Point, radius: float, softness: float) -> FloatImage:
        """Coverage of a soft disc."""
        disc = canvas.dots(self.shape, self.at(np.reshape(centre, (1, 2))), np.array([radius * self.scale]))
        return canvas.blur(disc, softness * self.scale)

    def patch(self, corners: npt.ArrayLike, softness: float) -> FloatImage:
        """Coverage of a region with rounded corners."""
        return canvas.polygon(self.shape, canvas.round_corners(self.at(corners)), softness * self.scale)

    def clouds(self, rng: np.random.Generator, cell: float, threshold: float) -> FloatImage:
        """A random field of patches, everywhere on the film."""
        noise = canvas.smooth_noise(rng, self.shape, cell * self.scale)
        return canvas.soft_step(np.float32(0.7) * (noise - np.float32(threshold)))


def draw_thorax(
    patient: np.random.Generator,
    rng: np.random.Generator,
    site: Site,
    size: int,
    extents: Mapping[str, float],
    *,
    ap: bool,
) -> Film:
    """Draw the normal anatomy, with heart, mediastinum and diaphragm as the findings have them.

    Args:
        patient: Generator of what stays the same between a patient's films.
        rng: Generator of the film.
        site: Where it was taken.
        size: Short side in pixels.
        extents: Extent in 0 to 1 of each finding present.
        ap: Whether the film is anteroposterior: the heart is magnified, the breath shallower.
    """
    shape = (size, round(size * site.ratio)) if site.ratio >= 1 else (round(size / site.ratio), size)
    scale = 0.5 * size * site.zoom * rng.uniform(0.86, 1.08)
    origin = (shape[1] / 2 + rng.normal(0, 0.07 * size), shape[0] / 2 + rng.normal(0, 0.05 * size))
    film = Film(np.full(shape, 0.06, dtype=np.float32), origin, scale)
    build = patient.uniform(0.92, 1.08)
    _draw_torso(film, build)
    raised = 0.05 * ap + rng.uniform(-0.05, 0.07)
    for side in SIDES:
        lift = raised + 0.10 * extents.get("Atelectasis", 0) * (rng.random() < 0.5)
        _draw_lung(film, side, build, patient.uniform(-0.03, 0.03) - lift)
    _draw_lung_texture(film, rng)
    heart = patient.uniform(0.85, 1.12) + 0.09 * ap + 0.65 * extents.get("Cardiomegaly", 0)
    widening = patient.uniform(0.0, 0.03) + 0.015 * ap + 0.11 * extents.get("Enlarged Cardiomediastinum", 0)
    _draw_mediastinum(film, heart, widening, raised)
    return film


def _draw_torso(film: Film, build: float) -> None:
    outline = [(-0.3, -1.1), (0.3, -1.1), (0.45, -0.92), (1.05, -0.75), (1.2, -0.4), (0.92, 0.1), (0.9, 1.3),
               (-0.9, 1.3), (-0.92, 0.1), (-1.2, -0.4), (-1.05, -0.75), (-0.45, -0.92)]  # fmt: skip
    canvas.paint(film.image, film.patch(np.array(outline) * (build, 1), 0.03), 0.55, 1.0)
    canvas.paint(film.image, film.patch([(-0.8, 0.5), (0.8, 0.5), (0.85, 1.3), (-0.85, 1.3)], 0.06), 0.72, 0.8)


def _draw_lung(film: Film, side: int, build: float, base: float) -> None:
    outline = np.array([(0.24, -0.80), (0.40, -0.76), (0.56, -0.48), (0.66, 0.0), (0.72, 0.60 + base),
                        (0.68, 0.62 + base), (0.45, 0.44 + base), (0.20, 0.50 + base), (0.13, 0.30), (0.13, -0.1),
                        (0.11, -0.55)])  # fmt: skip
    film.outlines[side] = outline * (side * build, 1)
    film.lungs[side] = film.patch(film.outlines[side], 0.02)
    canvas.paint(film.image, film.lungs[side], 0.17, 0.92)


def _draw_lung_texture(film: Film, rng: np.random.Generator) -> None:
    """Pulmonary vessels that leave the hila, and the mottle of the parenchyma."""
    vessels = []
    for side in SIDES:
        hilum = np.stack([np.full(7, 0.15 * side), rng.normal(-0.02, 0.06, 7)], axis=1)
        headings = rng.uniform(-1.2, 1.2, 7) + (np.pi if side < 0 else 0)
        trunks = canvas.wander_all(rng, hilum, headings, rng.uniform(0.3, 0.55, 7), bend=0.08)
        vessels += [*trunks, *canvas.branches(rng, trunks, 2, 0.2, bend=0.1)]
        canvas.paint(film.image, film.spot((0.17 * side, -0.02), 0.08, 0.05), 0.5, 0.5)
    lungs = film.lungs[-1] + film.lungs[1]
    canvas.paint(film.image, film.lines(vessels, 0.018) * lungs, 0.55, 0.45)
    film.image += np.float32(0.012) * lungs * canvas.smooth_noise(rng, film.shape, 0.05 * film.scale)


def _draw_mediastinum(film: Film, heart: float, widening: float, raised: float) -> None:
    upper = 0.10 + widening
    trunk = [(-upper, -0.95), (upper, -0.95), (upper + 0.04, -0.35), (upper, 0.2), (-upper, 0.2)]
    canvas.paint(film.image, film.patch(trunk, 0.02), 0.62, 0.85)
    knob = film.spot((0.11 + 0.7 * widening, -0.38), 0.07, 0.012)
    canvas.paint(film.image, knob, 0.64, 0.8)
    left, right, bottom = 0.40 * heart, 0.19 * heart, 0.52 - raised
    outline = [(-right * 0.7, -0.05), (0.12, -0.15), (left * 0.7, 0.08), (left, 0.33), (left * 0.8, bottom),
               (-right * 0.8, bottom), (-right, 0.25)]  # fmt: skip
    canvas.paint(film.image, film.patch(outline, 0.015), 0.66, 0.9)
    canvas.paint(film.image, film.line([(0, -1.0), (0, 1.2)], 0.13, 0.02), 0.72, 0.5)


def draw_bones(film: Film, rng: np.random.Generator) -> None:
    """Ribs, clavicles and vertebrae, over everything in the lungs."""
    slope = rng.uniform(0.12, 0.22)
    t = np.linspace(0, 1, 20)
    for side in SIDES:
        for number in range(8):
            v = -0.78 + 0.17 * number
            reach = 0.52 + 0.2 * min(1.0, number / 3)
            u = 0.08 + (reach - 0.08) * t
            film.ribs.append(np.stack([side * u, v - 0.10 * np.sin(np.pi * t) + slope * t**2], axis=1))
        clavicle = [(0.07 * side, -0.60), (0.3 * side, -0.70), (0.72 * side, -0.80)]
        canvas.paint(film.image, film.line(clavicle, 0.055, 0.012), 0.80, 0.35)
    canvas.paint(film.image, film.lines(film.ribs, 0.05), 0.78, 0.22)
    vertebrae = [np.array([(-0.055, v), (0.055, v)]) for v in np.arange(-0.95, 1.0, 0.13)]
    canvas.paint(film.image, film.lines(vertebrae, 0.02), 0.5, 0.4)


def develop(film: Film, rng: np.random.Generator, site: Site) -> ByteImage:
    """Positioning, exposure, grey curve, marker and noise of the finished film."""
    import cv2

    height, width = film.shape
    pose = cv2.getRotationMatrix2D((width / 2, height / 2), rng.normal(0, site.tilt), 1.0)
    image = cv2.warpAffine(film.image, pose, (width, height), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    image = canvas.illuminate(rng, image, gradient=0.08, cast=0.0, vignette=0.0)
    image = canvas.blur(image, 0.004 * min(film.shape) * rng.uniform(0.8, 1.8))
    image = np.clip(image, 0, 1) ** np.float32(site.gamma * np.exp(rng.normal(0, 0.18)))
    image = np.float32(rng.uniform(0.85, 1.1)) * image + np.float32(rng.uniform(0.0, 0.08))
    corner = (round(width * rng.uniform(0.03, 0.1)), round(height * rng.uniform(0.1, 0.16)))
    text = np.zeros(film.shape, dtype=np.uint8)
    cv2.putText(text, site.marker, corner, cv2.FONT_HERSHEY_SIMPLEX, height / 500, 255, 1, cv2.LINE_AA)
    canvas.paint(image, text.astype(np.float32) / np.float32(255), 0.95, 0.9)
    image += np.float32(site.noise) * rng.standard_normal(film.shape, dtype=np.float32)
    grey = canvas.to_bytes(image)
    if site.equalise:
        grey = cv2.addWeighted(grey, 1 - site.equalise, cv2.equalizeHist(grey), site.equalise, 0)
    return np.asarray(grey, dtype=np.uint8)


def render_lateral(site: Site, seed: int, key: str, size: int) -> ByteImage:
    """A lateral film, which every reader leaves out: spine behind, heart in front, no finding."""
    rng = canvas.keyed_generator(site.key, seed, key)
    film = Film(np.full((round(size / 0.85), size), 0.08, dtype=np.float32), (size * 0.5, size * 0.6), 0.56 * size)
    canvas.paint(
        film.image, film.patch([(-0.7, -1.1), (0.5, -1.1), (0.75, 0.0), (0.7, 1.2), (-0.75, 1.2)], 0.03), 0.5, 1.0
    )
    canvas.paint(
        film.image, film.patch([(-0.5, -0.7), (0.2, -0.8), (0.55, 0.1), (0.4, 0.5), (-0.55, 0.7)], 0.03), 0.2, 0.9
    )
    canvas.paint(film.image, film.patch([(0.0, 0.0), (0.45, 0.05), (0.45, 0.5), (0.0, 0.5)], 0.02), 0.62, 0.8)
    canvas.paint(film.image, film.line([(-0.4, -1.0), (-0.55, 0.0), (-0.45, 1.1)], 0.16, 0.02), 0.75, 0.6)
    return develop(film, rng, site)
