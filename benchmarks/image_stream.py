"""A long stream of images through every condition: memory that does not grow, and cores that add up.

JPEG files go through decoding, all degradations and an encoder's preparation to a chunk of features, as in a run; the
encoder only averages pixels, so that nothing but the images takes time. The stream runs first with one thread that
loads images, then with one per core, then in as many separate processes of one thread, which is all that the machine
can give: cores that share caches, memory or a clock add up to less than their number. At last it runs once over all of
``--images``, while the memory of the process is watched: the most there was after the first tenth is set against the
most until then.

    python benchmarks/image_stream.py [--images 20000] [--side 320] [--sample 400] [--repetitions 3] [--json FILE]
"""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import psutil
from images import synthetic_jpeg
from reporting import options_parser, report, spread

from crs_assets.resources.compute import CHUNK_BATCHES, ComputeDevice
from crs_assets.science.encoders import ENCODER_FOLDER, load_encoder_spec, prepare
from crs_assets.science.extraction import extract
from crs_assets.science.images import iterate_degradations, read_image, single_threaded, to_working_resolution
from crs_assets.science.protocol import CLEAN, load_protocol

ENCODER, BATCH, DISTINCT = "vit-b16", 16, 8


class Average:
    """An encoder that takes no time."""

    def encode(self, batch: np.ndarray) -> np.ndarray:
        """The mean of every channel."""
        return batch.mean(axis=(1, 2), dtype=np.float32)


def stream(files: list[bytes], images: int, workers: int):
    """Chunks of features of so many images."""
    protocol = load_protocol("crs-v1")
    preprocessing = load_encoder_spec(ENCODER_FOLDER / f"{ENCODER}.toml").preprocessing

    def load(row: int) -> list[np.ndarray]:
        image = to_working_resolution(read_image(files[row % DISTINCT]), protocol.images.working_short_side)
        degraded = iterate_degradations(image, dataset="stream", image_id=str(row), protocol=protocol)
        return [prepare(image, preprocessing), *(prepare(pixels, preprocessing) for _, pixels in degraded)]

    conditions = [CLEAN, *(condition.name for condition in protocol.degradations())]
    ids = [str(row) for row in range(images)]
    options = {"batch_size": BATCH, "chunk_batches": CHUNK_BATCHES, "conditions": conditions, "workers": workers}
    return len(conditions), extract(ids, load, Average(), **options)


def per_second(files: list[bytes], images: int, workers: int) -> float:
    began = time.perf_counter()
    for _ in stream(files, images, workers)[1]:
        pass
    return images / (time.perf_counter() - began)


def per_second_apart(pool: ProcessPoolExecutor, side: int, images: int, processes: int) -> float:
    """Images per second of so many processes of one thread each, all at once."""
    return sum(pool.map(per_second_alone, [side] * processes, [images] * processes))


def per_second_alone(side: int, images: int) -> float:
    with single_threaded():
        return per_second(files_of(side), images, 1)


def files_of(side: int) -> list[bytes]:
    return [synthetic_jpeg(side + row) for row in range(DISTINCT)]


def memory(files: list[bytes], images: int, workers: int) -> dict[str, float]:
    """Resident bytes: the most in the first tenth of the stream, and the most after it."""
    process, early, late, done = psutil.Process(), 0, 0, 0
    conditions, chunks = stream(files, images, workers)
    for chunk in chunks:
        done += len(chunk.features)
        resident = process.memory_info().rss
        if done <= 0.1 * images * conditions:
            early = max(early, resident)
        else:
            late = max(late, resident)
    return {"conditions": conditions, "early_bytes": early, "late_bytes": late, "growth": late / early - 1}


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--side", type=int, default=320)
    parser.add_argument("--sample", type=int, default=400)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    cores = ComputeDevice(device="cpu").resolve().workers
    files = files_of(options.side)
    rates: dict[str, list[float]] = {"one": [], "threads": [], "processes": []}
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool, single_threaded():
        per_second(files, options.sample // 10, cores)
        per_second_apart(pool, options.side, options.sample // 10, cores)
        for _ in range(options.repetitions):
            rates["one"].append(per_second(files, options.sample, 1))
            rates["threads"].append(per_second(files, cores * options.sample, cores))
            rates["processes"].append(per_second_apart(pool, options.side, options.sample, cores))
    with single_threaded():
        began = time.perf_counter()
        resident = memory(files, options.images, cores)
        seconds = time.perf_counter() - began
    figures = {
        "side": options.side,
        "images": options.images,
        "workers": cores,
        "repetitions": options.repetitions,
        "images_per_second_of_one": spread(rates["one"]),
        "images_per_second_of_all": spread(rates["threads"]),
        "images_per_second_of_processes": spread(rates["processes"]),
        "scaling_per_core": spread(value / cores for value in ratios_of(rates["threads"], rates["one"])),
        "scaling_per_core_of_processes": spread(value / cores for value in ratios_of(rates["processes"], rates["one"])),
        "share_of_processes": spread(ratios_of(rates["threads"], rates["processes"])),
        "seconds": seconds,
        **resident,
    }
    report(figures, "numpy", "opencv-python-headless", "pillow", "simplejpeg", file=options.json)


def ratios_of(fast: list[float], slow: list[float]) -> list[float]:
    return [a / b for a, b in zip(fast, slow, strict=True)]


if __name__ == "__main__":
    main()
