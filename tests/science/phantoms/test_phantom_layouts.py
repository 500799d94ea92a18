"""The phantoms on disk: the true sets' layouts and headers, and every image its tables name."""

import csv
import gzip
import re
from collections import Counter

import numpy as np
import pytest
from PIL import Image

from crs_assets.science.phantoms import MARKER, write_phantom

# Few images, as small as still draws.
N, SIZE = 60, 48

FINDINGS = [
    "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema",
    "Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture",
    "Support Devices",
]  # fmt: skip


@pytest.fixture(scope="module")
def roots(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phantoms")
    for name in ("skin", "fundus", "chest", "chest_b"):
        write_phantom(name, folder / name, n=N, size=SIZE)
    return {name: folder / name for name in ("skin", "fundus", "chest", "chest_b")}


def table(path):
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", newline="") as handle:
        rows = list(csv.reader(handle))
    return rows[0], [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def files(root, pattern):
    return {path.relative_to(root).as_posix() for path in root.rglob(pattern)}


def check_images(root, paths, *, mode, form):
    for path in paths:
        with Image.open(root / path) as image:
            assert (image.mode, image.format) == (mode, form)
            assert min(image.size) == SIZE
            assert np.asarray(image).std() > 5


def test_isic(roots):
    header, truth = table(roots["skin"] / "ISIC_2019_Training_GroundTruth.csv")
    assert header == ["image", "MEL", "NV", "BCC", "AK", "BKL", "DF", "VASC", "SCC", "UNK"]
    assert all(sum(float(row[name]) for name in header[1:]) == 1 and float(row["UNK"]) == 0 for row in truth)
    header, metadata = table(roots["skin"] / "ISIC_2019_Training_Metadata.csv")
    assert header == ["image", "age_approx", "anatom_site_general", "lesion_id", "sex"]
    names = [row["image"] for row in truth]
    assert names == [row["image"] for row in metadata]
    assert len(set(names)) == N
    assert all(re.fullmatch(r"ISIC_\d{7}(_downsampled)?", name) for name in names)
    paths = {f"ISIC_2019_Training_Input/{name}.jpg" for name in names}
    assert files(roots["skin"], "*.jpg") == paths
    check_images(roots["skin"], paths, mode="RGB", form="JPEG")


def test_isic_lesions_have_one_class_and_some_have_many_images_or_no_id(roots):
    _, truth = table(roots["skin"] / "ISIC_2019_Training_GroundTruth.csv")
    _, metadata = table(roots["skin"] / "ISIC_2019_Training_Metadata.csv")
    label = {row["image"]: next(name for name, cell in row.items() if cell == "1.0") for row in truth}
    lesions = {}
    for row in metadata:
        lesions.setdefault(row["lesion_id"], []).append(label[row["image"]])
    assert lesions.pop("")
    assert all(len(set(labels)) == 1 for labels in lesions.values())
    assert max(map(len, lesions.values())) in range(2, 5)
    assert any(row["image"].endswith("_downsampled") for row in metadata)


def test_aptos(roots):
    header, rows = table(roots["fundus"] / "train.csv")
    assert header == ["id_code", "diagnosis", "patient_id", "eye"]
    assert all(re.fullmatch(r"[0-9a-f]{12}", row["id_code"]) for row in rows)
    assert {row["diagnosis"] for row in rows} == set("01234")
    assert len({row["id_code"] for row in rows}) == len({(row["patient_id"], row["eye"]) for row in rows}) == N
    assert {row["eye"] for row in rows} == {"left", "right"}
    both = [count for count in Counter(row["patient_id"] for row in rows).values() if count == 2]
    assert len(both) > N / 4
    paths = {f"train_images/{row['id_code']}.png" for row in rows}
    assert files(roots["fundus"], "*.png") == paths
    check_images(roots["fundus"], paths, mode="RGB", form="PNG")


def test_chexpert(roots):
    root = roots["chest"]
    header, train = table(root / "train.csv")
    assert header == ["Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *FINDINGS]
    assert table(root / "valid.csv")[0] == header
    _, valid = table(root / "valid.csv")
    rows = train + valid
    prefix = "CheXpert-v1.0-small/"
    assert all(row["Path"].startswith(prefix) for row in rows)
    paths = {row["Path"].removeprefix(prefix) for row in rows}
    pattern = r"(train|valid)/patient\d{5}/study\d+/view\d+_(frontal|lateral)\.jpg"
    assert all(re.fullmatch(pattern, path) for path in paths)
    assert files(root, "*.jpg") == paths
    check_images(root, paths, mode="L", form="JPEG")
    views = Counter((row["Frontal/Lateral"], row["AP/PA"]) for row in rows)
    assert views["Frontal", "AP"] + views["Frontal", "PA"] == N
    assert views["Frontal", "PA"] > 0
    assert views["Lateral", ""] > 0
    assert {row["No Finding"] for row in train} == {"1.0", ""}
    assert {row[name] for row in train for name in FINDINGS} == {"1.0", "0.0", "-1.0", ""}
    assert {row[name] for row in valid for name in FINDINGS} == {"1.0", "0.0"}


def test_chexpert_patients_have_several_studies_and_lie_in_one_table(roots):
    patients = {}
    for name in ("train", "valid"):
        for row in table(roots["chest"] / f"{name}.csv")[1]:
            _, _, patient, study, _ = row["Path"].split("/")
            patients.setdefault(patient, set()).add((name, study))
    assert any(len(studies) > 1 for studies in patients.values())
    assert all(len({name for name, _ in studies}) == 1 for studies in patients.values())


def test_mimic(roots):
    root = roots["chest_b"]
    header, metadata = table(root / "mimic-cxr-2.0.0-metadata.csv.gz")
    assert header == [
        "dicom_id", "subject_id", "study_id", "PerformedProcedureStepDescription", "ViewPosition", "Rows", "Columns",
        "StudyDate", "StudyTime", "ProcedureCodeSequence_CodeMeaning", "ViewCodeSequence_CodeMeaning",
        "PatientOrientationCodeSequence_CodeMeaning",
    ]  # fmt: skip
    header, split = table(root / "mimic-cxr-2.0.0-split.csv.gz")
    assert header == ["dicom_id", "study_id", "subject_id", "split"]
    assert {row["split"] for row in split} == {"train", "validate", "test"}
    header, labels = table(root / "mimic-cxr-2.0.0-chexpert.csv.gz")
    assert header == ["subject_id", "study_id", *sorted(FINDINGS)]
    views = Counter(row["ViewPosition"] for row in metadata)
    assert views["AP"] + views["PA"] == N
    assert views[""] == 1
    assert {row["study_id"] for row in metadata} == {row["study_id"] for row in labels}
    assert any(all(row[name] == "" for name in FINDINGS) for row in labels)
    paths = {
        f"files/p{row['subject_id'][:2]}/p{row['subject_id']}/s{row['study_id']}/{row['dicom_id']}.jpg"
        for row in metadata
    }
    assert files(root, "*.jpg") == paths
    assert all(re.fullmatch(r"1\d{7}", row["subject_id"]) for row in metadata)
    assert all(re.fullmatch(r"5\d{7}", row["study_id"]) for row in metadata)
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{8}){4}", row["dicom_id"]) for row in metadata)
    check_images(root, paths, mode="L", form="JPEG")


def test_every_phantom_says_what_it_is(roots):
    for root in roots.values():
        assert "Not medical images" in (root / MARKER).read_text(encoding="utf-8")
