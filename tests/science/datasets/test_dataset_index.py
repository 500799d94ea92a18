import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crs_assets.science.datasets import DatasetError, build_index, count_summary, index_digest, read_table, source_state
from crs_assets.science.datasets.duplicates import merge_groups, settle_duplicates
from crs_assets.science.datasets.tables import RawTable

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def spec(catalogue):
    return catalogue("aptos2019")


@pytest.fixture
def tree(tmp_path, write_table, write_image):
    """Images by (name, grade, pixel seed): equal seeds are exact duplicates."""

    def make(images, extension="png"):
        write_table(tmp_path / "train.csv", [{"id_code": name, "diagnosis": grade} for name, grade, _ in images])
        for name, _, seed in images:
            if seed is not None:
                write_image(tmp_path / "train_images" / f"{name}.{extension}", seed)
        return tmp_path

    return make


SIX = [("f", 0, 1), ("b", 1, 2), ("c", 2, 3), ("a", 3, 4), ("e", 4, 5), ("d", 0, 6)]


def test_index_is_sorted_typed_and_complete(spec, tree):
    root = tree(SIX)
    frame = build_index(read_table(root, spec), root, spec, workers=2).frame
    assert frame["image_id"].to_list() == [f"aptos2019/{name}" for name in "abcdef"]
    assert frame["label"].to_list() == [3, 1, 2, 0, 4, 0]
    assert frame["height"].to_list() == frame["width"].to_list() == [40] * 6
    assert frame.select("height", "width", "quarantine").dtypes == [pl.Int32, pl.Int32, pl.String]
    assert frame["pixel_digest"].n_unique() == 6
    # 40 pixels are below the 64 that the flag is about.
    assert frame["flags"].list.contains("small").all()


def test_row_order_and_workers_change_nothing(spec, tree):
    root = tree(SIX)
    raw = read_table(root, spec)
    expected = build_index(raw, root, spec, workers=1)
    for workers in (1, 3):
        shuffled = RawTable(raw.frame.sample(fraction=1, shuffle=True, seed=workers), (), (), raw.tables)
        again = build_index(shuffled, root, spec, workers=workers).frame
        assert again.equals(expected.frame)
        assert index_digest(again.sample(fraction=1, shuffle=True, seed=1)) == index_digest(expected.frame)


def test_progress_reaches_the_end(spec, tree):
    root = tree(SIX)
    seen = []
    build_index(read_table(root, spec), root, spec, workers=1, progress=lambda *step: seen.append(step))
    assert [step[:2] for step in seen][-1] == (6, 6)
    assert all(rate > 0 for _, _, rate in seen)


def test_one_bad_image_is_quarantined_and_the_others_go_on(spec, tree, write_image):
    root = tree([*SIX, ("gone", 1, None)])
    images = root / "train_images"
    (images / "a.png").write_bytes(b"")
    (images / "b.png").write_text("<html>expired</html>")
    (images / "c.png").write_bytes((images / "c.png").read_bytes()[:-40])
    write_image(images / "d.png", 9, side=spec.min_side - 1)
    index = build_index(read_table(root, spec), root, spec, workers=2)
    assert dict(index.frame.select("image_id", "quarantine").iter_rows()) == {
        "aptos2019/a": "empty_file",
        "aptos2019/b": "not_an_image",
        "aptos2019/c": "truncated",
        "aptos2019/d": "too_small",
        "aptos2019/e": None,
        "aptos2019/f": None,
        "aptos2019/gone": "missing_file",
    }
    assert index.frame.filter(pl.col("quarantine").is_not_null())["pixel_digest"].null_count() == 5
    summary = count_summary(index, spec).filter(pl.col("kind") == "quarantined")
    assert summary.select("name", "count").rows() == [
        (reason, "1") for reason in ("empty_file", "missing_file", "not_an_image", "too_small", "truncated")
    ]


@pytest.mark.parametrize(("present", "refused"), [(0, True), (2, True), (3, False), (6, False)])
def test_a_wrong_root_is_refused_where_most_files_are_missing(spec, tree, present, refused):
    root = tree([(name, grade, seed if n < present else None) for n, (name, grade, seed) in enumerate(SIX)])
    raw = read_table(root, spec)
    if not refused:
        assert build_index(raw, root, spec, workers=1).frame["quarantine"].null_count() == present
        return
    with pytest.raises(DatasetError, match=f"{6 - present} of 6 image files are missing.*root"):
        build_index(raw, root, spec, workers=1)


def test_duplicates_with_one_label_share_a_group(spec, tree):
    root = tree([("c", 1, 7), ("a", 1, 7), ("b", 2, 8), ("d", 1, 7)])
    frame = build_index(read_table(root, spec), root, spec, workers=1).frame
    assert frame["quarantine"].null_count() == 4
    assert frame["group_id"].to_list() == ["aptos2019::a", "aptos2019::b", "aptos2019::a", "aptos2019::a"]


def test_duplicates_with_contradicting_labels_have_no_role(spec, tree):
    root = tree([("a", 1, 7), ("b", 2, 7), ("c", 1, 7), ("d", 2, 8)])
    index = build_index(read_table(root, spec), root, spec, workers=1)
    assert index.frame["quarantine"].to_list() == ["conflicting_duplicate"] * 3 + [None]
    used = count_summary(index, spec).filter(pl.col("kind").is_in(["read", "used"]))
    assert used.select("kind", "name", "count").rows() == [
        ("read", "images", "4"), ("read", "groups", "4"), ("used", "images", "1"), ("used", "groups", "1"),
    ]  # fmt: skip


def test_the_same_pixels_in_another_file_format_are_a_duplicate(spec, tree, write_image):
    root = tree([("a", 1, 7), ("b", 1, None)])
    write_image(root / "train_images" / "b.tif", 7)
    frame = build_index(read_table(root, spec), root, spec, workers=1).frame
    assert frame["group_id"].to_list() == ["aptos2019::a", "aptos2019::a"]


def test_duplicates_join_the_groups_of_two_patients(catalogue, tmp_path, write_table, write_image):
    # p1 {a, b}, p2 {c, d}, p3 {e}; b and c are one picture: p1 and p2 are one group, and p3 stays alone.
    spec = catalogue("demo-fundus")
    images = [("a", "p1", 1), ("b", "p1", 2), ("c", "p2", 2), ("d", "p2", 4), ("e", "p3", 5)]
    write_table(
        tmp_path / "train.csv", [{"id_code": name, "diagnosis": "0", "patient_id": who} for name, who, _ in images]
    )
    for name, _, seed in images:
        write_image(tmp_path / "train_images" / f"{name}.png", seed)
    frame = build_index(read_table(tmp_path, spec), tmp_path, spec, workers=1).frame
    assert frame["group_id"].to_list() == ["demo-fundus::p1"] * 4 + ["demo-fundus::p3"]


MULTILABEL = [
    ([1, 0], [1, 0], False),
    ([1, 0], [0, 0], True),
    ([1, None], [None, 1], True),  # blank counts as negative
    ([1, None], [None, None], False),  # nothing observed contradicts nothing
    ([1, -1], [-1, 0], False),
    ([1, 1], [1, -1], False),
    ([0, None], [None, 0], False),
]


@pytest.mark.parametrize(("first", "second", "conflict"), MULTILABEL)
def test_multilabel_contradictions(catalogue, first, second, conflict):
    spec = catalogue("demo-chest", classes=["Edema", "Fracture"], subgroups=[])
    cells = {f"label:{name}": pl.Series(pair, dtype=pl.Int8) for name, pair in
             zip(spec.classes, zip(first, second, strict=True), strict=True)}  # fmt: skip
    frame = pl.DataFrame(
        {"image_id": ["a", "b"], "group_id": ["g", "h"], **cells, "pixel_digest": ["x", "x"],
         "quarantine": pl.Series([None, None], dtype=pl.String)}
    )  # fmt: skip
    settled = settle_duplicates(frame, spec)
    assert settled["quarantine"].to_list() == (["conflicting_duplicate"] * 2 if conflict else [None, None])
    assert settled["group_id"].to_list() == ["g", "g"]


@given(
    links=st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=3), max_size=8),
    seed=st.integers(0, 99),
)
def test_merging_is_the_smallest_name_of_a_connected_component(links, seed):
    # Reference: repeat until nothing changes.
    expected = {group: group for group in "abcdefgh"}
    for _ in range(8):
        for link in links:
            smallest = min(expected[group] for group in link)
            for group in link:
                expected[group] = smallest
    shuffled = random.Random(seed).sample(links, len(links))
    assert merge_groups(random.Random(seed).sample("abcdefgh", 8), shuffled) == expected


@pytest.mark.parametrize("ids", [["d/a", "d/a"], ["d/A", "d/a"]])
def test_repeated_ids_are_refused(spec, tree, ids):
    root = tree(SIX)
    frame = read_table(root, spec).frame.head(2).with_columns(pl.Series("image_id", ids))
    with pytest.raises(DatasetError, match="1 image ids"):
        build_index(RawTable(frame, (), (), ()), root, spec, workers=1)


def test_digest_sees_content_and_nothing_else(spec, tree):
    root = tree(SIX)
    frame = build_index(read_table(root, spec), root, spec, workers=1).frame
    digest = index_digest(frame)
    same = frame.with_columns(pl.lit("elsewhere").alias("path")).select(reversed(frame.columns))
    assert index_digest(same) == digest
    changes = [
        pl.col("label").replace({4: 3}),
        pl.col("group_id") + "x",
        pl.col("image_id") + "x",
        pl.col("pixel_digest").str.to_uppercase(),
        pl.lit("too_small").alias("quarantine"),
        pl.lit("female").alias("sub:sex"),
        pl.lit(value=True).alias("is_test"),
    ]
    digests = {index_digest(frame.with_columns(change)) for change in changes}
    assert len(digests | {digest}) == len(changes) + 1


def test_digest_is_the_same_in_another_process(spec, tree):
    root = tree(SIX)
    here = index_digest(build_index(read_table(root, spec), root, spec, workers=2).frame)
    script = (
        "import sys; from pathlib import Path; from crs_assets.science.datasets import *;"
        f"spec = load_dataset_spec(Path({str(PROJECT)!r}) / 'crs_assets/catalog/datasets/aptos2019.toml');"
        "root = Path(sys.argv[1]);"
        "print(index_digest(build_index(read_table(root, spec), root, spec, workers=1).frame))"
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT), "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script, root], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == here


def test_golden_digest():
    # Change detection only: a digest that moves makes every stored result stale.
    frame = pl.DataFrame(
        {"image_id": ["d/b", "d/a"], "group_id": ["d::1", "d::2"], "label": pl.Series([1, 0], dtype=pl.Int16),
         "sub:age": [40.5, None], "pixel_digest": ["00", None], "quarantine": [None, "truncated"]}
    )  # fmt: skip
    # sha256 of: ["group_id",["d::2","d::1"]]\n["image_id",["d/a","d/b"]]\n["label",[0,1]]\n
    #            ["pixel_digest",[null,"00"]]\n["quarantine",["truncated",null]]\n["sub:age",[null,40.5]]\n
    assert index_digest(frame) == "b177fc791d60c20c82acfef7da65e3e442e2f1ad5d693cba34ff85aa575988fa"


def test_source_state_changes_with_tables_and_images(spec, tree, write_image):
    root = tree(SIX)
    states = [source_state(root, spec)]
    assert source_state(root, spec, raw=read_table(root, spec)) == states[0]
    (root / "notes.txt").write_text("not part of the data set")
    assert source_state(root, spec) == states[0]
    os.utime(root / "train_images" / "a.png", ns=(1, 1))
    states.append(source_state(root, spec))
    write_image(root / "train_images" / "b.png", 3, side=50)
    states.append(source_state(root, spec))
    (root / "train_images" / "c.png").unlink()
    states.append(source_state(root, spec))
    (root / "train.csv").write_text((root / "train.csv").read_text() + "\n")
    states.append(source_state(root, spec))
    assert len(set(states)) == len(states)


def test_errors_survive_the_way_back_from_a_worker_process():
    error = pickle.loads(pickle.dumps(DatasetError("mine", ["one", "two"])))
    assert str(error) == "mine: 2 problem(s):\n  one\n  two"
