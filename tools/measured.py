"""The benchmarks: what measures what, where the figures are kept, and how ``docs/performance.md`` shows them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).parent.parent / "docs"
MEASURED = DOCS / "measured"
GROWTH_PLOT = "images/probe-growth.png"
FOLDER = "FOLDER"
PEERS = {
    "torch_lbfgs": "torch.optim.LBFGS",
    "torchgeo_bench": "torchgeo-bench",
    "batched_on_gpu": "the same solver on a GPU",
    "torch_lbfgs_on_gpu": "torch.optim.LBFGS on a GPU",
}
MISSING = "not measured yet"
SHOWN = 0.01

Figures = Mapping[str, Any]


class Line(NamedTuple):
    """A row of the table: what was compared, the ratio or the time, and what stands beside it."""

    what: str
    ratio: str
    beside: str


@dataclass(frozen=True)
class Benchmark:
    """One command and its figures.

    Attributes:
        name: Of the file in ``docs/measured``, without its suffix.
        what: What it compares, in words.
        arguments: After ``python``; ``FOLDER`` stands for data that is not part of the project.
        lines: Figures -> rows of the table.
        needs_gpu: Whether it is left out where torch sees no GPU.
    """

    name: str
    what: str
    arguments: tuple[str, ...]
    lines: Callable[[Figures], list[Line]]
    needs_gpu: bool = False

    @property
    def file(self) -> Path:
        """Where its figures are kept."""
        return MEASURED / f"{self.name}.json"

    @property
    def command(self) -> str:
        """As a person types it."""
        return " ".join(("python", *self.arguments))

    def figures(self) -> Figures | None:
        """The figures, or None where it was not run yet."""
        if not self.file.exists():
            return None
        figures: Figures = json.loads(self.file.read_text(encoding="utf-8"))
        return figures


def spread(found: Mapping[str, float], unit: str = "x") -> str:
    """Median, with the least and the most where they differ."""
    median, least, most = (_number(found[key]) for key in ("median", "min", "max"))
    return f"{median}{unit}" + ("" if least == most else f" ({least} to {most})")


def _number(value: float) -> str:
    """Three digits that matter, never in powers of ten."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:g} %"


def _overhead(figures: Figures) -> list[Line]:
    some = "" if figures["encoders"] == "all" else f" ({len(figures['encoders'])} encoders)"
    what = f"suite {figures['suite']}{some} through Dagster against the same stages called directly"
    shares = ", ".join(f"`{name}` {share:.0%}" for name, share in figures["direct_shares"].items() if share >= SHOWN)
    beside = f"{spread(figures['dagster_seconds'], ' s')} through Dagster; of the time without: {shares}"
    return [Line(what, spread(figures["ratio"]), beside)]


def _probes(figures: Figures) -> list[Line]:
    outputs = f"{figures['outputs']} {'labels' if figures['kind'] == 'multilabel' else 'classes (softmax)'}"
    shape = f"probes, {figures['rows']:,} x {figures['dim']:,}, {outputs}, {figures['penalties']} penalties"
    lines = [_probe_set(shape, found, figures) for found in figures["sets"]]
    if len(lines) > 1:
        cell = f"from one seed to the {figures['seeds']} of a cell (extrapolated); all rows are one problem for all"
        lines.append(Line(f"{shape}: a cell", f"{_number(figures['ratio_whole'])}x", cell))
    return lines


def _probe_set(shape: str, found: Figures, figures: Figures) -> Line:
    what = f"{shape}, {_percent(found['fraction'])} of the rows"
    seconds = [spread(found[f"{side}_seconds"], " s") for side in ("batched", "sklearn")]
    excess = [f"{found[f'{side}_worst_excess']:.0e}" for side in ("batched", "sklearn")]
    beside = [
        f"{found['fits']} fits, {seconds[0]} against {seconds[1]}",
        f"furthest above the optimum {excess[0]} against {excess[1]}",
        f"extra memory {found['batched_extra_memory_share']:.2g} times the features' own",
        *(f"{spread(found[f'ratio_to_{key}'])} to {name}" for key, name in PEERS.items() if f"ratio_to_{key}" in found),
    ]
    against = f"against scikit-learn (tol {figures['sklearn_tolerance']:g})"
    return Line(f"{what}, {against}", spread(found["ratio"]), "; ".join(beside))


def _growth(figures: Figures) -> list[Line]:
    exponents = ", ".join(f"{curve['quantity']} {curve['exponent']:.2f}" for curve in figures["curves"])
    middle = ", ".join(f"{value:,} {name}" for name, value in figures["middle"].items())
    return [Line(f"growth of the probe solver around {middle}", "", f"exponents: {exponents}")]


def _images(figures: Figures) -> list[Line]:
    return [
        Line(
            f"{found['conditions']} degradations of a {found['side']} px image from one decode against a pipeline each",
            spread(found["ratio"]),
            f"{_number(found['shared_variants_per_second'])} degraded images/s on one thread; pixels on average "
            f"{found['grey_levels_apart']:.0e} grey levels apart",
        )
        for found in figures["sets"]
    ]


def _image_stream(figures: Figures) -> list[Line]:
    what = f"{figures['images']:,} images of {figures['side']} px through {figures['conditions']} conditions"
    memory = f"most memory {figures['late_bytes'] / 1e6:.0f} MB, {100 * figures['growth']:+.1f} % after the first tenth"
    threads, apart, share = (
        spread(figures[name], "")
        for name in ("scaling_per_core", "scaling_per_core_of_processes", "share_of_processes")
    )
    scaling = f"scaling per core {threads} with {figures['workers']} threads and {apart} with as many processes"
    return [Line(what, "", memory), Line(f"{what}: rate of threads over that of as many processes", share, scaling)]


def _extraction(figures: Figures) -> list[Line]:
    return [line for found in figures["sets"] for line in _extracted(found, figures)]


def _extracted(found: Figures, figures: Figures) -> list[Line]:
    what = f"{found['encoder']} on {figures['device']}, batch {figures['batch_size']}"
    batches = ", ".join(f"{size}: {_number(rate)}" for size, rate in found["per_second_by_batch"].items())
    cosine = f"smallest cosine {found['bfloat16_smallest_cosine']:.5f}"
    close = f"bfloat16 at {_number(found['bfloat16_speedup'])} of its speed, {cosine}"
    prepared, from_jpeg = (spread(found[f"{side}_of_bare"], "") for side in ("prepared", "from_jpeg"))
    return [
        Line(f"{what}: prepared images to features, share of the bare forward rate", prepared,
             f"{spread(found['prepared_per_second'], ' images/s')}; {close}"),
        Line(f"{what}: JPEG files to features, share of the bare forward rate", from_jpeg,
             f"images/s of one thread by batch: {batches}"),
    ]  # fmt: skip


def _bootstrap(figures: Figures) -> list[Line]:
    cell = f"{_number(figures['minutes_per_cell'])} min a cell of {figures['labels']} labels with all four axes"
    return [
        Line(
            f"{figures['replicates']:,} paired resamples of AUROC, {figures['rows']:,} cases, against roc_auc_score",
            spread(figures["ratio"]),
            f"largest difference {figures['largest_difference']:.0e}; {cell} (extrapolated)",
        )
    ]


def _tables(figures: Figures) -> list[Line]:
    return [
        Line(
            f"tables of {figures['images']:,} images to {figures['subsets']} nested label subsets, on one core",
            "",
            f"{spread(figures['seconds'], ' s')}, peak {figures['peak_bytes'] / 1e6:.0f} MB",
        )
    ]


def _end_to_end(figures: Figures) -> list[Line]:
    what = f"{figures['encoder']} on {figures['dataset']} under {figures['protocol']}"
    parts = {"images_to_features": "images to features", "features_to_metrics": "features to metrics"}
    apart, optimum = figures["largest_auroc_difference"], figures["largest_auroc_difference_at_the_optimum"]
    beside = (
        f"largest difference of AUROC over {figures['runs']} runs {apart:.1g}, which is scikit-learn's stopping "
        f"tolerance: brought to the optimum, {optimum:.1g}"
    )
    return [
        Line(f"{what}, against a plain timm and scikit-learn script", spread(figures["ratio"]), beside),
        *(Line(f"{what}: {name}", spread(figures[f"ratio_{part}"]), "") for part, name in parts.items()),
    ]


FRACTIONS = ("--fractions", "0.01", "0.05", "0.1", "0.25", "1", "--repetitions", "1")
BENCHMARKS = (
    Benchmark("end-to-end", "one encoder, from image files to metrics, against a plain timm and scikit-learn script",
              ("benchmarks/end_to_end.py",), _end_to_end),
    Benchmark("overhead", "the demonstration through Dagster against the same stages called directly",
              ("benchmarks/overhead.py",), _overhead),
    Benchmark("probes-chexpert", "probes of the shape of CheXpert against scikit-learn, every fit",
              ("benchmarks/probes.py", "--rows", "115000", "--dim", "768", "--labels", "14", "--missing", *FRACTIONS),
              _probes),
    Benchmark("probes-isic", "probes of the shape of ISIC 2019 against scikit-learn, every fit",
              ("benchmarks/probes.py", "--rows", "15000", "--dim", "1024", "--classes", "8", *FRACTIONS), _probes),
    Benchmark("probes-exact", "a softmax against scikit-learn brought as near to the optimum as it comes",
              ("benchmarks/probes.py", "--rows", "3750", "--dim", "1024", "--classes", "8",
               "--sklearn-tolerance", "1e-8", "--repetitions", "1"), _probes),
    Benchmark("probes-peers", "probes against scikit-learn and torch.optim.LBFGS",
              ("benchmarks/probes.py", "--missing", "--torch-lbfgs", "--repetitions", "1"), _probes),
    Benchmark("probe-growth", "growth of the probe solver with rows, features, labels, penalties and seeds",
              ("benchmarks/probe_growth.py", "--plot", f"docs/{GROWTH_PLOT}"), _growth),
    Benchmark("images", "all degradations from one decode against a plain pipeline per condition",
              ("benchmarks/images.py",), _images),
    Benchmark("image-stream", "a long stream of images through every condition: memory, and cores that add up",
              ("benchmarks/image_stream.py",), _image_stream),
    Benchmark("extraction", "images to features against the bare forward pass of the network",
              ("benchmarks/extraction.py",), _extraction),
    Benchmark("extraction-gpu", "images to features against the bare forward pass of the network, on a GPU",
              ("benchmarks/extraction.py", "--device", "cuda", "--untrained", "--encoders", "resnet50", "vit-b16",
               "--images", "4096"), _extraction, needs_gpu=True),
    Benchmark("probes-gpu", "probes on a GPU against the CPU, scikit-learn and torch.optim.LBFGS",
              ("benchmarks/probes.py", "--rows", "20000", "--dim", "768", "--labels", "14", "--missing", "--gpu",
               "--torch-lbfgs", "--repetitions", "1"), _probes, needs_gpu=True),
    Benchmark("bootstrap", "bootstrap of AUROC by weighted ranks against roc_auc_score in a loop",
              ("benchmarks/bootstrap.py",), _bootstrap),
    Benchmark("tables", "ISIC 2019's tables to nested label subsets, on one core",
              ("benchmarks/tables.py", FOLDER), _tables),
)  # fmt: skip


def ratios() -> str:
    """What was measured, and by which command."""
    rows = [["what", "ratio: median (least to most)", "beside it", "command"]]
    for benchmark in BENCHMARKS:
        figures = benchmark.figures()
        if figures is None:
            rows.append([benchmark.what, MISSING, "", f"`{benchmark.command}`"])
            continue
        for position, line in enumerate(benchmark.lines(figures)):
            rows.append([*line, f"`{figures['command']}`" if position == 0 else "the same"])
    return markdown(rows)


def machines() -> str:
    """Where and with what each benchmark was run."""
    rows = []
    for benchmark in BENCHMARKS:
        figures = benchmark.figures()
        if figures is not None:
            libraries = {"Python": figures["python"], **figures["versions"]}
            versions = ", ".join(f"{name} {version}" for name, version in libraries.items())
            rows.append([benchmark.name, figures["measured"], _machine(figures), versions])
    if not rows:
        return "Nothing is measured yet: `make benchmarks`, or one command of the table."
    return markdown([["benchmark", "date", "machine", "versions"], *rows])


def growth() -> str:
    """The plot of the probe solver's growth."""
    if not (DOCS / GROWTH_PLOT).exists():
        return ""
    return f"![Seconds of the probe solver against rows, features, labels, penalties and seeds]({GROWTH_PLOT})\n"


def _machine(figures: Figures) -> str:
    threads = f", {figures['threads']} thread(s)" if "threads" in figures else ""
    load = f"load {figures['load_1min']:.1f} at the end"
    return f"{figures['processor']}, {figures['cpus']} core(s), {figures['memory_gb']:.0f} GB{threads}, {load}"


def markdown(rows: list[list[str]]) -> str:
    """A Markdown table whose first row is its header."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


BLOCKS = {function.__name__: function for function in (ratios, growth, machines)}
