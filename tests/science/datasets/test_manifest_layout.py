import hashlib

import numpy as np
import polars as pl
import pytest

from crs_assets.science.datasets import DatasetError, build_index, read_table


@pytest.fixture
def spec(catalogue):
    return catalogue(
        "aptos2019", id="mine", task="multiclass", classes=["healthy", "ill"], reader="manifest", group="patient",
        subgroups=["sex", "age"],
    )  # fmt: skip


@pytest.fixture
def multilabel(spec):
    return type(spec).model_validate(spec.model_dump() | {"task": "multilabel", "classes": ["Edema", "Fracture"]})


@pytest.fixture
def rows():
    people, labels = ["0012", "NA", "0012", ""], ["ill", "healthy", "healthy", "ill"]
    return [
        {
            "image_id": f"scan {n}",
            "path": f"img/{n}.png",
            "patient_id": who,
            "label": label,
            "sub:sex": "F",
            "sub:age": "45",
        }
        for n, (who, label) in enumerate(zip(people, labels, strict=True))
    ]


@pytest.fixture
def write(tmp_path, write_table):
    def table(rows, name="manifest.csv"):
        write_table(tmp_path / name, rows)
        return tmp_path

    return table


def test_ids_are_text(spec, write, rows):
    raw = read_table(write(rows), spec)
    # A patient called NA is a patient; 0012 keeps its zeros; a blank one is the image's own group, and counted.
    assert raw.frame["group_id"].to_list() == ["mine::0012", "mine::NA", "mine::0012", "mine::scan 3"]
    assert raw.frame["image_id"].to_list() == [f"mine/scan {n}" for n in range(4)]
    assert raw.frame["label"].to_list() == [1, 0, 0, 1]
    assert raw.frame["sub:age"].to_list() == [45.0] * 4
    assert raw.frame["sub:sex"].to_list() == ["female"] * 4
    assert [(item.reason, item.rows) for item in raw.notices] == [("without_group", 1)]


def test_excel_dates_are_not_silently_altered(spec, write, rows):
    # Excel turns the id 3-11 into 11-Mar before it writes the file; what the file says is what counts.
    for row, name in zip(rows, ["3-11", "11-Mar", "2026-03-11", "45000"], strict=True):
        row["image_id"] = row["patient_id"] = name
    frame = read_table(write(rows), spec).frame
    assert frame["image_id"].to_list() == ["mine/3-11", "mine/11-Mar", "mine/2026-03-11", "mine/45000"]
    assert frame["group_id"].n_unique() == 4


def test_names_beyond_ascii_are_one_id_however_composed(spec, write, rows):
    rows[0]["image_id"] = "n\u00f3me, with sp\u00e4ce"
    expected = read_table(write(rows), spec).frame["image_id"][0]
    rows[0]["image_id"] = "no\u0301me, with spa\u0308ce"
    assert read_table(write(rows), spec).frame["image_id"][0] == expected == "mine/n\u00f3me, with sp\u00e4ce"


def test_parquet_says_the_same_as_csv(tmp_path, catalogue, spec, write, rows):
    expected = read_table(write(rows), spec).frame
    pl.DataFrame(rows).with_columns(pl.col("sub:age").cast(pl.Int64)).write_parquet(tmp_path / "m.parquet")
    other = type(spec).model_validate(spec.model_dump() | {"reader_options": {"file": "m.parquet"}})
    assert read_table(tmp_path, other).frame.equals(expected)


def test_paths_are_relative_to_the_manifest(tmp_path, spec, write, write_image, rows):
    root = write(rows, "lists/manifest.csv")
    for n in range(4):
        write_image(root / "lists" / "img" / f"{n}.png", n)
    nested = type(spec).model_validate(spec.model_dump() | {"reader_options": {"file": "lists/manifest.csv"}})
    raw = read_table(root, nested)
    assert raw.frame["path"][0] == "lists/img/0.png"
    assert build_index(raw, root, nested, workers=1).frame["quarantine"].null_count() == 4


def test_images_of_an_archive(tmp_path, spec, write, rows):
    images = np.random.default_rng(0).integers(0, 256, (4, 40, 40), dtype=np.uint8)
    np.savez(tmp_path / "all.npz", train_images=images)
    for n, row in enumerate(rows):
        row["path"] = f"npz:all.npz#train_images/{n}"
    index = build_index(read_table(write(rows), spec), tmp_path, spec, workers=2)
    assert index.frame["quarantine"].null_count() == 4
    # The digest's definition, spelt out.
    assert index.frame["pixel_digest"][1] == hashlib.sha256(b"40x40|uint8|" + images[1].tobytes()).hexdigest()


def test_one_hot_labels(spec, write, rows):
    expected = read_table(write(rows), spec).frame
    for row in rows:
        label = row.pop("label")
        row |= {"label:ill": str(int(label == "ill")), "label:healthy": str(float(label == "healthy"))}
    assert read_table(write(rows), spec).frame.equals(expected)
    rows[2]["label:ill"] = "1"
    with pytest.raises(DatasetError, match=r"do not sum to 1 \(row 4\)"):
        read_table(write(rows), spec)


def test_multilabel_cells(multilabel, write, rows):
    for row, (edema, fracture) in zip(rows, [("1", "-1"), ("0.0", ""), (" 1.0", "0"), ("", "")], strict=True):
        row |= {"label:fracture": fracture, "label:EDEMA": edema}
    raw = read_table(write(rows), multilabel)
    assert raw.frame["label:Edema"].to_list() == [1, 0, 1, None]
    assert raw.frame["label:Fracture"].to_list() == [-1, None, 0, None]
    assert {item.reason: item.rows for item in raw.notices}["no_label_observed"] == 1


def test_soft_exclusion_and_views_are_counted(spec, write, rows):
    for row, view, exclude in zip(rows, ["PA", "LATERAL", "", "PA"], ["", "", "", "True"], strict=True):
        row |= {"view": view, "exclude": exclude}
    filtered = type(spec).model_validate(spec.model_dump() | {"reader_options": {"views": ["PA", "AP"]}})
    raw = read_table(write(rows), filtered)
    assert raw.frame["image_id"].to_list() == ["mine/scan 0"]
    counts = {item.reason: item.rows for item in raw.exclusions}
    assert counts == {"view_not_selected": 2, "excluded_in_manifest": 1}


def test_an_official_split_is_kept(spec, write, rows):
    for row, split in zip(rows, ["train", "test", "train", "val"], strict=True):
        row["split"] = split
    assert read_table(write(rows), spec).frame["split"].to_list() == ["train", "test", "train", "val"]


DEFECTS = [
    ({"image_id": "scan 0"}, r"image ids repeat \(rows 2, 3\)"),
    ({"image_id": "SCAN 0"}, r"differ in case only \(rows 2, 3\)"),
    ({"image_id": "scan 0.png"}, r"image ids repeat \(rows 2, 3\)"),
    ({"image_id": ""}, r"image ids are empty.*\(row 3\)"),
    ({"image_id": "scan 1 "}, r"white space at an end.*\(row 3\)"),
    ({"image_id": "../scan"}, r"path parts like '..'.*\(row 3\)"),
    ({"path": "img/0.png"}, r"paths repeat \(rows 2, 3\)"),
    ({"path": ""}, r"column 'path': .*\(row 3\)"),
    ({"path": "/data/img/1.png"}, r"column 'path': .*\(row 3\)"),
    ({"path": "C:/img/1.png"}, r"column 'path': .*\(row 3\)"),
    ({"path": "img\\1.png"}, r"column 'path': .*\(row 3\)"),
    ({"path": "img/../../1.png"}, r"column 'path': .*\(row 3\)"),
    ({"path": "npz:../a.npz#x/1"}, r"column 'path': .*\(row 3\)"),
    ({"path": " img/1.png"}, r"column 'path': .*\(row 3\)"),
    ({"patient_id": " 7"}, r"groups have white space.*\(row 3\)"),
    ({"label": "Ill"}, r"column 'label': expected one of the classes \['healthy', 'ill'\] \(row 3\)"),
    ({"label": ""}, r"column 'label': .*\(row 3\)"),
    ({"sub:age": "121"}, r"column 'sub:age': .*\(row 3\)"),
    ({"sub:age": "-1"}, r"column 'sub:age': .*\(row 3\)"),
    ({"sub:age": "45,5"}, r"column 'sub:age': .*\(row 3\). Export numbers with a decimal point"),
]


@pytest.mark.parametrize(("change", "message"), DEFECTS, ids=range(len(DEFECTS)))
def test_defects_of_a_row(spec, write, rows, change, message):
    rows[1] |= change
    with pytest.raises(DatasetError, match=message):
        read_table(write(rows), spec)


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        ("split", ["train", "train", "test", "val"], r"groups are in more than one split \(rows 2, 4\)"),
        ("split", ["train", "", "train", "val"], r"column 'split': .* in every row \(row 3\)"),
        ("split", ["train", "validate", "train", "val"], r"column 'split': .*\(row 3\)"),
        ("exclude", ["maybe", "", "", ""], r"column 'exclude': .*\(row 2\)"),
        ("sha256", ["ab", "AB", "cd", "ef"], r"one file under different groups \(rows 2, 3\)"),
        ("patient_id", ["12.0", "13.0", "12.0", ""], "ids are written as decimal numbers"),
    ],
)
def test_defects_of_a_column(spec, write, rows, column, cells, message):
    for row, cell in zip(rows, cells, strict=True):
        row[column] = cell
    with pytest.raises(DatasetError, match=message):
        read_table(write(rows), spec)


def test_the_same_file_twice_under_one_patient_is_no_defect(spec, write, rows):
    for row, cell in zip(rows, ["ab", "cd", "ab", "ef"], strict=True):
        row["sha256"] = cell
    assert read_table(write(rows), spec).frame.height == 4


def test_columns_that_cannot_be_missing(spec, write, rows):
    for row in rows:
        del row["patient_id"], row["path"], row["label"]
    with pytest.raises(DatasetError) as caught:
        read_table(write(rows), spec)
    text = str(caught.value)
    assert all(name in text for name in ("['path']", "['label:healthy', 'label:ill']", "'patient_id' nor 'group_id'"))


def test_all_problems_at_once_and_no_cell_is_repeated(spec, write, rows):
    rows[0] |= {"label": "Mrs Secret", "sub:age": "old"}
    rows[1] |= {"path": "/home/Mrs Secret.png"}
    rows[2] |= {"image_id": " Mrs Secret"}
    with pytest.raises(DatasetError) as caught:
        read_table(write(rows), spec)
    # Two cells, a path and an id; as no image was written, the files are told as well.
    assert len(caught.value.problems) == 5
    assert "Secret" not in str(caught.value)
