import hashlib

import numpy as np
import polars as pl
import pytest

from crs_assets.science.datasets import DatasetError, build_index, read_table

SIZES = {"train": 4, "val": 2, "test": 3}


@pytest.fixture
def archive(tmp_path):
    def write(name="tiny.npz", side=28, channels=None, labels=lambda n: np.arange(n)[:, None] % 2, **changes):
        rng = np.random.default_rng(0)
        arrays = {}
        for split, n in SIZES.items():
            shape = (n, side, side) if channels is None else (n, side, side, channels)
            arrays[f"{split}_images"] = rng.integers(0, 256, shape, dtype=np.uint8)
            arrays[f"{split}_labels"] = labels(n).astype(np.uint8)
        np.savez(tmp_path / name, **(arrays | changes))
        return tmp_path

    return write


@pytest.fixture
def spec(catalogue):
    def load(**changes):
        options = {"file": "tiny.npz"} | changes.pop("reader_options", {})
        return catalogue("pneumoniamnist", reader_options=options, min_side=28, **changes)

    return load


def test_ids_are_split_and_number(archive, spec):
    raw = read_table(archive(), spec())
    expected = [f"pneumoniamnist/{split}/{n}" for split, size in SIZES.items() for n in range(size)]
    assert raw.frame["image_id"].to_list() == expected
    assert raw.frame["label"].to_list() == [0, 1, 0, 1, 0, 1, 0, 1, 0]
    assert raw.frame["group_id"].n_unique() == 9
    assert [(notice.reason, notice.rows) for notice in raw.notices] == [("no_group_key", 9)]
    assert "split" not in raw.frame.columns


@pytest.mark.parametrize(("side", "channels"), [(28, None), (64, 3), (128, None), (224, 3)])
def test_every_size_grey_and_colour(archive, spec, side, channels):
    root = archive(side=side, channels=channels)
    frame = build_index(read_table(root, spec()), root, spec(), workers=1).frame
    assert frame["quarantine"].null_count() == 9
    with np.load(root / "tiny.npz") as stored:
        image = stored["val_images"][1]
    header = "x".join(map(str, image.shape))
    expected = hashlib.sha256(f"{header}|uint8|".encode() + image.tobytes()).hexdigest()
    assert frame.filter(frame["image_id"] == "pneumoniamnist/val/1")["pixel_digest"][0] == expected


def test_the_official_split_on_request(archive, spec):
    raw = read_table(archive(), spec(role="source", label_map={}, test_split="official"))
    assert raw.frame["split"].to_list() == ["train"] * 4 + ["val"] * 2 + ["test"] * 3


def test_multilabel_columns(archive, catalogue):
    root = archive(labels=lambda n: np.eye(n, 3))
    several = catalogue("chestmnist", classes=["a", "b", "c"], reader_options={"file": "tiny.npz"}, min_side=28)
    frame = read_table(root, several).frame
    assert frame["label:b"].to_list() == [0, 1, 0, 0, 0, 1, 0, 1, 0]


def test_another_file_is_refused_with_counts(archive, spec):
    root = archive()
    md5 = hashlib.md5((root / "tiny.npz").read_bytes()).hexdigest()
    assert read_table(root, spec(reader_options={"md5": md5})).frame.height == 9
    with pytest.raises(DatasetError) as caught:
        read_table(root, spec(reader_options={"md5": "0" * 32, "images": {"train": 5, "val": 2, "test": 3}}))
    assert md5 in str(caught.value)
    assert "4 / 2 / 3 images (train / val / test), the release 5 / 2 / 3" in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"val_labels": np.zeros((3, 1), np.uint8)}, r"val_labels: uint8 of shape \(3, 1\), expected .*\(2, 1\)"),
        ({"test_labels": np.full((3, 1), 2, np.uint8)}, r"test_labels: expected values from 0 to 1 \(rows 1, 2, 3\)"),
        ({"train_labels": np.zeros((4, 2), np.uint8)}, r"expected integers \(4, 1\)"),
        ({"train_labels": np.zeros((4, 1))}, "float64"),
    ],
)
def test_other_contents_are_refused(archive, spec, changes, message):
    with pytest.raises(DatasetError, match=message):
        read_table(archive(**changes), spec())


def test_what_is_no_archive_is_refused(tmp_path, archive, spec):
    with pytest.raises(DatasetError, match="the archive is missing"):
        read_table(tmp_path, spec())
    (tmp_path / "tiny.npz").write_text("<html>")
    with pytest.raises(DatasetError, match="not a readable npz"):
        read_table(tmp_path, spec())
    np.savez(tmp_path / "tiny.npz", train_images=np.zeros((1, 28, 28), np.uint8))
    with pytest.raises(DatasetError, match="val_labels"):
        read_table(tmp_path, spec())


def test_the_altered_copy_is_refused(shared_data, spec):
    """826 normal training images are missing from a public copy; MD5 and counts of the release by medmnist 3.0.2."""
    released = {
        "file": "pneumoniamnist.npz",
        "md5": "28209eda62fecd6e6a2d98b1501bb15f",
        "images": {"train": 4708, "val": 524, "test": 624},
    }
    root = shared_data / "medmnist_pneumonia"
    with pytest.raises(DatasetError) as caught:
        read_table(root, spec(reader_options=released))
    assert "f5b994ec7c2fe8bc81ae15cbab7c3df8" in str(caught.value)
    assert "3,882 / 524 / 624" in str(caught.value)
    assert "4,708 / 524 / 624" in str(caught.value)
    # Unchecked it can be read: 388 of 1,214 normal training images are left.
    raw = read_table(root, spec(reader_options={"file": "pneumoniamnist.npz"}))
    assert raw.frame.height == 3882 + 524 + 624
    assert (raw.frame["label"] == 0).sum() == 388 + 135 + 234


def test_exact_copies_inside_an_archive(shared_data, spec):
    """26 pictures of the copy occur more than once, 8 of them in two official splits: copies share a group."""
    root, copy = shared_data / "medmnist_pneumonia", spec(reader_options={"file": "pneumoniamnist.npz"})
    frame = build_index(read_table(root, copy), root, copy, workers=1).frame
    copies = frame.filter(frame["pixel_digest"].is_duplicated())
    assert copies["pixel_digest"].n_unique() == 26
    groups = copies.group_by("pixel_digest").agg(pl.col("group_id").n_unique(), pl.col("path").str.extract(r"#(\w+)_"))
    assert (groups["group_id"] == 1).all()
    assert groups.filter(pl.col("path").list.n_unique() > 1).height == 8
