"""Which layouts name an official test set, and how a data set asks for it."""

import numpy as np
import pytest

from crs_assets.science.datasets import DatasetError, build_index, check_dataset, read_table
from crs_assets.science.splits import take_official_test


@pytest.fixture
def ward(catalogue):
    def load(**changes):
        facts = {"id": "ward", "task": "multiclass", "classes": ["ill", "well"], "reader": "manifest"}
        return catalogue("aptos2019", group="patient", test_split="official", **(facts | changes))

    return load


@pytest.fixture
def cohort(tmp_path, write_table, write_image):
    """90 images of 90 patients, every third ill, the last 30 a vendor's test set."""

    def write(edit=lambda rows: rows):
        rows = [
            {"image_id": f"i{k:02}", "path": f"{k:02}.png", "patient_id": f"p{k}",
             "label": "ill" if k % 3 == 0 else "well", "split": "test" if k >= 60 else ("train", "val", "cal")[k % 3]}
            for k in range(90)
        ]  # fmt: skip
        for k in range(90):
            write_image(tmp_path / f"{k:02}.png", k)
        write_table(tmp_path / "manifest.csv", edit(rows))
        return tmp_path

    return write


def test_a_manifests_test_set_replaces_the_drawn_one(cohort, ward):
    check = check_dataset(cohort(), ward(), protocol="demo-v1")
    assert check.usable, check.problems
    roles = dict(check.roles.select("role", "images").iter_rows())
    assert roles["test"] == 30
    assert sum(roles.values()) == 90
    assert check.classes["test_positives"].to_list() == [10, 20]


def test_a_copy_of_a_test_image_is_left_out_and_told_with_its_row(cohort, ward, tmp_path, write_image):
    root = cohort()
    write_image(root / "03.png", 63)  # patient 3, in train, is the picture of patient 63, in test; both are ill
    check = check_dataset(root, ward(), protocol="demo-v1")
    assert check.exclusions == ("1 images: group_in_official_test (manifest.csv, row 5)",)
    assert dict(check.roles.select("role", "images").iter_rows())["test"] == 30


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda rows: [{k: v for k, v in row.items() if k != "split"} for row in rows], "names no split"),
        (lambda rows: [row | {"split": "train"} for row in rows], "no image that is kept is in the split 'test'"),
    ],
)
def test_a_table_without_a_test_set_is_refused(cohort, ward, edit, message):
    with pytest.raises(DatasetError, match=message):
        read_table(cohort(edit), ward())


def test_idrid_as_a_source(tmp_path, catalogue, write_image):
    truths, images = tmp_path / "2. Groundtruths", tmp_path / "1. Original Images"
    truths.mkdir()
    sets = (("a", "Training", "a. Training Set", (1, 2)), ("b", "Testing", "b. Testing Set", (1,)))
    for letter, name, folder, ids in sets:
        lines = [f"IDRiD_00{n},{n}" for n in ids]
        table = truths / f"{letter}. IDRiD_Disease Grading_{name} Labels.csv"
        table.write_text("\n".join(["Image name,Retinopathy grade", *lines]) + "\n")
        for n in ids:
            write_image(images / folder / f"IDRiD_00{n}.jpg", 10 * n + len(name))
    spec = catalogue("idrid", role="source", test_split="official")
    frame = take_official_test(build_index(read_table(tmp_path, spec), tmp_path, spec, workers=1).frame)
    assert dict(frame.select("image_id", "is_test").iter_rows()) == {
        "idrid/test/IDRiD_001": True, "idrid/train/IDRiD_001": False, "idrid/train/IDRiD_002": False,
    }  # fmt: skip


def test_mimic_as_a_source(tmp_path, catalogue, write_table):
    films = [("a0", "10000001", "50000001", "train"), ("b0", "10000002", "50000002", "validate"),
             ("c0", "10000003", "50000003", "test")]  # fmt: skip
    spec = catalogue("mimic-cxr", role="source", test_split="official", subgroups=[])
    ids = [{"subject_id": subject, "study_id": study} for _, subject, study, _ in films]
    names = {"metadata": [{"dicom_id": film[0], "ViewPosition": "PA"} for film in films]}
    names["split"] = [{"dicom_id": film[0], "split": film[3]} | one for film, one in zip(films, ids, strict=True)]
    names["chexpert"] = [one | dict.fromkeys(spec.classes, "1.0") for one in ids]
    for name, rows in names.items():
        write_table(tmp_path / f"mimic-cxr-2.0.0-{name}.csv.gz", rows)
    assert read_table(tmp_path, spec).frame["split"].to_list() == ["train", "validate", "test"]
    assert "split" not in read_table(tmp_path, catalogue("mimic-cxr")).frame.columns


def test_chexpert_with_its_test_table(tmp_path, catalogue, write_table):
    options = {"tables": ["train.csv", "test.csv"]}
    spec = catalogue("chexpert", test_split="official", subgroups=[], reader_options=options)
    for name, patient in (("train", 1), ("test", 64741)):
        path = f"CheXpert-v1.0/{name}/patient{patient:05d}/study1/view1_frontal.jpg"
        write_table(tmp_path / f"{name}.csv", [{"Path": path} | dict.fromkeys(spec.classes, "0.0")])
    assert read_table(tmp_path, spec).frame["split"].to_list() == ["train", "test"]


def test_medmnists_own_split_with_a_copy_across_it(tmp_path, catalogue):
    rng = np.random.default_rng(0)
    arrays = {}
    for split, n in (("train", 6), ("val", 3), ("test", 4)):
        arrays[f"{split}_images"] = rng.integers(0, 256, (n, 28, 28), dtype=np.uint8)
        arrays[f"{split}_labels"] = (np.arange(n)[:, None] % 2).astype(np.uint8)
    arrays["val_images"][1] = arrays["test_images"][3]  # both of label 1
    np.savez(tmp_path / "tiny.npz", **arrays)
    spec = catalogue(
        "pneumoniamnist", role="source", label_map={}, test_split="official", min_side=28,
        reader_options={"file": "tiny.npz"},
    )  # fmt: skip
    frame = take_official_test(build_index(read_table(tmp_path, spec), tmp_path, spec, workers=1).frame)
    assert set(frame.filter("is_test")["image_id"]) == {f"pneumoniamnist/test/{n}" for n in range(4)}
    gone = frame.filter(frame["quarantine"].is_not_null())
    assert gone.select("image_id", "quarantine").rows() == [("pneumoniamnist/val/1", "group_in_official_test")]
