"""All degraded versions of one JPEG file: decode once and share work, against a plain pipeline per condition.

Both sides start from the same bytes, reduce to the protocol's working resolution and produce one uint8 array per
condition, on one thread, interleaved in one run. The plain side is what one would write first with Pillow, numpy and
scipy: it computes the same formulas with the same random draws, decoding afresh for every condition, and how far its
pixels lie from ours is told. With ``--box-blur`` it takes Pillow's blur instead, which is cheaper because it only
approximates the Gaussian by boxes.

    python benchmarks/images.py [--sides 512 1024] [--repetitions 7] [--box-blur] [--json FILE]
"""

import io
import math
import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np
from PIL import Image, ImageFilter
from reporting import options_parser, ratios, report, spread
from scipy.ndimage import gaussian_filter

from crs_assets.science.images import iterate_degradations, read_image, single_threaded, to_working_resolution
from crs_assets.science.protocol import Protocol, load_protocol
from crs_assets.science.seeding import generator

DATASET, IMAGE = "stream", "image"
Blur = Callable[[Image.Image, float], np.ndarray]


def synthetic_jpeg(side: int) -> bytes:
    """A smooth colour picture with fine texture, JPEG of quality 92."""
    stream = np.random.default_rng(side)
    coarse = Image.fromarray(stream.integers(0, 256, (side // 32, side // 32, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32)
    textured = smooth + 6 * stream.standard_normal(smooth.shape, dtype=np.float32)
    buffer = io.BytesIO()
    Image.fromarray(textured.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=92)
    return buffer.getvalue()


def shared(data: bytes, protocol: Protocol) -> list[np.ndarray]:
    image = to_working_resolution(read_image(data), protocol.images.working_short_side)
    return [pixels for _, pixels in iterate_degradations(image, dataset=DATASET, image_id=IMAGE, protocol=protocol)]


def plain(data: bytes, protocol: Protocol, *, blur: Blur) -> list[np.ndarray]:
    return [
        plain_condition(data, family.id, strength, protocol, blur)
        for family in protocol.perturbations
        for strength in family.strengths
    ]


def plain_condition(data: bytes, perturbation: str, strength: float, protocol: Protocol, blur: Blur) -> np.ndarray:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    short_side, working = min(image.size), protocol.images.working_short_side
    if short_side > working:
        scale = working / short_side
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BOX)
    stream = generator(protocol.salt, DATASET, IMAGE, perturbation)
    if perturbation == "gaussian_blur":
        return blur(image, strength * min(image.size))
    if perturbation == "jpeg":
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=int(strength), subsampling="4:2:0")
        return np.asarray(Image.open(buffer).convert("RGB"))
    pixels = np.asarray(image)
    if perturbation == "fov_crop":
        h, w = round(strength * pixels.shape[0]), round(strength * pixels.shape[1])
        u, v = stream.random(2)
        top, left = int(u * (pixels.shape[0] - h)), int(v * (pixels.shape[1] - w))
        return pixels[top : top + h, left : left + w].copy()
    values = pixels.astype(np.float32)
    if perturbation == "contrast":
        mean = (values @ np.array([0.299, 0.587, 0.114])).mean()
        return rounded(mean + strength * (values - mean))
    n1, n2 = plain_noise(stream, image.size, protocol.images.noise_grid_short_side)
    sigma = 255 * strength
    return rounded(np.sqrt((values + sigma * n1) ** 2 + (sigma * n2) ** 2))


def plain_noise(stream: np.random.Generator, size: tuple[int, int], short_side: int) -> np.ndarray:
    """Two fields of unit noise, (2, rows, columns, 3), drawn on the protocol's grid and enlarged."""
    scale = short_side / min(size)
    columns, rows = round(size[0] * scale), round(size[1] * scale)
    draw = stream.standard_normal((3, 2, rows, columns), dtype=np.float32)
    planes = [[Image.fromarray(plane).resize(size, Image.Resampling.BILINEAR) for plane in pair] for pair in draw]
    noise = np.asarray([[plane / np.std(plane) for plane in map(np.asarray, pair)] for pair in planes])
    return np.moveaxis(noise, 0, -1)


def rounded(values: np.ndarray) -> np.ndarray:
    return np.rint(values).clip(0, 255).astype(np.uint8)


def exact_blur(image: Image.Image, sigma: float) -> np.ndarray:
    radius = math.ceil(4 * sigma)
    values = np.asarray(image, dtype=np.float32)
    return rounded(gaussian_filter(values, sigma, mode="mirror", radius=radius, axes=(0, 1)))


def box_blur(image: Image.Image, sigma: float) -> np.ndarray:
    return np.asarray(image.filter(ImageFilter.GaussianBlur(sigma)))


def seconds(run: Callable[[bytes, Protocol], list[np.ndarray]], data: bytes, protocol: Protocol) -> float:
    start = time.perf_counter()
    run(data, protocol)
    return time.perf_counter() - start


def compare(side: int, repetitions: int, protocol: Protocol, blur: Blur) -> dict[str, object]:
    data, plainly = synthetic_jpeg(side), partial(plain, blur=blur)
    apart = np.concatenate(
        [
            np.abs(ours.astype(np.int16) - theirs).ravel()
            for ours, theirs in zip(shared(data, protocol), plainly(data, protocol), strict=True)
        ]
    )
    pairs = [(seconds(plainly, data, protocol), seconds(shared, data, protocol)) for _ in range(repetitions)]
    return {
        "side": side,
        "conditions": len(list(protocol.degradations())),
        "grey_levels_apart": float(apart.mean()),
        "apart_by_more_than_1": float((apart > 1).mean()),
        "plain_ms": spread(1e3 * slow for slow, _ in pairs),
        "shared_ms": spread(1e3 * fast for _, fast in pairs),
        "ratio": ratios(*zip(*pairs, strict=True)),
        "shared_variants_per_second": len(list(protocol.degradations())) / statistics.median(fast for _, fast in pairs),
    }


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--sides", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--box-blur", action="store_true", help="the plain side blurs by Pillow's approximation")
    options = parser.parse_args()
    protocol = load_protocol("crs-v1")
    with single_threaded():
        blur = box_blur if options.box_blur else exact_blur
        sets = [compare(side, options.repetitions, protocol, blur) for side in options.sides]
    figures = {"threads": 1, "plain_blur": blur.__name__, "repetitions": options.repetitions, "sets": sets}
    report(figures, "numpy", "scipy", "opencv-python-headless", "pillow", "simplejpeg", file=options.json)


if __name__ == "__main__":
    main()
