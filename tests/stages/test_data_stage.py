"""The index stage: what decodes DICOM is in its fingerprint, its tables are told by content, test sets may be given."""

import csv
import hashlib

import polars as pl
import pytest

from crs_assets.assets.checks import TARGET_APART
from crs_assets.resources.compute import installed_versions
from crs_assets.stages import stage as stage_module
from crs_assets.stages.data import DatasetIndex, Splits, read_index, read_splits

SKIN = "tiny-skin"


def rewrite(home, dataset, edit):
    """The manifest of a data set with its rows edited."""
    path = home / "data" / dataset / "manifest.csv"
    with path.open(newline="") as file:
        rows = edit(list(csv.DictReader(file)))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize("library", ["pydicom", "pylibjpeg-libjpeg"])
def test_a_decoder_that_came_or_changed_reads_the_images_anew_and_nothing_below_unless_they_differ(
    tiny, bench, monkeypatch, library
):
    monkeypatch.setattr(
        stage_module,
        "installed_versions",
        lambda *names: {**installed_versions(*names), **({library: "999"} if library in names else {})},
    )
    image_sets = set(bench.suite.image_sets)
    assert tiny.stale(bench) == {"dataset_index": image_sets}
    assert tiny.remade(bench) == {"dataset_index": image_sets}


def test_what_is_not_installed_is_left_out():
    assert installed_versions("no-such-distribution", "numpy").keys() == {"numpy"}


def test_the_tables_are_told_by_their_content(bench):
    # Published versions of a label table differ; which one was read is on record.
    manifest = bench.store.peek(bench.key(DatasetIndex.name, SKIN))
    table = (bench.home.data / SKIN / "manifest.csv").read_bytes()
    assert manifest.summary["tables"] == {"manifest.csv": hashlib.sha256(table).hexdigest()}


def every_fourth_patient(rows):
    """A vendor's test set."""
    return [row | {"split": "test" if int(row["patient_id"][1:]) % 4 == 0 else "train"} for row in rows]


def take_official(home):
    entry = home / "catalog" / "datasets" / f"{SKIN}.toml"
    entry.write_text(f'test_split = "official"\n{entry.read_text()}')


def test_an_official_test_set_is_that_of_every_seed(tiny, make_home):
    home = make_home(bare=True)
    rewrite(home, SKIN, every_fourth_patient)
    take_official(home)
    bench = tiny.open_bench(home)
    DatasetIndex().ensure(bench, SKIN)
    index = read_index(bench, SKIN)
    published = index.filter(pl.col("split") == "test")["image_id"].to_list()
    assert published
    for seed in bench.suite.protocol.data.seeds:
        Splits().ensure(bench, f"{SKIN}.s{seed}")
        splits = read_splits(bench, SKIN, seed)
        assert splits.filter(pl.col("role") == "test")["image_id"].to_list() == published
        sides = splits.join(index, on="image_id").group_by("group_id").agg(pl.col("role").n_unique())
        assert (sides["role"] == 1).all()
        assert set(splits["role"]) == {"train", "validation", "calibration", "test"}


def test_asking_for_the_official_test_set_is_another_index(tiny, make_home):
    home = make_home(bare=True)
    rewrite(home, SKIN, every_fourth_patient)
    drawn = DatasetIndex().ensure(tiny.open_bench(home), SKIN).manifest
    take_official(home)
    official = DatasetIndex().ensure(tiny.open_bench(home), SKIN)
    assert official.made
    assert official.manifest.data_version != drawn.data_version


def finding(bench):
    key = bench.key(DatasetIndex.name, "tiny-chest-b")
    return TARGET_APART.finding(bench, key, bench.store.peek(key))


def test_a_picture_of_the_source_at_the_target_is_told(tiny, bench):
    assert finding(bench) is None
    data = bench.home.data
    (data / "tiny-chest-b" / "c003.png").write_bytes((data / "tiny-chest" / "c005.png").read_bytes())
    changed = tiny.open_bench(bench.home.path)
    DatasetIndex().ensure(changed, "tiny-chest-b")
    assert finding(changed) == "1 pictures are in tiny-chest too"
