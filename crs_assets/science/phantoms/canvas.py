"""Drawing for the phantoms: noise fields, soft regions, strokes and dots on float images in [0, 1].

Lengths are in pixels; renderers scale them by the short side, so a phantom looks alike at every size. Positions are
``(x, y)``. Grey images and masks are ``(height, width)``, colour images are planes ``(3, height, width)``, onto which
one mask can be painted at full speed.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatImage = npt.NDArray[np.float32]
ByteImage = npt.NDArray[np.uint8]
Shape = tuple[int, int]
Point = Sequence[float] | npt.NDArray[np.floating]
Colour = float | Sequence[float] | npt.NDArray[np.floating]

# OpenCV draws in fixed point: coordinates carry this many fractional bits.
_SHIFT = 4

# Thresholds near 1 are to leave separate patches of a noise field, not dots.
_NOISE_GAIN = np.float32(1.4)


def keyed_generator(*key: str | int) -> np.random.Generator:
    """A generator that depends on its key alone, so images may be drawn in any order."""
    digest = hashlib.sha256("|".join(map(str, key)).encode()).digest()
    return np.random.Generator(np.random.SFC64(int.from_bytes(digest[:16], "big")))


def smooth_noise(rng: np.random.Generator, shape: Shape, cell: float) -> FloatImage:
    """A smooth random field, mean 0 and standard deviation about 1.3, whose features are about ``cell`` pixels wide."""
    import cv2

    height, width = shape
    grid = (max(2, round(height / cell) + 2), max(2, round(width / cell) + 2))
    field = cv2.resize(rng.standard_normal(grid, dtype=np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
    return np.asarray(field, dtype=np.float32) * _NOISE_GAIN


def blur(image: FloatImage, sigma: float) -> FloatImage:
    """Gaussian blur with standard deviation ``sigma`` pixels."""
    import cv2

    return np.asarray(cv2.GaussianBlur(image, (0, 0), max(sigma, 0.3)), dtype=np.float32)


def soft_region(shape: Shape, centre: Point, outline: npt.NDArray[np.floating], softness: float) -> FloatImage:
    """A star-shaped region with a soft edge: 1 inside, 0 outside.

    Args:
        shape: Height and width.
        centre: ``(x, y)``.
        outline: Radius at equally spaced angles over the full turn, in pixels.
        softness: Standard deviation of the edge in pixels.
    """
    angle = np.arange(len(outline)) * (2 * np.pi / len(outline))
    corners = np.asarray(centre) + outline[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return polygon(shape, corners, softness)


def soft_step(level: FloatImage) -> FloatImage:
    """Logistic step of a signed level, clipped where it is 0 or 1 to float32 anyway."""
    return np.asarray(1 / (1 + np.exp(-np.clip(4 * level, -30, 30))), dtype=np.float32)


def wavy_outline(
    rng: np.random.Generator, radius: float, irregularity: float, elongation: float
) -> npt.NDArray[np.floating]:
    """Radii of a closed outline at 96 angles: an ellipse with harmonics whose size is ``irregularity``."""
    angle = np.arange(96) * (2 * np.pi / 96)
    ellipse = 1 / np.hypot(np.cos(angle) / elongation, np.sin(angle) * elongation)
    order = np.arange(2, 13)
    size = irregularity * rng.standard_normal(order.size) / order**0.6
    waves = (size[:, None] * np.cos(order[:, None] * angle + rng.uniform(0, 2 * np.pi, order.size)[:, None])).sum(
        axis=0
    )
    outline: npt.NDArray[np.floating] = radius * ellipse * np.clip(1 + 0.35 * waves, 0.35, 1.7)
    return outline


def strokes(shape: Shape, lines: Sequence[npt.NDArray[np.floating]], width: float) -> FloatImage:
    """Coverage in [0, 1] of open lines, each ``(points, 2)``; widths below a pixel thin out instead."""
    import cv2

    mask = np.zeros(shape, dtype=np.uint8)
    points = [np.round(line * 2**_SHIFT).astype(np.int32).reshape(-1, 1, 2) for line in lines]
    cv2.polylines(
        mask, points, isClosed=False, color=255, thickness=max(1, round(width)), lineType=cv2.LINE_AA, shift=_SHIFT
    )
    return mask.astype(np.float32) * np.float32(min(1.0, width) / 255)


def dots(shape: Shape, centres: npt.NDArray[np.floating], radii: npt.NDArray[np.floating]) -> FloatImage:
    """Coverage in [0, 1] of filled circles: centres ``(n, 2)``, radii ``(n,)``."""
    import cv2

    mask = np.zeros(shape, dtype=np.uint8)
    for (x, y), radius in zip(np.round(centres * 2**_SHIFT), np.round(radii * 2**_SHIFT), strict=True):
        cv2.circle(mask, (int(x), int(y)), int(radius), 255, thickness=-1, lineType=cv2.LINE_AA, shift=_SHIFT)
    return mask.astype(np.float32) / np.float32(255)


def polygon(shape: Shape, corners: npt.NDArray[np.floating], softness: float) -> FloatImage:
    """Coverage in [0, 1] of a filled polygon ``(n, 2)``, blurred by ``softness`` pixels."""
    import cv2

    mask = np.zeros(shape, dtype=np.uint8)
    points = np.round(corners * 2**_SHIFT).astype(np.int32).reshape(-1, 1, 2)
    cv2.fillPoly(mask, [points], 255, lineType=cv2.LINE_AA, shift=_SHIFT)
    return blur(mask.astype(np.float32) / np.float32(255), softness)


def round_corners(corners: npt.NDArray[np.floating], times: int = 2) -> npt.NDArray[np.floating]:
    """Cut the corners of a closed polygon (Chaikin, Computer Graphics and Image Processing 1974)."""
    for _ in range(times):
        following = np.roll(corners, -1, axis=0)
        corners = np.stack([0.75 * corners + 0.25 * following, 0.25 * corners + 0.75 * following], axis=1).reshape(
            -1, 2
        )
    return corners


def wander(
    rng: np.random.Generator, start: Point, heading: float, length: float, *, bend: float, drift: float = 0.0
) -> npt.NDArray[np.floating]:
    """A line of 24 steps that turns at random: ``bend`` radians per step, plus a steady ``drift`` per step."""
    return wander_all(rng, np.reshape(start, (1, 2)), np.array([heading]), np.array([length]), bend=bend, drift=drift)[
        0
    ]


def wander_all(
    rng: np.random.Generator,
    starts: npt.NDArray[np.floating],
    headings: npt.NDArray[np.floating],
    lengths: npt.NDArray[np.floating],
    *,
    bend: float,
    drift: float | npt.NDArray[np.floating] = 0.0,
) -> list[npt.NDArray[np.floating]]:
    """Lines as ``wander`` draws them, from ``(n, 2)`` starts, ``(n,)`` headings and lengths."""
    steps = 24
    turns = rng.normal(0, bend, (len(starts), steps)) + np.reshape(drift, (-1, 1))
    angles = headings[:, None] + np.cumsum(turns, axis=1)
    lines = np.empty((len(starts), steps + 1, 2))
    lines[:, 0] = 0
    np.cumsum(np.cos(angles), axis=1, out=lines[:, 1:, 0])
    np.cumsum(np.sin(angles), axis=1, out=lines[:, 1:, 1])
    return list(starts[:, None] + lines * (lengths / steps)[:, None, None])


def branches(
    rng: np.random.Generator, trunks: Sequence[npt.NDArray[np.floating]], count: int, length: float, *, bend: float
) -> list[npt.NDArray[np.floating]]:
    """``count`` side branches of each trunk, which leave it at 25 to 60 degrees."""
    if not trunks:
        return []
    stems = np.repeat(np.stack(trunks), count, axis=0)
    at, each = rng.integers(4, stems.shape[1] - 2, len(stems)), np.arange(len(stems))
    along = stems[each, at + 1] - stems[each, at]
    side = rng.choice([-1, 1], len(stems)) * rng.uniform(0.45, 1.05, len(stems))
    headings = np.arctan2(along[:, 1], along[:, 0]) + side
    lengths = length * rng.uniform(0.5, 1.2, len(stems))
    return wander_all(rng, stems[each, at], headings, lengths, bend=bend)


def scatter(rng: np.random.Generator, weight: FloatImage, count: int) -> npt.NDArray[np.floating]:
    """``(count, 2)`` positions drawn with probability proportional to ``weight``."""
    total = np.cumsum(weight.reshape(-1), dtype=np.float64)
    flat = np.searchsorted(total, rng.random(count) * total[-1])
    y, x = np.divmod(np.minimum(flat, weight.size - 1), weight.shape[1])
    return np.stack([x, y], axis=1) + rng.random((count, 2)) - 0.5


def paint(image: FloatImage, mask: FloatImage, colour: Colour, strength: float) -> None:
    """Move ``image`` towards a colour, or a grey, in place, by ``mask * strength``."""
    if strength <= 0:
        return
    amount = mask * np.float32(strength)
    image *= 1 - amount
    image += amount * np.asarray(colour, dtype=np.float32).reshape((-1, 1, 1) if image.ndim == 3 else ())


def illuminate(
    rng: np.random.Generator, image: FloatImage, *, gradient: float, cast: float, vignette: float
) -> FloatImage:
    """Uneven light, a colour cast and darker corners: what differs between photographs of the same thing."""
    height, width = image.shape[-2:]
    y = np.linspace(-1, 1, height, dtype=np.float32)[:, None]
    x = np.linspace(-1, 1, width, dtype=np.float32)
    tilt = rng.normal(0, gradient, 2).astype(np.float32)
    light = 1 + tilt[0] * x + tilt[1] * y - np.float32(vignette) * (x * x + y * y)
    if image.ndim == 2:
        return np.asarray(image * light, dtype=np.float32)
    planes = np.exp(rng.normal(0, cast, (3, 1, 1))).astype(np.float32)
    return np.asarray(image * light * planes, dtype=np.float32)


def interleave(planes: FloatImage) -> FloatImage:
    """From ``(3, height, width)`` to contiguous ``(height, width, 3)``."""
    return np.ascontiguousarray(planes.transpose(1, 2, 0))


def to_bytes(image: FloatImage) -> ByteImage:
    """Round half to even, clip, 8 bits."""
    pixels: ByteImage = np.clip(np.rint(image * np.float32(255)), 0, 255).astype(np.uint8)
    return pixels
