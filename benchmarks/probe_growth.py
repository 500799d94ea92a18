"""How the time of the batched probe solver grows with rows, features, labels, penalties and sets of rows (seeds).

One quantity is doubled at a time, the others stay at the middle. Beside each curve stands its exponent: the slope in
the double-logarithmic plot. Problems are CheXpert-shaped with missing labels, see ``probe_problems``.

    python benchmarks/probe_growth.py [--rows 2000] [--dim 256] [--labels 4] [--repetitions 3] [--plot FILE.png]
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from probe_problems import multilabel
from reporting import options_parser, report, spread

from crs_assets.science.probes import fit_linear_path, standardisation
from crs_assets.science.protocol import ProbeProtocol, load_protocol

FACTORS = (0.25, 0.5, 1, 2, 4)
PLOT = Path("docs/images/probe-growth.png")


@dataclass(frozen=True)
class Size:
    """What the time depends on."""

    rows: int
    features: int
    labels: int
    penalties: int
    seeds: int

    def times(self, quantity: str, factor: float) -> "Size":
        """The same with one quantity multiplied."""
        return replace(self, **{quantity: max(1, round(getattr(self, quantity) * factor))})


def solver(size: Size, settings: ProbeProtocol) -> Callable[[], object]:
    """A cell of that size, fitted when called; each seed has four fifths of the rows."""
    problem = multilabel(size.rows, size.features, size.labels, missing=True)
    rows = np.arange(size.rows)
    mean, scale = standardisation(problem.x, rows, std_floor=settings.std_floor, std_zero=settings.std_zero)
    draws = [np.random.default_rng(seed).permutation(size.rows)[: size.rows * 4 // 5] for seed in range(size.seeds)]

    def fit() -> object:
        return fit_linear_path(
            problem.x,
            problem.y,
            [np.sort(drawn) for drawn in draws],
            np.geomspace(settings.lambda_min, settings.lambda_max, size.penalties),
            kind="multilabel",
            mean=mean,
            scale=scale,
            gap=settings.gap,
            max_iterations=settings.max_iterations,
        )

    return fit


def curve(middle: Size, quantity: str, settings: ProbeProtocol, repetitions: int) -> dict[str, object]:
    """Seconds at each factor, in an order that turns round with every repetition, so that a drift shows as spread."""
    sizes = list(dict.fromkeys(middle.times(quantity, factor) for factor in FACTORS))
    fits = [solver(size, settings) for size in sizes]
    fits[0]()
    seconds: list[list[float]] = [[] for _ in sizes]
    for repetition in range(repetitions):
        for position in list(range(len(sizes)))[:: 1 if repetition % 2 == 0 else -1]:
            began = time.perf_counter()
            fits[position]()
            seconds[position].append(time.perf_counter() - began)
    values = [getattr(size, quantity) for size in sizes]
    spreads = [spread(times) for times in seconds]
    slope = np.polyfit(np.log(values), np.log([found["median"] for found in spreads]), 1)[0]
    return {"quantity": quantity, "values": values, "seconds": spreads, "exponent": float(slope)}


def plot(curves: Sequence[dict], middle: Size, file: Path) -> None:
    """One panel per quantity on common double-logarithmic axes; a dotted line grows in proportion."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(curves), figsize=(13, 3), sharey=True, layout="constrained")
    for panel, found in zip(panels, curves, strict=True):
        values = np.array(found["values"])
        median, least, most = (np.array([s[key] for s in found["seconds"]]) for key in ("median", "min", "max"))
        panel.errorbar(values, median, yerr=[median - least, most - median], marker="o", capsize=3, color="#1f5f8b")
        at = len(values) // 2
        panel.plot(values, median[at] * values / values[at], linestyle=":", color="grey")
        panel.set(xscale="log", yscale="log", title=f"{found['quantity']}: exponent {found['exponent']:.2f}")
        panel.set_xticks(values, [f"{value:,}" for value in values], minor=False)
        panel.minorticks_off()
    panels[0].set_ylabel("seconds")
    shape = ", ".join(f"{value:,} {name}" for name, value in asdict(middle).items())
    figure.suptitle(f"Batched probe solver around {shape}; dotted: in proportion", fontsize=10)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--labels", type=int, default=4)
    parser.add_argument("--penalties", type=int, default=13)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--plot", type=Path, help=f"also draw the curves, for example to {PLOT}")
    options = parser.parse_args()
    settings = load_protocol("crs-v1").probe
    middle = Size(options.rows, options.dim, options.labels, options.penalties, options.seeds)
    curves = [curve(middle, quantity, settings, options.repetitions) for quantity in asdict(middle)]
    if options.plot:
        plot(curves, middle, options.plot)
    figures = {"middle": asdict(middle), "repetitions": options.repetitions, "curves": curves}
    report(figures, "numpy", "scipy", "torch", file=options.json)


if __name__ == "__main__":
    main()
