"""Case bootstrap: weighted ranks against scikit-learn in a loop, and the rate of the full-axis bootstrap.

(i) Macro-AUROC of two encoders under the same resamples of cases, one label, including the drawing of the resamples.
scikit-learn's side is what one would write first: draw the cases, index labels and scores, ``roc_auc_score`` of both.
It runs on ``--reference`` replicates and is multiplied to ``--replicates``: its cost per replicate is constant. Both
sides count the same draws, and the largest difference of their AUROCs stands beside the times.

(ii) All four axes of one cell and seed of multilabel shape (every label fraction and condition of crs-v1, every label
its own problem) under ``--axis-replicates`` resamples of cases on one thread, and what that comes to for the
protocol's replicates, its seeds, and 15 encoders on 3 data sets of that size: cost is linear in each of them. The time
to read and sort the runs is in it.

    python benchmarks/bootstrap.py [--rows 20000] [--labels 14] [--replicates 10000] [--reference 200]
        [--axis-replicates 500] [--repetitions 3] [--json FILE]
"""

import statistics
import time

import numpy as np
from reporting import options_parser, peak_bytes, ratios, report, spread
from sklearn.metrics import roc_auc_score

from crs_assets.science.analyses.replicated_axes import CaseGroups, case_draws, case_metrics, raw_axes
from crs_assets.science.analyses.replicated_metrics import ResampledRun, SeedReplicates, SeedRuns
from crs_assets.science.evaluation import Scored
from crs_assets.science.protocol import load_protocol
from crs_assets.science.seeding import generator
from crs_assets.science.statistics import WeightedAuroc

ENCODERS, DATASETS = 15, 3
PREVALENCE = (0.02, 0.03, 0.05, 0.07, 0.10, 0.12, 0.15, 0.20, 0.25, 0.30, 0.40, 0.50, 0.08, 0.06)
MISSING = 0.1


def synthetic(
    rows: int, labels: int, noise: float, stream: int = 1, missing: float = MISSING
) -> tuple[np.ndarray, np.ndarray]:
    """Labels (rows, labels) float32 with NaN = not observed, the same for every noise, and float32 logits."""
    rng, own = np.random.default_rng(0), np.random.default_rng(stream)
    y = (rng.random((rows, labels)) < np.resize(PREVALENCE, labels)).astype(np.float32)
    logits = (2 * y - 1 + noise * own.standard_normal(y.shape)).astype(np.float32)
    y[rng.random(y.shape) < missing] = np.nan
    return y, logits


def by_ranks(y: np.ndarray, scores: list[np.ndarray], replicates: int) -> np.ndarray:
    """AUROCs (encoders, replicates) from sorted scores and counts."""
    aurocs = [WeightedAuroc(y, score) for score in scores]
    draws = case_draws([CaseGroups("benchmark", len(y), len(y))], replicates, "benchmark")
    return np.concatenate([[auroc.evaluate(weights) for auroc in aurocs] for (weights,) in draws], axis=1)


def by_loop(y: np.ndarray, scores: list[np.ndarray], replicates: int) -> np.ndarray:
    """The same by scikit-learn, one replicate at a time."""
    rng = generator("benchmark", "case_bootstrap", "benchmark")
    found = np.empty((len(scores), replicates))
    for at in range(replicates):
        drawn = rng.integers(0, len(y), len(y))
        found[:, at] = [roc_auc_score(y[drawn], score[drawn]) for score in scores]
    return found


def compare(rows: int, replicates: int, reference: int, repetitions: int) -> dict[str, object]:
    (y, first), (_, second) = (synthetic(rows, 7, noise, stream, missing=0) for noise, stream in ((2.0, 1), (2.5, 2)))
    # The last label, of prevalence 15 %.
    y, scores = y[:, -1], [first[:, -1], second[:, -1]]
    by_ranks(y, scores, reference)
    seconds: dict[str, list[float]] = {"sklearn": [], "ranks": []}
    for _ in range(repetitions):
        start = time.perf_counter()
        expected = by_loop(y, scores, reference)
        seconds["sklearn"].append((time.perf_counter() - start) * replicates / reference)
        start = time.perf_counter()
        found = by_ranks(y, scores, replicates)
        seconds["ranks"].append(time.perf_counter() - start)
    return {
        "rows": len(y),
        "replicates": replicates,
        "sklearn_replicates_run": reference,
        **{f"{name}_seconds": spread(values) for name, values in seconds.items()},
        "ratio": ratios(seconds["sklearn"], seconds["ranks"]),
        "largest_difference": float(np.abs(found[:, :reference] - expected).max()),
    }


def full_axes(rows: int, labels: int, replicates: int, repetitions: int) -> dict[str, object]:
    protocol = load_protocol("crs-v1")
    cases, groups = [CaseGroups("benchmark", rows, rows)], np.arange(rows)

    def run(noise: float, stream: int) -> ResampledRun:
        y, logits = synthetic(rows, labels, noise, stream)
        return ResampledRun(Scored(y, logits, range(labels)), "multilabel", groups)

    curve = [run(2 + 1 / (at + 1), at) for at, _ in enumerate(protocol.data.fractions)]
    degraded = [run(2.5, 100 + at) for at, _ in enumerate(protocol.degradations())]
    sorting, resampling = [], []
    for _ in range(repetitions):
        start = time.perf_counter()
        runs = SeedReplicates(SeedRuns(tuple(curve), tuple(degraded)), protocol.metrics.ece_bins, [rows])
        sorting.append(time.perf_counter() - start)
        start = time.perf_counter()
        raw_axes(case_metrics(runs, case_draws(cases, replicates, "s")), protocol, distinct_fractions=True)
        resampling.append(time.perf_counter() - start)
    wanted, seeds = protocol.analyses.uncertainty.case_replicates, len(protocol.data.seeds)
    cell = seeds * (statistics.median(sorting) + statistics.median(resampling) * wanted / replicates)
    return {
        "labels": labels,
        "runs_per_seed": len(curve) + len(degraded),
        "axis_replicates_run": replicates,
        "sorting_seconds": spread(sorting),
        "resampling_seconds": spread(resampling),
        "nanoseconds_per_row_run_label_replicate": statistics.median(resampling)
        / (rows * labels * (len(curve) + len(degraded)) * replicates)
        * 1e9,
        "case_replicates": wanted,
        "minutes_per_cell": cell / 60,
        "hours_for_15_encoders_on_3_data_sets": cell * ENCODERS * DATASETS / 3600,
        "peak_memory_mb": peak_bytes() / 1e6,
    }


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--labels", type=int, default=14)
    parser.add_argument("--replicates", type=int, default=10_000)
    parser.add_argument("--reference", type=int, default=200, help="replicates that scikit-learn's side runs")
    parser.add_argument("--axis-replicates", type=int, default=500)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    figures = {
        "threads": 1,
        "repetitions": options.repetitions,
        **compare(options.rows, options.replicates, options.reference, options.repetitions),
        **full_axes(options.rows, options.labels, options.axis_replicates, options.repetitions),
    }
    report(figures, "numpy", "scikit-learn", "scipy", file=options.json)


if __name__ == "__main__":
    main()
