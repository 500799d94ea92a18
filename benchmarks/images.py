"""All degraded versions of one JPEG file: decode once and share work, against a plain pipeline per condition.

Both sides start from the same bytes, reduce to the protocol's working resolution and produce one uint8 array per
condition, on one thread, interleaved in one run. The plain side is what one would write first: Pillow and numpy, with a
fresh decode and fresh noise for every condition. Its blur is Pillow's box approximation (cheaper than the exact kernel)
and its noise is drawn for every pixel (dearer than on the protocol's grid), so the pixels of the two sides differ.

    python benchmarks/images.py [--sides 512 1024] [--repetitions 7] [--json FILE]
"""

import io
import statistics
import time
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageFilter
from reporting import options_parser, ratios, report, spread

from crs_assets.science.images import iterate_degradations, read_image, single_threaded, to_working_resolution
from crs_assets.science.protocol import Protocol, load_protocol


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
    return [pixels for _, pixels in iterate_degradations(image, dataset="b", image_id="i", protocol=protocol)]


def plain(data: bytes, protocol: Protocol) -> list[np.ndarray]:
    return [
        plain_condition(data, family.id, strength, protocol.images.working_short_side)
        for family in protocol.perturbations
        for strength in family.strengths
    ]


def plain_condition(data: bytes, perturbation: str, strength: float, short_side: int) -> np.ndarray:
    image = Image.open(io.BytesIO(data)).convert("RGB")
    if min(image.size) > short_side:
        scale = short_side / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BOX)
    if perturbation == "gaussian_blur":
        return np.asarray(image.filter(ImageFilter.GaussianBlur(strength * min(image.size))))
    if perturbation == "jpeg":
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=int(strength), subsampling="4:2:0")
        return np.asarray(Image.open(buffer).convert("RGB"))
    pixels = np.asarray(image)
    if perturbation == "fov_crop":
        h, w = round(strength * pixels.shape[0]), round(strength * pixels.shape[1])
        return pixels[:h, :w].copy()
    values = pixels.astype(np.float64)
    if perturbation == "contrast":
        mean = (values @ np.array([0.299, 0.587, 0.114])).mean()
        degraded = mean + strength * (values - mean)
    else:
        noise = np.random.default_rng(0).normal(0, 255 * strength, (2, *values.shape))
        degraded = np.sqrt((values + noise[0]) ** 2 + noise[1] ** 2)
    return np.rint(degraded).clip(0, 255).astype(np.uint8)


def seconds(run: Callable[[bytes, Protocol], list[np.ndarray]], data: bytes, protocol: Protocol) -> float:
    start = time.perf_counter()
    run(data, protocol)
    return time.perf_counter() - start


def compare(side: int, repetitions: int, protocol: Protocol) -> dict[str, object]:
    data = synthetic_jpeg(side)
    shared(data, protocol), plain(data, protocol)
    pairs = [(seconds(plain, data, protocol), seconds(shared, data, protocol)) for _ in range(repetitions)]
    return {
        "side": side,
        "conditions": len(list(protocol.degradations())),
        "plain_ms": spread(1e3 * slow for slow, _ in pairs),
        "shared_ms": spread(1e3 * fast for _, fast in pairs),
        "ratio": ratios(*zip(*pairs, strict=True)),
        "shared_variants_per_second": len(list(protocol.degradations())) / statistics.median(fast for _, fast in pairs),
    }


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--sides", type=int, nargs="+", default=[512, 1024])
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    protocol = load_protocol("crs-v1")
    with single_threaded():
        sets = [compare(side, options.repetitions, protocol) for side in options.sides]
    figures = {"threads": 1, "repetitions": options.repetitions, "sets": sets}
    report(figures, "numpy", "opencv-python-headless", "pillow", "simplejpeg", file=options.json)


if __name__ == "__main__":
    main()
