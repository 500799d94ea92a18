"""``crs plan --cost``: what a suite would take on the machine at hand, extrapolated from rates measured on it."""

import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import psutil
from rich import box
from rich.console import Console
from rich.table import Table

from crs_assets.cli.rates import measure_rates
from crs_assets.resources.bench import Bench
from crs_assets.resources.compute import Compute
from crs_assets.resources.prepared_images import FREE_SHARE
from crs_assets.science.canonical import digest
from crs_assets.science.cost import Cost, Machine, Rates, estimate_cost

if TYPE_CHECKING:
    from crs_assets.science.encoders.counting import NetworkCounts

SMALLEST_SHOWN = 0.01
# Columns of the table where nobody's terminal limits it.
TABLE_WIDTH = 110
NOT_COUNTED = (
    "Not in it: downloads, indexing, splits, null controls, analyses and the report; images larger than the working "
    "resolution take longer to decode; weights and images take disk of their own."
)


def measured_cost(bench: Bench, images: Mapping[str, int | None]) -> Cost:
    """Measure for some seconds, and extrapolate to the suite.

    Args:
        bench: The bench, with its device settled.
        images: Image set -> images, None where unknown.
    """
    networks = _networks(bench)
    machine = _machine(bench)
    rates = measure_rates(bench.suite, bench.compute, networks)
    return estimate_cost(bench.suite, images, networks, machine, rates)


def show_cost(cost: Cost) -> None:
    """Print the estimate: a table per encoder and image set, its totals, and what it is extrapolated from."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    if cost.rows:
        console.print(_table(cost))
    for note in _notes(cost):
        console.print(note, highlight=False)


def _networks(bench: Bench) -> dict[str, "NetworkCounts"]:
    """Encoder -> what one image costs it; the same network at the same input and tap is counted once."""
    from crs_assets.science.encoders.counting import count_network

    counted: dict[str, NetworkCounts] = {}
    keys = {}
    for name, spec in bench.suite.encoders.items():
        document = spec.model_dump(mode="json")
        keys[name] = digest([document["architecture"], document["tap"], spec.preprocessing.input_size])
        if keys[name] not in counted:
            counted[keys[name]] = count_network(spec)
    return {name: counted[key] for name, key in keys.items()}


def _machine(bench: Bench) -> Machine:
    compute, home = bench.compute, bench.home.path
    is_cpu = compute.kind == "cpu"
    there = next(path for path in (home, *home.parents) if path.exists())
    return Machine(
        name=_device_name(compute),
        overlapped=not is_cpu,
        batch_size=compute.batch_size,
        encoding_threads=compute.threads if is_cpu else 1,
        probe_processes=compute.fits if is_cpu else 1,
        prepared_image_bytes=min(compute.image_cache_bytes, int(FREE_SHARE * shutil.disk_usage(there).free)),
        process_bytes=psutil.Process().memory_info().rss,
    )


def _device_name(compute: Compute) -> str:
    if compute.kind == "cpu":
        return f"cpu ({compute.describe()['machine']}, {compute.threads} threads)"
    import torch

    return f"{compute.device} ({torch.cuda.get_device_name(compute.device)})"


def _table(cost: Cost) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False, show_footer=True)
    total = cost.total()
    has_device = total["device_bytes"] > 0
    columns = [
        ("encode\nh", _figure(total["encode_hours"])),
        ("probes\nh", _figure(total["probe_hours"])),
        ("features\nGB", _gigabytes(total["feature_bytes"])),
        ("predictions\nGB", _gigabytes(total["prediction_bytes"])),
        ("peak memory\nGB", _gigabytes(total["host_bytes"])),
        *([("on the device\nGB", _gigabytes(total["device_bytes"]))] if has_device else []),
    ]
    table.add_column("encoder", footer="total, of memory the peak", overflow="fold")
    table.add_column("image set")
    for heading, footer in columns:
        table.add_column(heading, footer=footer, justify="right")
    for row in cost.rows:
        cells = [
            _figure(row.encode_hours),
            "" if row.probe_hours is None else _figure(row.probe_hours),
            _gigabytes(row.feature_bytes),
            _gigabytes(row.prediction_bytes),
            _gigabytes(row.host_bytes),
            *([_gigabytes(row.device_bytes)] if has_device else []),
        ]
        table.add_row(row.encoder, row.image_set, *cells)
    return table


def _notes(cost: Cost) -> Iterator[str]:
    machine, total = cost.machine, cost.total()
    if not cost.rows:
        yield f"Nothing to add up: the number of images is unknown (see above) of {', '.join(cost.unknown)}."
        return
    yield (
        f"About {_figure(total['encode_hours'] + total['probe_hours'])} h. This is an extrapolation, not a measurement "
        f"of the suite, from {_rates(cost.rates)}, measured on {machine.name} just now."
    )
    yield (
        f"Encoders of the same geometry share prepared images of up to {machine.prepared_image_bytes / 1e9:.0f} GB. "
        + NOT_COUNTED
    )
    if cost.unknown:
        yield f"Left out, as their number of images is unknown (see above): {', '.join(cost.unknown)}."


def _rates(rates: Rates) -> str:
    reached = [
        f"{flops / 1e9:,.0f} GFLOP/s of a {kind} ({rates.measured_on[kind]}, random weights)"
        for kind, flops in rates.flops_per_second.items()
    ]
    slowest, fastest = max(rates.prepare_seconds.values()), min(rates.prepare_seconds.values())
    pixels = [
        f"{1 / rates.decode_seconds:,.0f} images/s decoded",
        f"{1 / rates.degrade_seconds:,.0f} images/s degraded in every way",
        f"{1 / slowest:,.0f} to {1 / fastest:,.0f} images/s brought to an input size",
    ]
    return ", ".join([*reached, *pixels, f"probes of {1e9 * rates.probe.row:.2g} ns per row, feature and fit"])


def _figure(value: float) -> str:
    if 0 < value < SMALLEST_SHOWN:
        return f"<{SMALLEST_SHOWN}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _gigabytes(value: float) -> str:
    return _figure(value / 1e9)
