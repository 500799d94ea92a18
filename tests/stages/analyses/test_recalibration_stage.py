"""The recalibration stages on the finished tiny suite: what maps were fitted on, and what they are compared with."""

import csv
import hashlib
import shutil

import polars as pl
import pytest

from crs_assets.science.analyses.recalibration import METRICS
from crs_assets.stages.analyses.recalibration import (
    Recalibration,
    RecalibrationSummary,
    read_recalibration,
    read_recalibration_summary,
)
from crs_assets.stages.probes import PREDICTIONS_FILE, ProbePredictions, read_runs
from crs_assets.stages.stage import RefusedError

# The tiny calibration split has about fifteen images.
CASES = """
[analyses.recalibration]
cases = [8, 12, 500]
target_cases = [10, 20, 500]
"""
SKIN, CHEST, TARGET = "tiny-skin", "tiny-chest", "tiny-chest-b"
DEGRADED = ["contrast-1", "contrast-3", "jpeg-3"]


def sha256(ids):
    return hashlib.sha256("".join(f"{name}\n" for name in sorted(ids)).encode()).hexdigest()


@pytest.fixture(scope="module")
def made_home(tiny, finished_home, tmp_path_factory):
    """The finished suite with every table of recalibration; never written to by a test."""
    home = tmp_path_factory.mktemp("recalibrated") / "home"
    shutil.copytree(finished_home, home)
    protocol = home / "catalog" / "protocols" / "tiny-v1.toml"
    protocol.write_text(protocol.read_text() + CASES)
    tiny.ensure_all(tiny.open_bench(home), (Recalibration(), RecalibrationSummary()))
    return home


@pytest.fixture
def made(tiny, made_home):
    return tiny.open_bench(made_home)


@pytest.fixture
def private(tiny, made_home, tmp_path):
    """A private copy, to be changed."""
    shutil.copytree(made_home, tmp_path / "home")
    return tiny.open_bench(tmp_path / "home")


def splits_of(bench, task, role):
    frame = pl.read_parquet(bench.store.open(bench.key("splits", task)).file("splits.parquet"))
    return frame.filter(pl.col("role") == role)["image_id"].to_list()


def patients(bench, dataset):
    """Image id -> the index's group id, of usable images."""
    frame = pl.read_parquet(bench.store.open(bench.key("dataset_index", dataset)).file("index.parquet"))
    return dict(frame.filter(pl.col("quarantine").is_null()).select("image_id", "group_id").iter_rows())


def first_cases(groups, ids, prefix, count):
    """Whole groups in the order of their hashes until there are ``count`` images."""
    chosen = []
    for name in sorted({groups[i] for i in ids}, key=lambda g: hashlib.sha256(f"{prefix}|{g}".encode()).hexdigest()):
        if len(chosen) >= count:
            break
        chosen += [i for i in ids if groups[i] == name]
    return chosen


def with_predictions(bench, encoder, task, change):
    """Put other predictions in force."""
    key = bench.key(ProbePredictions.name, encoder, task)
    artifact = bench.store.open(key)
    frame = pl.read_parquet(artifact.file(PREDICTIONS_FILE))
    with bench.store.write(key, "0" * 64) as staging:
        for name in artifact.manifest.files:
            shutil.copy(artifact.file(name), staging.path(name))
        change(frame).write_parquet(staging.path(PREDICTIONS_FILE))
        staging.commit(recipe={}, provenance={}, summary=artifact.manifest.summary)


def scaled(role, condition, factor):
    of_part = (pl.col("role") == role) & (pl.col("condition") == condition)
    return lambda frame: frame.with_columns(
        pl.when(of_part).then(pl.col("logits").arr.eval(pl.element() * factor, as_list=False)).otherwise("logits")
    )


@pytest.mark.parametrize("task", [f"{SKIN}.s0", f"{CHEST}.s1"])
def test_every_run_has_a_row_of_each_method(made, task):
    rows = read_recalibration(made, "vit-a", task)
    methods = (
        ["temperature", "vector", "isotonic", "dirichlet"] if SKIN in task else ["temperature", "platt", "isotonic"]
    )
    conditions = ["clean", *DEGRADED] + (["transfer"] if CHEST in task else [])
    full = rows.filter("all_cases")
    assert sorted(full.select("method", "condition").rows()) == sorted((m, c) for m in methods for c in conditions)
    curve = rows.filter(~pl.col("all_cases")).select("fitted_on", "method", "n_cases", "condition").rows()
    expected = [("calibration", m, n, "clean") for m in methods for n in (8, 12, 500)]
    expected += [("target", m, n, "transfer") for m in methods for n in (10, 20, 500)] if CHEST in task else []
    assert sorted(curve) == sorted(expected)
    assert rows.select("encoder", "dataset", "seed", "protocol").unique().rows() == [
        ("vit-a", task[:-3], int(task[-1]), "tiny-v1")
    ]


@pytest.mark.parametrize("task", [f"{SKIN}.s0", f"{CHEST}.s1"])
def test_before_is_what_run_metrics_publish(made, task):
    runs = read_runs(made, "vit-a", task).filter(pl.col("fraction") == 1.0)
    published = {row["condition"]: row for row in runs.iter_rows(named=True)}
    rows = read_recalibration(made, "vit-a", task).filter(pl.col("condition") != "transfer")
    for row in rows.iter_rows(named=True):
        run = published[row["condition"]]
        assert [row[f"{name}_before"] for name in METRICS] == [run[name] for name in METRICS]
        assert (row["ece_null_high"], row["n_eval"]) == (run["ece_null"], run["n_eval"])
        assert row["meaningful"] == (run["ece"] > run["ece_null"])


@pytest.mark.parametrize("task", [f"{SKIN}.s1", f"{CHEST}.s0"])
def test_maps_are_fitted_on_exactly_the_calibration_split_and_on_its_first_groups(made, task):
    dataset, seed = task[:-3], task[-1]
    ids, groups = splits_of(made, task, "calibration"), patients(made, dataset)
    rows = read_recalibration(made, "vit-b", task).filter(
        (pl.col("fitted_on") == "calibration") & (pl.col("n_fit") > 0)
    )
    full = rows.filter("all_cases")
    assert full.select("fit_rows_sha256", "n_fit", "n_cases").unique().rows() == [(sha256(ids), len(ids), len(ids))]
    curve = rows.filter(~pl.col("all_cases"))
    assert curve.height
    for count, digest, n_fit in curve.select("n_cases", "fit_rows_sha256", "n_fit").unique().iter_rows():
        chosen = first_cases(groups, ids, f"tiny-v1|recalibration_cases|{dataset}|{seed}", count)
        assert (digest, n_fit) == (sha256(chosen), len(chosen))
    assert not {groups[i] for i in ids} & {groups[i] for i in splits_of(made, task, "test")}


def test_target_cases_are_of_other_groups_than_those_evaluated_and_the_evaluated_stay_the_same(made):
    groups = patients(made, TARGET)
    ids = sorted(groups)
    half = first_cases(groups, ids, f"tiny-v1|recalibration_half|{TARGET}", len(ids) / 2)
    evaluated = [i for i in ids if i not in half]
    assert evaluated
    assert not {groups[i] for i in half} & {groups[i] for i in evaluated}
    for encoder, seed in (("vit-a", 0), ("vit-a", 1), ("vit-c", 0)):
        rows = read_recalibration(made, encoder, f"{CHEST}.s{seed}").filter(pl.col("condition") == "transfer")
        assert rows["n_eval"].unique().to_list() == [len(evaluated)]
        assert rows["ece_before"].n_unique() == 1
        of_target = rows.filter((pl.col("fitted_on") == "target") & (pl.col("n_fit") > 0))
        assert of_target["n_cases"].unique().sort().to_list() == [10, 20]
        for count, digest in of_target.select("n_cases", "fit_rows_sha256").iter_rows():
            chosen = first_cases(groups, half, f"tiny-v1|recalibration_cases|{TARGET}|{seed}", count)
            assert digest == sha256(chosen)


def test_too_few_cases_are_a_reason_and_no_number(made):
    rows = read_recalibration(made, "vit-a", f"{CHEST}.s0").filter(pl.col("n_cases") == 500)
    assert rows.height
    assert rows["reason"].str.starts_with("500 cases wanted, there are ").all()
    assert rows.select(f"{name}_after" for name in METRICS).null_count().row(0) == (rows.height,) * 4
    assert rows["ece_before"].null_count() == 0


@pytest.mark.parametrize("task", [f"{SKIN}.s0", f"{CHEST}.s0"])
def test_test_images_enter_no_map(private, task):
    before = read_recalibration(private, "vit-a", task)
    with_predictions(private, "vit-a", task, scaled("test", "clean", -3.0))
    assert Recalibration().ensure(private, "vit-a", task).made
    after = read_recalibration(private, "vit-a", task)
    # Maps are seen by what they do to images that were not altered: to the bit the same.
    others = pl.col("condition") != "clean"
    assert after.filter(others).equals(before.filter(others))
    assert after["fit_rows_sha256"].equals(before["fit_rows_sha256"])
    fitted = (pl.col("condition") == "clean") & pl.col("reason").is_null()
    assert (after.filter(fitted)["log_loss_after"] != before.filter(fitted)["log_loss_after"]).all()


def test_calibration_images_do_enter_the_maps(private):
    task = f"{SKIN}.s0"
    before = read_recalibration(private, "vit-a", task).filter(pl.col("reason").is_null())
    with_predictions(private, "vit-a", task, scaled("calibration", "clean", 3.0))
    Recalibration().ensure(private, "vit-a", task)
    after = read_recalibration(private, "vit-a", task).filter(pl.col("reason").is_null())
    temperatures = pl.col("method") == "temperature"
    assert (after.filter(temperatures)["log_loss_after"] != before.filter(temperatures)["log_loss_after"]).all()


def test_cases_that_are_not_the_calibration_split_are_refused(private):
    def without_one(frame):
        lost = frame.filter(pl.col("role") == "calibration")["image_id"][0]
        return frame.filter((pl.col("role") != "calibration") | (pl.col("image_id") != lost))

    with_predictions(private, "vit-a", f"{SKIN}.s0", without_one)
    with pytest.raises(RefusedError, match="materialize probe_predictions again"):
        Recalibration().ensure(private, "vit-a", f"{SKIN}.s0")


def test_tables_name_no_image_and_no_patient(made, made_home):
    secrets = set()
    for dataset in (SKIN, CHEST, TARGET):
        with (made_home / "data" / dataset / "manifest.csv").open() as file:
            for row in csv.DictReader(file):
                secrets |= {row["image_id"], row["patient_id"]}
    for frame in (read_recalibration(made, "vit-a", f"{CHEST}.s0"), read_recalibration_summary(made)):
        texts = {text for column in frame.select(pl.col(pl.Utf8)) for text in column.drop_nulls()}
        assert not texts & secrets


def test_the_summary_averages_the_encoders_that_have_every_seed(made):
    summary = read_recalibration_summary(made)
    full = [
        read_recalibration(made, encoder, f"{SKIN}.s{seed}").filter(
            pl.col("all_cases") & (pl.col("condition") == "clean") & (pl.col("method") == "temperature")
        )
        for encoder in ("vit-a", "vit-b", "vit-c", "vit-d")
        for seed in (0, 1)
    ]
    rows = pl.concat(full).drop_nulls("ece_after")
    wanted = {"method": "temperature", "dataset": SKIN, "kind": "calibration", "cases": "all", "metric": "ece"}
    row = summary.filter(condition_group="clean", **wanted).row(0, named=True)
    assert row["n"] == rows.height == 8 - row["n_without_map"]
    assert (row["before"], row["after"]) == pytest.approx((rows["ece_before"].mean(), rows["ece_after"].mean()))
    assert row["low"] <= row["difference"] <= row["high"]
    assert set(summary["dataset"]) == {SKIN, CHEST, "overall"}
    assert set(summary["condition_group"]) == {"clean", "severity-1", "severity-3", "transfer"}
    assert set(summary["interval"]) == {"seed"}
    # Three encoders on both data sets, the fourth on skin alone.
    assert made.store.open(made.key("recalibration_summary")).manifest.summary["cells"] == 7


def test_a_cell_without_all_its_seeds_is_left_out_of_the_summary(private):
    shutil.rmtree(private.store.root / private.key("recalibration", "vit-a", f"{SKIN}.s1").path)
    assert RecalibrationSummary().ensure(private).made
    assert private.store.open(private.key("recalibration_summary")).manifest.summary["cells"] == 6


def test_nothing_is_made_twice_and_nothing_before_its_runs(tiny, private, finished_home):
    assert not Recalibration().ensure(private, "vit-a", f"{SKIN}.s0").made
    assert not RecalibrationSummary().ensure(private).made
    shutil.rmtree(private.store.root / private.key("run_metrics", "vit-a", f"{SKIN}.s0").path)
    with pytest.raises(RefusedError, match="materialize upstream first"):
        Recalibration().ensure(private, "vit-a", f"{SKIN}.s0")
    with pytest.raises(RefusedError, match="materialize upstream first"):
        RecalibrationSummary().ensure(tiny.open_bench(finished_home))
