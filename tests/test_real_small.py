"""The example of small real image sets: read, split, and taken through the stages with cheap encoders."""

import csv
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import roc_auc_score

from crs_assets.resources.artifact_store import ArtifactStore
from crs_assets.resources.bench import Bench
from crs_assets.resources.compute import Compute
from crs_assets.resources.data_roots import Roots
from crs_assets.resources.home import Home
from crs_assets.resources.weights import Weights
from crs_assets.science.datasets import build_index, check_expected, read_table
from crs_assets.science.protocol import CLEAN, TRANSFER
from crs_assets.science.splits import check_no_leak, eligible_classes, split_seed
from crs_assets.science.suite import load_suite
from crs_assets.science.transfer import derived_labels
from crs_assets.stages.data import DatasetIndex, Splits
from crs_assets.stages.encoders import DegradedFeatures, EncoderWeights, Features
from crs_assets.stages.probes import CLASS_RUNS_FILE, ProbePredictions, RunMetrics, read_runs

EXAMPLE = Path(__file__).parents[1] / "examples" / "real-small"
FOLDERS = {
    "small-ham10000": "derm_ham10000",
    "small-isic2020": "derm_isic2020",
    "small-rahim": "fundus_rahim",
    "small-nih": "chest_nih1000",
    "small-kermany": "chest_kermany",
}
ENCODERS = ("pixels-16", "efficientnet-lite0-112")
# Every n-th group of a set: enough positives of what is transferred, a minute of encoding.
EVERY = {"small-ham10000": 4, "small-isic2020": 2, "small-nih": 2, "small-kermany": 8}
STAGES = (DatasetIndex(), Splits(), EncoderWeights(), Features(), DegradedFeatures(), ProbePredictions(), RunMetrics())
SEED = 0


@pytest.fixture(scope="module")
def suite():
    return load_suite(EXAMPLE / "suites" / "real-small.toml", EXAMPLE)


def test_the_example_is_complete(suite):
    assert set(suite.image_sets) == set(FOLDERS)
    assert set(ENCODERS) <= set(suite.encoders)
    text = (EXAMPLE / "config.toml").read_text() + (EXAMPLE / "README.md").read_text()
    assert all(name in text for name in FOLDERS)
    assert not [path for path in EXAMPLE.rglob("*") if path.suffix not in ("", ".toml", ".md")]


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLDERS)
def test_every_set_is_read_as_its_readme_counts_it(suite, shared_data, name):
    spec, root = suite.image_sets[name], shared_data / FOLDERS[name]
    raw = read_table(root, spec)
    index = build_index(raw, root, spec, workers=2)
    assert check_expected(index, spec) == []
    assert {item.reason: item.rows for item in raw.exclusions} == (
        {"without_label": 7} if name == "small-rahim" else {}
    )
    if spec.role == "target":
        return
    splits = [split_seed(index.frame, spec, seed, suite.protocol) for seed in suite.protocol.data.seeds]
    for split in splits:
        check_no_leak(index.frame, split)
        assert set(split.frame["role"]) == {"train", "validation", "calibration", "test"}
    assert eligible_classes(index.frame, spec, splits, suite.protocol)["eligible"].sum() >= 3
    if spec.derived:
        assert eligible_classes(index.frame, derived_labels(spec), splits, suite.protocol)["eligible"].all()


@pytest.mark.slow
def test_one_eye_under_two_names(suite, shared_data):
    """Patient299 and Patient300 are the same files under two grades: four images out, one group less than named."""
    spec, root = suite.image_sets["small-rahim"], shared_data / "fundus_rahim"
    frame = build_index(read_table(root, spec), root, spec, workers=2).frame
    assert sorted(frame.filter(pl.col("quarantine") == "conflicting_duplicate")["image_id"]) == [
        f"small-rahim/Patient{number}_{eye}" for number in (299, 300) for eye in "LR"
    ]


def reduced_copy(source: Path, folder: Path, group: str, every: int) -> None:
    """The rows of every n-th group, in the order of the groups' names."""
    with (source / "labels.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    kept = set(sorted({row[group] for row in rows})[::every])
    rows = [row for row in rows if row[group] in kept]
    (folder / "images").mkdir(parents=True)
    for row in rows:
        shutil.copyfile(source / row["image"], folder / row["image"])
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="module")
def bench(suite, shared_data, tmp_path_factory):
    home = tmp_path_factory.mktemp("real-small")
    for name, every in EVERY.items():
        group = "group_id" if name == "small-ham10000" else "patient_id"
        reduced_copy(shared_data / FOLDERS[name], home / "data" / name, group, every)
    return Bench(
        suite=suite,
        home=Home(home),
        store=ArtifactStore(home / "artifacts", None),
        compute=Compute(device="cpu", batch_size=32, chunk_batches=8, workers=2, threads=2),
        roots=Roots(home / "data", {}),
        weights=Weights(home / "weights", home / "hashes.json"),
    )


@pytest.fixture(scope="module")
def made(bench):
    """Every stage up to the run metrics, for both transfers, one seed, cheap encoders."""

    def wanted(parts):
        names = {part for part in parts if part in FOLDERS}
        tasks = {part for part in parts if part.partition(".s")[0] in FOLDERS and ".s" in part}
        encoders = {part for part in parts if part in bench.suite.encoders}
        return names <= set(EVERY) and encoders <= set(ENCODERS) and all(
            task.endswith(f".s{SEED}") and task.partition(".s")[0] in EVERY for task in tasks
        )  # fmt: skip

    for stage in STAGES:
        for parts in stage.partitions(bench):
            if wanted(parts):
                stage.ensure(bench, *parts)
    return bench


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize(
    ("dataset", "target", "label", "column"),
    [
        ("small-ham10000", "small-isic2020", "MEL", "melanoma"),
        ("small-nih", "small-kermany", "finding", "finding"),
    ],
)
def test_transfer_by_label_map(made, encoder, dataset, target, label, column):
    task = f"{dataset}.s{SEED}"
    runs = read_runs(made, encoder, task).filter(pl.col("fraction") == 1.0)
    transfer = runs.filter(pl.col("condition") == TRANSFER).row(0, named=True)
    clean = runs.filter(pl.col("condition") == CLEAN).row(0, named=True)
    assert transfer["classes_scored"] == 1
    assert 0 < transfer["ece"] < 1
    assert 0 <= transfer["auroc_source"] <= 1
    spec = made.suite.datasets[dataset]
    files = made.store.open(made.key(RunMetrics.name, encoder, task)).file(CLASS_RUNS_FILE)
    classes = pl.read_parquet(files).filter(pl.col("fraction") == 1.0)
    at_target = classes.filter(pl.col("condition") == TRANSFER)
    assert at_target.filter("scored")["class"].to_list() == [label]
    # The target's labels that are absent are listed, without an AUROC.
    assert at_target["class"].to_list() == [*spec.classes, *spec.derived]
    assert at_target.filter(~pl.col("scored"))["auroc"].is_nan().all()
    # A derived label is no part of the source's own average.
    of_source = classes.filter((pl.col("condition") == CLEAN) & pl.col("scored"))
    assert label == "MEL" or label not in of_source["class"].to_list()
    assert clean["auroc"] == pytest.approx(of_source["auroc"].mean(), abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_transfer_score_by_hand(made, encoder):
    """From the stored logits and the table of the target, without the code under test."""
    task = f"small-ham10000.s{SEED}"
    artifact = made.store.open(made.key(ProbePredictions.name, encoder, task))
    stored = pl.read_parquet(artifact.file("predictions.parquet"))
    at_target = stored.filter((pl.col("fraction") == 1.0) & (pl.col("condition") == TRANSFER))
    logits = at_target["logits"].to_numpy().astype(float)
    melanoma = logits[:, 0] - np.logaddexp.reduce(logits, axis=1)
    table = pl.read_csv(made.roots.path("small-isic2020") / "labels.csv").with_columns(
        image_id=pl.lit("small-isic2020/") + pl.col("image_id")
    )
    truth = at_target.join(table, on="image_id", maintain_order="left")["melanoma"]
    row = read_runs(made, encoder, task).filter((pl.col("fraction") == 1.0) & (pl.col("condition") == TRANSFER))
    assert row["n_eval"][0] == table.height
    assert row["auroc"][0] == pytest.approx(roc_auc_score(truth, melanoma), abs=1e-9)
