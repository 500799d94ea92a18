"""Images to features: the extraction against the bare forward pass of the same network, batch and precision.

``bare`` is the network alone, on a batch of floats that already lies on the device: on a CPU one batch with all threads
and one batch per core, whichever is faster. ``prepared`` extracts features of images that are already prepared, with
everything that a run does up to the chunk of features; ``from_jpeg`` begins with JPEG files in memory. The three
alternate within a run. With ``--untrained`` the networks have random weights, which cost the same time and need no
file. Beside them stands what a trial of batch sizes and of bfloat16 finds on the device.

    python benchmarks/extraction.py [--encoders efficientnet-lite0-112 dinov2-vits14-focus-block3-112] [--untrained]
        [--device cuda] [--images 512] [--repetitions 3] [--json FILE]
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from images import synthetic_jpeg
from reporting import options_parser, ratios, report, spread

from crs_assets.resources.compute import Compute, ComputeDevice
from crs_assets.science.encoders import (
    ENCODER_FOLDER,
    EncoderSpec,
    load_encoder,
    load_encoder_spec,
    prepare,
    single_threaded_tensors,
    smallest_cosine,
    untrained_twin,
)
from crs_assets.science.encoders.timm_encoder import TimmEncoder
from crs_assets.science.encoders.tuning import fastest_batch
from crs_assets.science.extraction import extract
from crs_assets.science.images import read_image, single_threaded, to_working_resolution
from crs_assets.science.protocol import load_protocol

DISTINCT, JPEG_SIDE = 16, 512
TRIED = (4, 8, 16, 32, 64)


def bare_one_by_one(encoder: TimmEncoder, batch: np.ndarray, batches: int) -> Iterator[None]:
    """The network on one batch with all threads."""
    images = encoder._normalised(batch)
    with torch.inference_mode():
        for _ in range(batches):
            yield encoder.features(images)
    if encoder.device.type == "cuda":
        torch.cuda.synchronize()


def bare_side_by_side(encoder: TimmEncoder, batch: np.ndarray, batches: int) -> Iterator[None]:
    """The network on a batch per core."""
    images = encoder._normalised(batch)

    def forward(_: int) -> None:
        with torch.inference_mode():
            encoder.features(images)

    threads = torch.get_num_threads()
    with ThreadPoolExecutor(threads, initializer=single_threaded_tensors) as pool:
        yield from pool.map(forward, range(batches))


def extracted(encoder: TimmEncoder, load: Callable, images: int, compute: Compute) -> Iterator[object]:
    return extract(
        [str(row) for row in range(images)],
        load,
        encoder,
        batch_size=compute.batch_size,
        chunk_batches=compute.chunk_batches,
        workers=compute.workers,
        encoders=compute.threads,
        encoder_setup=single_threaded_tensors if compute.kind == "cpu" else None,
    )


def per_second(images: int, work: Iterator[object]) -> float:
    began = time.perf_counter()
    for _ in work:
        pass
    return images / (time.perf_counter() - began)


def compare(spec: EncoderSpec, compute: Compute, images: int, repetitions: int) -> dict[str, object]:
    protocol = load_protocol("crs-v1")
    encoder = load_encoder(spec, None, compute.device)
    files = [synthetic_jpeg(JPEG_SIDE + row) for row in range(DISTINCT)]

    def from_jpeg(row: int) -> list[np.ndarray]:
        image = to_working_resolution(read_image(files[row % DISTINCT]), protocol.images.working_short_side)
        return [prepare(image, spec.preprocessing)]

    prepared = [from_jpeg(row)[0] for row in range(DISTINCT)]
    batch = np.resize(np.stack(prepared), (compute.batch_size, *prepared[0].shape))
    batches = images // compute.batch_size
    sides = {
        "bare_one_by_one": lambda: bare_one_by_one(encoder, batch, batches),
        "bare_side_by_side": lambda: bare_side_by_side(encoder, batch, batches),
        "prepared": lambda: extracted(encoder, lambda row: [prepared[row % DISTINCT]], images, compute),
        "from_jpeg": lambda: extracted(encoder, from_jpeg, images, compute),
    }
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(repetitions):
        for side, work in sides.items():
            rates[side].append(per_second(batches * compute.batch_size, work()))
    bare = np.maximum(rates["bare_one_by_one"], rates["bare_side_by_side"]).tolist()
    return {
        "encoder": spec.id,
        **{f"{side}_per_second": spread(found) for side, found in rates.items()},
        "prepared_of_bare": ratios(rates["prepared"], bare),
        "from_jpeg_of_bare": ratios(rates["from_jpeg"], bare),
        **trial(encoder, batch, compute),
    }


def trial(encoder: TimmEncoder, batch: np.ndarray, compute: Compute) -> dict[str, object]:
    """Images per second of each batch size in one thread, of bfloat16, and how close the latter stays."""
    if compute.kind == "cpu":
        threads = torch.get_num_threads()
        single_threaded_tensors()
    mixed = encoder.in_precision("bfloat16")
    sizes = compute.trial_batches if compute.finds_batch else TRIED
    found = {size: fastest_batch(encoder.encode, batch, (size,), time.perf_counter)[1] for size in sizes}
    exact_rate = found.get(compute.batch_size) or max(found.values())
    mixed_rate = fastest_batch(mixed.encode, batch, (compute.batch_size,), time.perf_counter)[1]
    if compute.kind == "cpu":
        torch.set_num_threads(threads)
    return {
        "per_second_by_batch": found,
        "bfloat16_speedup": mixed_rate / exact_rate,
        "bfloat16_smallest_cosine": smallest_cosine(encoder, batch, compute.batch_size),
    }


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--encoders", nargs="+", default=["efficientnet-lite0-112", "dinov2-vits14-focus-block3-112"])
    parser.add_argument("--untrained", action="store_true")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    compute = ComputeDevice(device=options.device, batch_size=options.batch).resolve()
    specs = [load_encoder_spec(ENCODER_FOLDER / f"{name}.toml") for name in options.encoders]
    if options.untrained:
        specs = [untrained_twin(spec, seed=0) for spec in specs]
    with single_threaded():
        sets = [compare(spec, compute, options.images, options.repetitions) for spec in specs]
    figures = {
        "device": compute.device,
        "batch_size": compute.batch_size,
        "threads": torch.get_num_threads(),
        "images": options.images,
        "repetitions": options.repetitions,
        "sets": sets,
    }
    report(figures, "numpy", "timm", "torch", "opencv-python-headless", "simplejpeg", file=options.json)


if __name__ == "__main__":
    main()
