"""What a suite would take on a machine: hours, disk and memory, extrapolated from measured rates and counted work.

For an encoder that needs ``F`` floating-point operations per image, and an image set of ``N`` images of which ``T``
are degraded in ``C`` ways (``science.plan`` counts them):

- **Forward passes**: ``(N + T C) F / R`` seconds, ``R`` the operations per second that the device reached on a network
  of the same kind.
- **Preparation**: ``N (a + r)`` seconds for clean images and ``T (a + g + C r)`` for degraded ones: ``a`` to decode an
  image, ``g`` to degrade it in all ways, ``r`` to bring one to the network's input. Encoders of the same geometry share
  prepared images, so only the first of them prepares, where they fit into the space that is set aside for them.
- **Encoding**: the sum of both where they compete for the same cores, the longer of both where an accelerator encodes
  while the cores prepare.
- **Probes** of one seed: over the label fractions with ``n`` train images each, ``P L (p n d + s min(n, d)^2)``
  seconds for ``P`` penalties, ``L`` labels or classes and ``d`` features: ``p`` for the passes over the rows, ``s`` for
  what is done in the space that the rows span. Scoring adds ``m`` seconds per predicted image, label and fraction.

None of it is a measurement of the suite: rates change with the size of images and networks, probes need more passes on
some features than on others, and a softmax, which is taken for as many sigmoids, more than they.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from crs_assets.science.canonical import digest
from crs_assets.science.plan import (
    FLOAT32_BYTES,
    degraded_images,
    predicted_images,
    prediction_bytes,
    test_images,
    train_images,
)
from crs_assets.science.suite import Suite
from crs_assets.science.transfer import fitted_labels

if TYPE_CHECKING:
    from crs_assets.science.encoders.counting import NetworkCounts

SECONDS_PER_HOUR = 3600
SOLVER_FLOOR_BYTES = 150_000_000
"""The probe solver works in about as much memory again as its train features take, and in this much for small ones."""
PREDICTION_ROW_BYTES = 64
"""Beside the logits: fraction, and views of role, condition and image id."""


@dataclass(frozen=True)
class Machine:
    """How work is divided on a machine.

    Attributes:
        name: Device, for people.
        overlapped: Whether images are prepared while an accelerator encodes; else both share the cores.
        batch_size: Images per forward pass.
        encoding_threads: Forward passes side by side.
        probe_processes: Probes fitted side by side.
        prepared_image_bytes: Largest set of prepared images that is kept between encoders.
        process_bytes: Memory of a process that has the libraries loaded and no work yet.
    """

    name: str
    overlapped: bool
    batch_size: int
    encoding_threads: int
    probe_processes: int
    prepared_image_bytes: int
    process_bytes: int


@dataclass(frozen=True)
class Rates:
    """What was measured on the machine.

    Attributes:
        flops_per_second: Kind of network -> operations per second reached by all its encoding threads together.
        measured_on: Kind of network -> the encoder that was run, with random weights.
        decode_seconds: Per image, decoded and brought to the working resolution, by all threads together.
        degrade_seconds: The same for an image in all degradations.
        prepare_seconds: Encoder -> the same for one image brought to its input.
        probe: Of one probe process.
        score_seconds: Per predicted image and label, of one process.
    """

    flops_per_second: Mapping[str, float]
    measured_on: Mapping[str, str]
    decode_seconds: float
    degrade_seconds: float
    prepare_seconds: Mapping[str, float]
    probe: "ProbeRates"
    score_seconds: float


class ProbeRates(NamedTuple):
    """Seconds of the probe solver per problem and penalty: ``row n d + system min(n, d)^2``."""

    row: float
    system: float


class ProbeTiming(NamedTuple):
    """A probe that was timed: its rows, features, outputs times penalties, and seconds."""

    rows: int
    dim: int
    fits: int
    seconds: float


@dataclass(frozen=True)
class CostRow:
    """An encoder on an image set.

    Attributes:
        encoder: Id.
        image_set: Data set, or target.
        encode_hours: Preparation and forward passes.
        probe_hours: Fitting and scoring over all seeds; None for a target, whose images its source's probes predict.
        feature_bytes: Disk for features.
        prediction_bytes: Disk for logits over all seeds.
        host_bytes: Most memory of the machine at a time.
        device_bytes: Most memory of an accelerator at a time; 0 without one.
    """

    encoder: str
    image_set: str
    encode_hours: float
    probe_hours: float | None
    feature_bytes: int
    prediction_bytes: int
    host_bytes: int
    device_bytes: int


@dataclass(frozen=True)
class Cost:
    """The estimate for a suite.

    Attributes:
        machine: How work is divided.
        rates: What it is extrapolated from.
        rows: One per encoder and image set of known size.
        unknown: Image sets that are left out because their size is not known.
    """

    machine: Machine
    rates: Rates
    rows: tuple[CostRow, ...]
    unknown: tuple[str, ...]

    def total(self) -> dict[str, float]:
        """Sums of hours and bytes on disk, and the largest memory."""
        sums = ("encode_hours", "probe_hours", "feature_bytes", "prediction_bytes")
        totals = {name: sum(getattr(row, name) or 0 for row in self.rows) for name in sums}
        peaks = {
            name: max((getattr(row, name) for row in self.rows), default=0) for name in ("host_bytes", "device_bytes")
        }
        return {**totals, **peaks}

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        document = asdict(self)
        document["rates"]["probe"] = self.rates.probe._asdict()
        return {**document, "total": self.total(), "extrapolated": True}


def fit_probe_rates(timings: Sequence[ProbeTiming]) -> ProbeRates:
    """Rates that come closest to timed probes, by least squares of relative errors; neither is negative.

    Args:
        timings: At least two, of different shape.
    """
    from scipy.optimize import nnls

    seconds = np.array([timing.seconds for timing in timings])
    terms = np.array([(t.fits * t.rows * t.dim, t.fits * min(t.rows, t.dim) ** 2) for t in timings])
    # Columns of like size, so that the small one is not taken for rounding.
    scale = terms.max(axis=0)
    found, _ = nnls(terms / scale / seconds[:, None], np.ones(len(timings)))
    return ProbeRates(*(found / scale).tolist())


def estimate_cost(
    suite: Suite,
    images: Mapping[str, int | None],
    networks: Mapping[str, "NetworkCounts"],
    machine: Machine,
    rates: Rates,
) -> Cost:
    """Extrapolate to a suite.

    Args:
        suite: The suite.
        images: Image set -> images, as ``plan_suite`` counts them; None where unknown.
        networks: Encoder -> what one image costs it.
        machine: How work is divided.
        rates: What was measured.
    """
    sizes = {name: count for name, count in images.items() if count is not None}
    unknown = tuple(name for name, count in images.items() if count is None)
    estimator = _Estimator(suite, sizes, networks, machine, rates, set())
    rows = [
        estimator.row(encoder, image_set)
        for encoder in suite.encoders
        for image_set in suite.existing_image_sets(encoder)
        if image_set in sizes and (image_set in suite.targets or suite.target_of(image_set) not in unknown)
    ]
    return Cost(machine, rates, tuple(rows), unknown)


@dataclass(frozen=True)
class _Estimator:
    """Walks the suite in the order in which it is run; ``kept`` are the prepared image sets that are there by then."""

    suite: Suite
    sizes: Mapping[str, int]
    networks: Mapping[str, "NetworkCounts"]
    machine: Machine
    rates: Rates
    kept: set[tuple[str, str, bool]]

    def row(self, encoder: str, image_set: str) -> CostRow:
        dim = self.suite.encoders[encoder].tap.dim
        clean, degraded = self.sizes[image_set], degraded_images(self.suite, image_set, self.sizes)
        is_source = image_set in self.suite.datasets
        seeds = len(self.suite.protocol.data.seeds)
        seconds = self._encoding_seconds(encoder, image_set, clean, degraded)
        host, device = self._encoding_bytes(encoder, max(clean, degraded))
        return CostRow(
            encoder=encoder,
            image_set=image_set,
            encode_hours=seconds / SECONDS_PER_HOUR,
            probe_hours=self._probe_seconds(image_set, dim) / SECONDS_PER_HOUR if is_source else None,
            feature_bytes=(clean + degraded) * dim * FLOAT32_BYTES,
            prediction_bytes=prediction_bytes(self.suite, image_set, self.sizes) * seeds if is_source else 0,
            host_bytes=max(host, self._probe_bytes(image_set, dim) if is_source else 0),
            device_bytes=device,
        )

    def _encoding_seconds(self, encoder: str, image_set: str, clean: int, degraded: int) -> float:
        rates = self.rates
        test = test_images(self.suite, image_set, self.sizes) if degraded else 0
        reading = rates.prepare_seconds[encoder]
        preparations = (
            (clean, False, clean * (rates.decode_seconds + reading)),
            (degraded, True, test * (rates.decode_seconds + rates.degrade_seconds) + degraded * reading),
        )
        total = 0.0
        for count, is_degraded, preparation in preparations:
            forward = self._forward_seconds(encoder, count)
            spent = 0.0 if self._is_kept(encoder, image_set, is_degraded, count) else preparation
            total += max(forward, spent) if self.machine.overlapped else forward + spent
        return total

    def _forward_seconds(self, encoder: str, images: int) -> float:
        network = self.networks[encoder]
        return images * network.flops / self.rates.flops_per_second[network.kind] if network.flops else 0.0

    def _is_kept(self, encoder: str, image_set: str, is_degraded: bool, images: int) -> bool:
        """Whether an earlier encoder left these prepared images; from now on they are there, if they fit."""
        preprocessing = self.suite.encoders[encoder].preprocessing
        size = images * preprocessing.input_size**2 * 3
        key = (digest(preprocessing.geometry), image_set, is_degraded)
        is_there = key in self.kept
        if size <= self.machine.prepared_image_bytes:
            self.kept.add(key)
        return is_there

    def _encoding_bytes(self, encoder: str, vectors: int) -> tuple[int, int]:
        """Memory of the machine and of its accelerator; features are held twice while they are put together."""
        spec, network, machine = self.suite.encoders[encoder], self.networks[encoder], self.machine
        batch = machine.batch_size * machine.encoding_threads
        waiting = 2 * batch * spec.preprocessing.input_size**2 * 3
        work = network.parameter_bytes + batch * network.activation_bytes
        host = machine.process_bytes + waiting + 2 * vectors * spec.tap.dim * FLOAT32_BYTES
        return (host, work) if machine.overlapped else (host + work, 0)

    def _probe_seconds(self, dataset: str, dim: int) -> float:
        protocol, rates = self.suite.protocol, self.rates
        labels = len(fitted_labels(self.suite.datasets[dataset]).classes)
        train = train_images(self.suite, dataset, self.sizes)
        fits = len(protocol.probe.lambdas) * labels
        fitting = sum(
            fits * (rates.probe.row * train * fraction * dim + rates.probe.system * min(train * fraction, dim) ** 2)
            for fraction in protocol.data.fractions
        )
        scored = len(protocol.data.fractions) * predicted_images(self.suite, dataset, self.sizes)
        seeds = len(protocol.data.seeds)
        rounds = seeds / min(seeds, self.machine.probe_processes)
        return rounds * (fitting + scored * labels * rates.score_seconds)

    def _probe_bytes(self, dataset: str, dim: int) -> int:
        """All processes together; predictions are held twice while they are put together."""
        train = train_images(self.suite, dataset, self.sizes)
        solver = max(SOLVER_FLOOR_BYTES, round(train * dim * FLOAT32_BYTES))
        rows = round(predicted_images(self.suite, dataset, self.sizes)) * len(self.suite.protocol.data.fractions)
        predictions = prediction_bytes(self.suite, dataset, self.sizes) + rows * PREDICTION_ROW_BYTES
        return self.machine.probe_processes * (self.machine.process_bytes + max(solver, 2 * predictions))
