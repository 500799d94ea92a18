"""One encoder on one data set, from image files to metrics: the stages against a plain timm and scikit-learn script.

Both sides see the same procedural phantoms, weights, splits, degraded pixels and penalties (``plain_script``). They
alternate within a run. The stages also index, hash, check for leaks, write every artifact with its checksums and
compute calibration errors with their null bands; the script keeps everything in memory and gets its splits for nothing.
Beside the times stands the largest difference of macro-AUROC over all seeds, label fractions and conditions. What there
is of it, scikit-learn's stopping tolerance and float32 leave open: a second, untimed round of its fits on the stages'
features, in float64 and to a tolerance of 1e-8, says how far the sides are apart at the optimum.

Of the peers, CLIP_benchmark 1.6.2 refuses to probe without CUDA ("too slow"), and torchgeo-bench reads remote-sensing
sets only; the solver of the latter can be compared in ``probes.py``.

    python benchmarks/end_to_end.py [--encoder efficientnet-lite0-112] [--dataset demo-fundus] [--protocol demo-v1]
        [--repetitions 3] [--json FILE]
"""

import tempfile
from pathlib import Path

import dagster as dg
import numpy as np
import polars as pl
import torch
from plain_script import Task, encode, evaluate
from reporting import Stopwatch, options_parser, ratios, report, spread

from crs_assets.resources.bench import Bench, default_resources
from crs_assets.resources.data_roots import write_phantoms
from crs_assets.resources.home import Home
from crs_assets.science.encoders.timm_encoder import load_timm_encoder
from crs_assets.science.labels import evaluation_labels
from crs_assets.science.protocol import CLEAN
from crs_assets.stages.data import DatasetIndex, Splits, read_classes, read_index, read_splits
from crs_assets.stages.encoders import (
    DegradedFeatures,
    EncoderWeights,
    Features,
    read_degraded,
    read_features,
    usable_rows,
)
from crs_assets.stages.probes import ProbePredictions, RunMetrics, read_runs

SUITE = "one-cell"
ENCODING = (DatasetIndex(), Splits(), EncoderWeights(), Features(), DegradedFeatures())
PROBING = (ProbePredictions(), RunMetrics())
OPTIMUM_TOLERANCE = 1e-8
PARTS = ("images_to_features", "features_to_metrics")


def write_suite(home: Path, encoder: str, dataset: str, protocol: str, data: Path) -> None:
    """A suite of one cell whose images lie in a folder that outlives it."""
    folder = home / "catalog" / "suites"
    folder.mkdir(parents=True)
    (folder / f"{SUITE}.toml").write_text(
        f'id = "{SUITE}"\ntitle = "One cell"\nprotocol = "{protocol}"\ndatasets = ["{dataset}"]\n'
        f'encoders = ["{encoder}"]\npanel_members = ["{encoder}"]\nshuffled_labels_encoder = "{encoder}"\n',
        encoding="utf-8",
    )
    (home / "config.toml").write_text(f'[data_roots]\n{dataset} = "{data}"\n', encoding="utf-8")


def open_bench(home: Path) -> Bench:
    with dg.build_resources({"bench": default_resources(SUITE, Home(home))["bench"]}) as resolved:
        bench: Bench = resolved.bench.resolve()
    return bench


def by_stages(bench: Bench) -> dict[str, float]:
    """Seconds of each part."""
    seconds = {}
    for part, stages in zip(PARTS, (ENCODING, PROBING), strict=True):
        with Stopwatch() as watch:
            for stage in stages:
                for parts in stage.partitions(bench):
                    stage.ensure(bench, *parts)
        seconds[part] = watch.seconds
    return seconds


def by_script(bench: Bench, task: Task) -> tuple[dict[str, float], dict[tuple[int, float, str], dict]]:
    """Seconds of each part, and the metrics."""
    (encoder,) = bench.suite.encoders.values()
    protocol = bench.suite.protocol
    # The published network as timm builds it; the stages fold its batch norms.
    model = load_timm_encoder(encoder, bench.weights.mirror, "cpu", fold=False).model
    with Stopwatch() as encoding:
        features = encode(task, model, encoder, protocol, bench.compute.batch_size)
    with Stopwatch() as probing:
        metrics = evaluate(task, features, protocol)
    return dict(zip(PARTS, (encoding.seconds, probing.seconds), strict=True)), metrics


def read_task(bench: Bench) -> Task:
    """What the stages found on disk and decided about splits."""
    (dataset,) = bench.suite.datasets
    index, spec = usable_rows(read_index(bench, dataset)), bench.suite.datasets[dataset]
    if spec.task == "multilabel":
        raise SystemExit(f"{dataset}: the script fits one softmax; choose a multiclass or ordinal data set.")
    root, seeds = bench.roots.path(dataset), bench.suite.protocol.data.seeds
    splits = {seed: read_splits(bench, dataset, seed) for seed in seeds}
    eligible = read_classes(bench, dataset, seeds[0]).filter("eligible")["class"]
    return Task(
        dataset=dataset,
        ids=index["image_id"].to_list(),
        paths=[root / path for path in index["path"]],
        labels=evaluation_labels(index, spec),
        roles={seed: frame["role"].to_numpy() for seed, frame in splits.items()},
        enters_at={seed: frame["enters_at"].cast(pl.Float64).to_numpy() for seed, frame in splits.items()},
        scored=[spec.classes.index(name) for name in eligible],
    )


def at_the_optimum(bench: Bench, task: Task) -> dict[tuple[int, float, str], dict]:
    """The script's metrics of the stages' features, with nothing left open by precision or tolerance."""
    (encoder,), (dataset,) = bench.suite.encoders, bench.suite.datasets
    degraded = {name: features for name, (_, features) in read_degraded(bench, encoder, dataset).items()}
    features = {CLEAN: read_features(bench, encoder, dataset)[1], **degraded}
    exact = {name: values.astype(np.float64) for name, values in features.items()}
    return evaluate(task, exact, bench.suite.protocol, OPTIMUM_TOLERANCE)


def differences(bench: Bench, metrics: dict[tuple[int, float, str], dict], name: str) -> np.ndarray:
    """Absolute differences of a metric over all runs."""
    (encoder,) = bench.suite.encoders
    runs = pl.concat(read_runs(bench, encoder, task) for task in bench.suite.tasks)
    keys = runs.select("seed", "fraction", "condition").rows()
    return np.abs(runs[name].to_numpy() - [metrics[key][name] for key in keys])


def main() -> None:
    parser = options_parser(__doc__)
    parser.add_argument("--encoder", default="efficientnet-lite0-112", help="a CNN of the catalogue with weights here")
    parser.add_argument("--dataset", default="demo-fundus", help="demo-fundus or demo-skin")
    parser.add_argument("--protocol", default="demo-v1")
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    seconds: dict[str, dict[str, list[float]]] = {side: {part: [] for part in PARTS} for side in ("stages", "script")}
    with tempfile.TemporaryDirectory() as folder:
        for repetition in range(options.repetitions):
            home = Path(folder) / f"home-{repetition}"
            data = Path(folder) / "data" / options.dataset
            write_suite(home, options.encoder, options.dataset, options.protocol, data)
            bench = open_bench(home)
            write_phantoms(bench.roots, bench.suite.image_sets.values(), 1)
            of_stages = by_stages(bench)
            task = read_task(bench)
            of_script, metrics = by_script(bench, task)
            for part in PARTS:
                seconds["stages"][part].append(of_stages[part])
                seconds["script"][part].append(of_script[part])
        auroc = differences(bench, metrics, "auroc")
        optimum = differences(bench, at_the_optimum(bench, task), "auroc")
    total = {side: np.sum(list(parts.values()), axis=0).tolist() for side, parts in seconds.items()}
    figures = {
        "encoder": options.encoder,
        "dataset": options.dataset,
        "protocol": options.protocol,
        "threads": torch.get_num_threads(),
        "repetitions": options.repetitions,
        "runs": len(auroc),
        **{f"{side}_{part}_seconds": spread(seconds[side][part]) for side in seconds for part in PARTS},
        **{f"ratio_{part}": ratios(seconds["script"][part], seconds["stages"][part]) for part in PARTS},
        "ratio": ratios(total["script"], total["stages"]),
        "largest_auroc_difference": float(auroc.max()),
        "largest_auroc_difference_at_the_optimum": float(optimum.max()),
    }
    report(figures, "numpy", "scikit-learn", "timm", "torch", "torchvision", file=options.json)


if __name__ == "__main__":
    main()
