"""Linear probes of one cell and seed: the batched solver against scikit-learn, one fit at a time.

Both sides fit every label (or the softmax of ``--classes``) at every penalty of the protocol, on each of
``--fractions`` of the rows, every fit of it. They alternate within a run: batched, scikit-learn, batched.
scikit-learn's side is what one would write first: float32, standardised once, the observed rows of each label copied
out, ``LogisticRegression(solver="lbfgs", tol=1e-4)``, on one thread or all of them, whichever is faster for one fit.

Beside the times stand how far each side's objectives lie above the lowest that any side found, in float64, the fits
that a side itself says did not converge, and the memory that the batched solver takes beyond its input, as a share of
the features. ``--torch-lbfgs`` adds ``torch.optim.LBFGS`` on the sum of all objectives, with one line search for all.
``--torchgeo-bench`` adds the solver of torchgeo-bench, from a file of its wheel (see below).
``--gpu`` adds the batched solver, and torch's if it is asked for, on the GPU.
``--sklearn-tolerance`` brings scikit-learn closer to the optimum, for a comparison at like quality.

Of several fractions, the ratio over a cell of all seeds is told too, extrapolated from the one that is measured.

At the size of CheXpert and of ISIC 2019:

    python benchmarks/probes.py --rows 115000 --dim 768 --labels 14 --missing --repetitions 1
    python benchmarks/probes.py --rows 15000 --dim 1024 --classes 8 --fractions 0.01 0.05 0.1 0.25 1 --repetitions 1

With torchgeo-bench, whose one file needs nothing that is not here:

    pip download --no-deps --only-binary=:all: --python-version 3.12 -d peer torchgeo-bench==0.4.0
    unzip -d peer peer/torchgeo_bench-0.4.0-py3-none-any.whl
    python benchmarks/probes.py --torchgeo-bench peer/torchgeo_bench/linear.py
"""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from probe_problems import Problem, multiclass, multilabel, objectives
from probe_sides import Side, batched, one_at_a_time, torch_lbfgs, torchgeo_bench
from reporting import PeakMemory, options_parser, ratios, report, spread

from crs_assets.science.probes import standardisation
from crs_assets.science.protocol import ProbeProtocol, load_protocol

BATCHED, SKLEARN = "batched", "sklearn"


def scale_of(problem: Problem, settings: ProbeProtocol) -> tuple[np.ndarray, np.ndarray]:
    rows = np.arange(len(problem.x))
    return standardisation(problem.x, rows, std_floor=settings.std_floor, std_zero=settings.std_zero)


def best_threads(problem: Problem, settings: ProbeProtocol, tolerance: float) -> int:
    """Threads with which scikit-learn makes one fit of the middle penalty faster: 1, or all there are."""
    first = Problem(problem.x, problem.y[:, :1] if problem.kind == "multilabel" else problem.y)
    middle = settings.lambdas[len(settings.lambdas) // 2 : len(settings.lambdas) // 2 + 1]
    seconds = {}
    for threads in dict.fromkeys((1, torch.get_num_threads())):
        began = time.perf_counter()
        one_at_a_time(middle, threads, tolerance)(first, *scale_of(problem, settings))
        seconds[threads] = time.perf_counter() - began
    return min(seconds, key=seconds.__getitem__)


def compare(
    problem: Problem, sides: Mapping[str, Side], settings: ProbeProtocol, repetitions: int
) -> dict[str, object]:
    """Time the sides in turn on one set of rows, the batched one before and after the others."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    around: list[float] = []
    mean, scale = scale_of(problem, settings)
    with PeakMemory() as memory:
        sides[BATCHED](problem, mean, scale)
    found = {}
    for _ in range(repetitions):
        for name in (*sides, BATCHED):
            began = time.perf_counter()
            found[name] = sides[name](problem, *scale_of(problem, settings))
            seconds[name].append(time.perf_counter() - began)
        around.append(float(np.mean(seconds[BATCHED][-2:])))
    lambdas = np.array(settings.lambdas)
    values = {n: objectives(problem, mean, scale, f.weights, f.intercepts, lambdas) for n, f in found.items()}
    least = np.minimum.reduce(list(values.values()))
    return {
        "rows": len(problem.x),
        "fits": int(least.size),
        **{f"{name}_seconds": spread(times) for name, times in seconds.items()},
        "ratio": ratios(seconds[SKLEARN], around),
        **{f"ratio_to_{name}": ratios(seconds[name], around) for name in sides if name not in (BATCHED, SKLEARN)},
        **{f"{name}_worst_excess": float(np.max(value / least - 1)) for name, value in values.items()},
        **{f"{name}_not_converged": int((~fit.converged).sum()) for name, fit in found.items()},
        "batched_extra_memory_share": memory.extra_bytes / problem.x.nbytes,
    }


def whole(rows: Sequence[Mapping[str, object]], seeds: int) -> float:
    """Ratio over a cell: each fraction once per seed, all labels once, because that is one problem for every seed."""
    times = dict.fromkeys((SKLEARN, BATCHED), 0.0)
    for row in rows:
        for name in times:
            times[name] += (1 if row["fraction"] == 1 else seeds) * row[f"{name}_seconds"]["median"]
    return times[SKLEARN] / times[BATCHED]


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--dim", type=int, default=256)
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--labels", type=int, default=6)
    shape.add_argument("--classes", type=int, help="one softmax over so many classes instead of labels")
    parser.add_argument("--missing", action="store_true", help="0 to 80 per cent of each label are not observed")
    parser.add_argument("--fractions", type=float, nargs="+", default=[1.0])
    parser.add_argument("--sklearn-tolerance", type=float, default=1e-4)
    parser.add_argument("--torch-lbfgs", action="store_true")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--torchgeo-bench", type=Path, metavar="LINEAR.PY")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    protocol = load_protocol("crs-v1")
    settings, seeds = protocol.probe, len(protocol.data.seeds)
    problem = (
        multiclass(options.rows, options.dim, options.classes)
        if options.classes
        else multilabel(options.rows, options.dim, options.labels, missing=options.missing)
    )
    tolerance = options.sklearn_tolerance
    threads = best_threads(problem, settings, tolerance)
    sides = {BATCHED: batched(settings), SKLEARN: one_at_a_time(settings.lambdas, threads, tolerance)}
    if options.torch_lbfgs:
        sides["torch_lbfgs"] = torch_lbfgs(settings.lambdas)
    if options.gpu:
        sides["batched_on_gpu"] = batched(settings, "cuda")
        if options.torch_lbfgs:
            sides["torch_lbfgs_on_gpu"] = torch_lbfgs(settings.lambdas, "cuda")
    if options.torchgeo_bench:
        sides["torchgeo_bench"] = torchgeo_bench(options.torchgeo_bench, settings.lambdas)
    sets = [
        {"fraction": fraction, **compare(problem.some(fraction), sides, settings, options.repetitions)}
        for fraction in options.fractions
    ]
    figures = {
        "kind": problem.kind,
        "rows": options.rows,
        "dim": options.dim,
        "outputs": problem.outputs,
        "penalties": len(settings.lambdas),
        "repetitions": options.repetitions,
        "threads": torch.get_num_threads(),
        "sklearn_threads": threads,
        "sklearn_tolerance": tolerance,
        "seeds": seeds,
        "ratio_whole": whole(sets, seeds),
        "sets": sets,
    }
    report(figures, "numpy", "scikit-learn", "scipy", "torch", file=options.json)


if __name__ == "__main__":
    main()
