"""Tidy tables: schemas, agreement with the store, suppression, and the way back into polars."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from crs_assets.cli.exporting import read_results
from crs_assets.exports import tables
from crs_assets.exports.results import ExportError
from crs_assets.science.protocol import AXES
from crs_assets.stages.analyses.control_probes import ControlProbes
from crs_assets.stages.analyses.depth import DepthFeatures, DepthSweep
from crs_assets.stages.analyses.extra_degradations import ExtraDegradationMetrics, ExtraDegradedFeatures
from crs_assets.stages.data import read_index
from crs_assets.stages.encoders import usable_rows
from crs_assets.stages.probes import read_runs
from crs_assets.stages.scores import read_profile, read_score

SCHEMAS = {
    "run_metrics": tables.RUN_SCHEMA,
    "depth_sweep": tables.DEPTH_SCHEMA,
    "class_metrics": tables.CLASS_SCHEMA,
    "axis_profiles": tables.AXIS_SCHEMA,
    "axis_profiles_by_seed": tables.AXIS_SEED_SCHEMA,
    "crs": tables.SCORE_SCHEMA,
    "crs_aggregate": tables.AGGREGATE_SCHEMA,
}


def test_every_table_has_a_schema():
    assert set(SCHEMAS) == set(tables.TABLES)


@pytest.mark.parametrize("name", SCHEMAS)
def test_table_keeps_its_schema_and_comes_back_from_both_formats(name, results, exported):
    made = tables.TABLES[name][0](results)
    assert made.schema == pl.Schema(SCHEMAS[name])
    assert made.height
    assert_frame_equal(pl.read_parquet(exported / "tables" / f"{name}.parquet"), made)
    assert_frame_equal(pl.read_csv(exported / "tables" / f"{name}.csv", schema=SCHEMAS[name]), made, check_exact=True)


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_table_has_a_nan_or_a_row_twice(name, results):
    made = tables.TABLES[name][0](results)
    floats = made.select(pl.col(pl.Float64).is_nan().any())
    assert not any(floats.row(0))
    keys = [
        column
        for column in ("reading", "encoder", "probe", "dataset", "seed", "fraction", "condition", "class", "share")
        if column in made.columns
    ]
    assert made.select(keys).n_unique() == made.height


def test_runs_are_those_of_the_store(results, finished):
    table = tables.run_table(results)
    stored = read_runs(finished, "vit-b", "tiny-chest.s1")
    found = table.filter((pl.col("encoder") == "vit-b") & (pl.col("dataset") == "tiny-chest") & (pl.col("seed") == 1))
    assert found.height == stored.height
    keys = ["fraction", "condition"]
    metrics = ["auroc", "auroc_source", "ece", "log_loss", "n_eval", "weights", "index", "target_index"]
    expected = stored.sort(keys).select(*keys, *metrics).with_columns(pl.col(pl.Float64).fill_nan(None))
    assert_frame_equal(found.sort(keys).select(*keys, *metrics), expected)


def test_roles_tell_encoders_from_controls_and_nulls(results):
    roles = dict(tables.run_table(results).select("encoder", "role").unique().iter_rows())
    assert roles["vit-a"] == "encoder"
    assert roles["pixels-1"] == "control"
    assert roles["shuffled-labels"] == roles["metadata-only"] == "null"


def test_control_probes_are_in_the_table_where_they_are_stored(bench):
    ControlProbes().ensure(bench, "vit-a", "tiny-skin.s0")
    table = tables.run_table(read_results(bench))
    assert set(table["probe"]) == {"linear", "mlp", "knn"}
    knn = table.filter(pl.col("probe") == "knn")
    assert knn["ece"].null_count() == knn.height
    assert knn["auroc"].null_count() == 0


def test_every_run_says_where_it_is_kept(results, finished):
    table = tables.run_table(results)
    kept = {asset: set(rows["condition"]) for (asset,), rows in table.group_by("asset")}
    assert set(kept) == {"run_metrics", "null_controls", "extra_degradation_metrics"}
    further = {condition.name for condition in finished.suite.protocol.extra_degradations()}
    assert kept["extra_degradation_metrics"] == further
    assert not further & kept["run_metrics"]
    assert set(table.filter(pl.col("asset") == "null_controls")["role"]) == {"null"}
    # One encoder, data set and seed; nothing of it is transferred.
    rows = table.filter(pl.col("asset") == "extra_degradation_metrics")
    assert rows.select("encoder", "dataset", "seed", "target_index").unique().rows() == [
        ("vit-a", "tiny-skin", 0, None)
    ]
    assert rows["auroc"].null_count() == 0


def test_the_last_depth_repeats_the_published_run_and_one_depth_is_chosen(results, finished):
    table = tables.depth_table(results)
    assert table.select("encoder", "dataset", "seed").unique().rows() == [("vit-a", "tiny-skin", 0)]
    assert table["share"].is_sorted()
    assert table["share"][-1] == 1.0
    assert table["chosen"].sum() == 1
    clean = (pl.col("condition") == "clean") & (pl.col("fraction") == 1.0)
    published = read_runs(finished, "vit-a", "tiny-skin.s0").filter(clean)
    assert table["n_eval"][-1] == published["n_eval"].item()
    assert table["auroc"][-1] == pytest.approx(published["auroc"].item(), abs=0.02)


def test_without_analyses_there_is_no_row_of_them(finished):
    found = read_results(finished)
    assert tables.depth_table(found).schema == pl.Schema(tables.DEPTH_SCHEMA)
    assert tables.depth_table(found).height == 0
    assert set(tables.run_table(found)["asset"]) == {"run_metrics", "null_controls"}


@pytest.mark.parametrize(
    ("stages", "input_name", "told"),
    [
        ((ExtraDegradedFeatures(), ExtraDegradationMetrics()), "runs", "further degradations are older than its runs"),
        ((DepthFeatures(), DepthSweep()), "splits", "depth sweep is older than its weights, images or splits"),
    ],
)
def test_analyses_of_another_day_are_refused_with_both_commands(bench, stages, input_name, told):
    features, metrics = stages
    features.ensure(bench, "vit-a", "tiny-skin")
    metrics.ensure(bench, "vit-a", "tiny-skin.s0")
    key = bench.key(metrics.name, "vit-a", "tiny-skin.s0")
    old = bench.store.peek(key).recipe["inputs"][input_name]
    (manifest,) = (bench.store.root / key.path).glob("*/manifest.json")
    manifest.write_text(manifest.read_text().replace(old, "0" * 64))
    cure = "crs run --suite tiny, then crs report --suite tiny"
    with pytest.raises(ExportError, match=rf"vit-a on tiny-skin.s0: its {told}(.|\n)*{cure}"):
        read_results(bench)


def test_counts_of_few_patients_are_hidden_and_others_told(results, finished):
    table = tables.class_table(results)
    test = usable_rows(read_index(finished, "tiny-chest")).filter("is_test")
    clean = table.filter((pl.col("dataset") == "tiny-chest") & (pl.col("condition") == "clean"))
    seen = {}
    for name in ("effusion", "oedema", "nodule", "rare"):
        signs = [test.filter(pl.col(f"label:{name}") == sign)["group_id"].n_unique() for sign in (1, 0)]
        blank = test.filter(pl.col(f"label:{name}").is_null())["group_id"].n_unique()
        # A blank cell is a negative, so at least one of its counts is above the stored zeros'.
        few = 0 < signs[0] < 10 or 0 < signs[1] + blank < 10
        rows = clean.filter(pl.col("class") == name)
        seen[name] = few
        assert rows["positives"].null_count() == (rows.height if few else 0)
        assert rows["negatives"].null_count() == rows["positives"].null_count()
        assert not few or rows["auroc"].null_count() == rows.height
    assert set(seen.values()) == {True, False}


def test_no_small_count_is_in_any_table(results):
    for name, (make, _) in tables.TABLES.items():
        counts = make(results).select(pl.col("^n_.*|positives|negatives$"))
        for column in counts.columns:
            assert counts.filter(pl.col(column).is_between(1, 9)).height == 0, f"{name}.{column}"


def test_axes_and_scores_are_those_published(results, finished):
    axes = tables.axis_table(results)
    profile = read_profile(finished, "vit-c")["datasets"]["tiny-chest"]["tiny-v1-skill"]
    row = axes.row(
        by_predicate=(pl.col("encoder") == "vit-c")
        & (pl.col("dataset") == "tiny-chest")
        & (pl.col("reading") == "tiny-v1-skill"),
        named=True,
    )
    assert {axis: row[axis] for axis in AXES} == profile["raw"]
    assert {axis: row[f"z_{axis}"] for axis in AXES} == (profile["z"] or dict.fromkeys(AXES))
    score = read_score(finished, "vit-c")
    crs = tables.score_table(results)
    cell = crs.row(
        by_predicate=(pl.col("encoder") == "vit-c")
        & (pl.col("dataset") == "tiny-skin")
        & (pl.col("reading") == "tiny-v1"),
        named=True,
    )
    assert cell["crs"] == score["readings"]["tiny-v1"]["datasets"]["tiny-skin"]["crs"]
    assert cell["panel"] == score["panel"] == results.panel
    total = tables.aggregate_table(results).filter((pl.col("encoder") == "vit-c") & (pl.col("reading") == "tiny-v1"))
    assert total["crs"].to_list() == [score["readings"]["tiny-v1"]["aggregate"]["crs"]]


def test_an_absent_cell_has_a_row_with_its_reason_and_no_number(results):
    crs = tables.score_table(results)
    cell = crs.filter((pl.col("encoder") == "vit-d") & (pl.col("dataset") == "tiny-chest"))
    assert set(cell["state"]) == {"absent: drawn without a chest"}
    assert cell["crs"].null_count() == cell.height == 2


def test_what_does_not_fit_together_is_refused_with_the_cure(bench):
    folder = bench.store.root / "tiny" / "axis_profile" / "vit-b"
    (manifest,) = folder.glob("*/manifest.json")
    run = bench.store.peek(bench.key("run_metrics", "vit-b", "tiny-skin.s0")).data_version
    manifest.write_text(manifest.read_text().replace(run, "0" * 64))
    with pytest.raises(ExportError, match=r"vit-b on tiny-skin: its profile is older(.|\n)*crs run --suite tiny"):
        read_results(bench)


def test_a_score_against_another_panel_is_refused(bench):
    folder = bench.store.root / "tiny" / "crs" / "vit-b"
    (manifest,) = folder.glob("*/manifest.json")
    panel = bench.store.peek(bench.key("crs", "vit-b")).recipe["inputs"]["panel"]
    manifest.write_text(manifest.read_text().replace(panel, "0" * 64))
    with pytest.raises(ExportError, match="vit-b: its score was taken against another panel"):
        read_results(bench)


def test_nothing_stored_is_said_so(make_home, tiny):
    with pytest.raises(ExportError, match="no results yet"):
        read_results(tiny.open_bench(make_home(bare=True)))


def test_tables_need_no_score(make_home, tiny):
    bench = tiny.open_bench(make_home())
    for path in sorted((bench.store.root / "tiny" / "crs").rglob("current")):
        path.unlink()
    found = read_results(bench)
    assert tables.aggregate_table(found).height == 0
    assert tables.score_table(found)["crs"].null_count() == tables.score_table(found).height
    assert tables.aggregate_table(found).schema == pl.Schema(tables.AGGREGATE_SCHEMA)
