"""Rates of the machine at hand, each measured for a second or two on synthetic input."""

import io
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crs_assets.resources.compute import Compute, single_threaded
from crs_assets.science.canonical import digest
from crs_assets.science.cost import ProbeRates, ProbeTiming, Rates, fit_probe_rates
from crs_assets.science.encoders import EncoderSpec, load_encoder, prepare, single_threaded_tensors, untrained_twin
from crs_assets.science.evaluation import Scored, score
from crs_assets.science.images import iterate_degradations, read_image, to_working_resolution
from crs_assets.science.images import single_threaded as single_threaded_images
from crs_assets.science.probes import fit_linear_path, standardisation
from crs_assets.science.protocol import ProbeProtocol, Protocol
from crs_assets.science.suite import Suite

if TYPE_CHECKING:
    from crs_assets.science.encoders.counting import NetworkCounts

STREAM = "cost"
MEASURED_SECONDS = 2.0
GEOMETRY_SECONDS = 0.3
# On a CPU a batch is cut so that one forward pass takes a second or less; its rate hardly depends on the batch.
CPU_BATCH_FLOPS = 5e10
# Rows and features at which the two terms of a probe's cost weigh differently, with as many features as encoders have.
PROBE_SHAPES = ((384, 768), (2048, 512), (16384, 512))
PROBE_LABELS = 2
SCORED_IMAGES = 2000
SCORED_LABELS = 4
JPEG_QUALITY = 92


def measure_rates(suite: Suite, compute: Compute, networks: Mapping[str, "NetworkCounts"]) -> Rates:
    """Measure what the device and the cores do per second.

    Args:
        suite: The suite; of each kind of network its cheapest is run, with random weights.
        compute: The device.
        networks: Encoder -> what one image costs it.
    """
    protocol = suite.protocol
    flops, measured_on = {}, {}
    for kind in sorted({network.kind for network in networks.values() if network.flops}):
        of_kind = {name: network.flops for name, network in networks.items() if network.kind == kind}
        name = min(of_kind, key=of_kind.__getitem__)
        flops[str(kind)] = of_kind[name] * _images_per_second(suite.encoders[name], of_kind[name], compute)
        measured_on[str(kind)] = name
    encoded = _synthetic_jpeg(protocol.images.working_short_side)
    image = read_image(encoded)
    with single_threaded_images():
        decoding = _calls_per_second(partial(_decode, encoded, protocol), compute.workers, MEASURED_SECONDS)
        degrading = _calls_per_second(partial(_degrade, image, protocol), compute.workers, MEASURED_SECONDS)
        preparing = _prepare_seconds(suite.encoders, image, compute.workers)
    with single_threaded(torch=False):
        probe, scoring = _probe_rates(protocol.probe, compute), _score_seconds(protocol)
    return Rates(
        flops_per_second=flops,
        measured_on=measured_on,
        decode_seconds=1 / decoding,
        degrade_seconds=1 / degrading,
        prepare_seconds=preparing,
        probe=probe,
        score_seconds=scoring,
    )


def _decode(encoded: bytes, protocol: Protocol) -> NDArray[np.uint8]:
    return to_working_resolution(read_image(encoded), protocol.images.working_short_side)


def _degrade(image: NDArray[np.uint8], protocol: Protocol) -> list[object]:
    return list(iterate_degradations(image, dataset=STREAM, image_id=STREAM, protocol=protocol))


def _images_per_second(spec: EncoderSpec, flops: int, compute: Compute) -> float:
    """Images per second of an encoder with random weights, encoded as the stages do it."""
    twin = spec if spec.untrained_seed is not None else untrained_twin(spec, 0)
    encoder = load_encoder(twin, None, compute.device)
    is_cpu, side = compute.kind == "cpu", spec.preprocessing.input_size
    batch_size = min(compute.batch_size, max(1, int(CPU_BATCH_FLOPS // flops))) if is_cpu else compute.batch_size
    batch = np.zeros((batch_size, side, side, 3), dtype=np.uint8)
    threads, setup = (compute.threads, single_threaded_tensors) if is_cpu else (1, None)
    return batch_size * _calls_per_second(partial(encoder.encode, batch), threads, MEASURED_SECONDS, setup)


def _prepare_seconds(encoders: Mapping[str, EncoderSpec], image: NDArray[np.uint8], workers: int) -> dict[str, float]:
    """Encoder -> seconds per image; encoders of one geometry are measured once."""
    measured: dict[str, float] = {}
    for spec in encoders.values():
        key = digest(spec.preprocessing.geometry)
        if key not in measured:
            bring = partial(prepare, image, spec.preprocessing)
            measured[key] = 1 / _calls_per_second(bring, workers, GEOMETRY_SECONDS)
    return {name: measured[digest(spec.preprocessing.geometry)] for name, spec in encoders.items()}


def _synthetic_jpeg(side: int) -> bytes:
    """A smooth picture with fine texture; flat ones decode faster than photographs."""
    stream = np.random.default_rng(0)
    coarse = Image.fromarray(stream.integers(0, 256, (16, 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((side, side), Image.Resampling.BICUBIC), dtype=np.float32)
    textured = smooth + 6 * stream.standard_normal(smooth.shape, dtype=np.float32)
    buffer = io.BytesIO()
    Image.fromarray(textured.clip(0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


def _probe_rates(settings: ProbeProtocol, compute: Compute) -> ProbeRates:
    setup = single_threaded_tensors if compute.kind == "cpu" else None
    timings = []
    for rows, dim in PROBE_SHAPES:
        calls = _calls_per_second(_probe(rows, dim, settings, compute.device), 1, 0.0, setup)
        timings.append(ProbeTiming(rows, dim, len(settings.lambdas) * PROBE_LABELS, 1 / calls))
    return fit_probe_rates(timings)


def _probe(rows: int, dim: int, settings: ProbeProtocol, device: str) -> Callable[[], object]:
    """A probe on features that tell their labels in part; timed when called."""
    stream = np.random.default_rng(0)
    features = stream.standard_normal((rows, dim)) * (np.arange(1, dim + 1) ** -0.5)
    evidence = features @ stream.standard_normal((dim, PROBE_LABELS)) + 2 * stream.logistic(size=(rows, PROBE_LABELS))
    labels = (evidence > np.quantile(evidence, 0.8, axis=0)).astype(np.float64)
    features = features.astype(np.float32)
    mean, scale = standardisation(features, np.arange(rows), std_floor=settings.std_floor, std_zero=settings.std_zero)

    def fit() -> object:
        return fit_linear_path(
            features,
            labels,
            [np.arange(rows)],
            settings.lambdas,
            kind="multilabel",
            mean=mean,
            scale=scale,
            gap=settings.gap,
            max_iterations=settings.max_iterations,
            device=device,
        )

    return fit


def _score_seconds(protocol: Protocol) -> float:
    stream = np.random.default_rng(0)
    labels = (stream.random((SCORED_IMAGES, SCORED_LABELS)) < 0.2).astype(np.float32)
    logits = (2 * labels - 2 + stream.standard_normal(labels.shape)).astype(np.float32)
    run = Scored(labels, logits, range(SCORED_LABELS))
    calls = _calls_per_second(partial(score, run, "multilabel", protocol, STREAM), 1, GEOMETRY_SECONDS)
    return 1 / (calls * SCORED_IMAGES * SCORED_LABELS)


def _calls_per_second(
    call: Callable[[], object], threads: int, seconds: float, setup: Callable[[], None] | None = None
) -> float:
    """Calls per second of so many threads together, each after one call that does not count.

    Args:
        call: What is measured.
        threads: Threads that call it side by side.
        seconds: How long they do; at least one call each is counted.
        setup: Called once in each thread before.
    """
    begin = Barrier(threads)

    def work() -> float:
        if setup is not None:
            setup()
        call()
        begin.wait()
        began, calls = time.perf_counter(), 0
        while calls == 0 or time.perf_counter() - began < seconds:
            call()
            calls += 1
        return calls / (time.perf_counter() - began)

    with ThreadPoolExecutor(threads) as pool:
        return sum(future.result() for future in [pool.submit(work) for _ in range(threads)])
