import random

import pytest

from crs_assets.science.datasets import DatasetError, build_index, read_table

METADATA, SPLIT, LABELS = (f"mimic-cxr-2.0.0-{part}.csv" for part in ("metadata", "split", "chexpert"))


@pytest.fixture
def spec(catalogue):
    return catalogue("mimic-cxr")


@pytest.fixture
def tables(spec):
    """Three subjects: s1 has two frontal films and a lateral one, s2 no view, s3 no labels; s4 is all blank."""
    films = [
        ("a0", "10000032", "50000001", "AP", "train"),
        ("a1", "10000032", "50000001", "PA", "train"),
        ("a2", "10000032", "50000001", "LATERAL", "train"),
        ("b0", "10000048", "50000002", "", "validate"),
        ("c0", "12000051", "50000003", "PA", "test"),
        ("d0", "12000062", "50000004", "AP", "test"),
        ("d1", "12000062", "50000005", "PA", "test"),
    ]
    labels = {
        "50000001": {"Edema": "1.0", "Fracture": "-1.0"},
        "50000002": {},
        "50000004": {},
        "50000005": {"Edema": "0.0"},
    }
    subjects = {study: subject for _, subject, study, _, _ in films}
    return {
        METADATA: [{"dicom_id": dicom, "ViewPosition": view, "Rows": "9"} for dicom, _, _, view, _ in films],
        SPLIT: [
            {"dicom_id": dicom, "study_id": study, "subject_id": subject, "split": split}
            for dicom, subject, study, _, split in films
        ],
        LABELS: [
            {"subject_id": subjects[study], "study_id": study} | dict.fromkeys(sorted(spec.classes), "") | cells
            for study, cells in labels.items()
        ],
    }


@pytest.fixture
def write(write_table, tables):
    def tree(base, suffix=".gz"):
        for name, rows in tables.items():
            write_table(base / f"{name}{suffix}", rows)

    return tree


@pytest.mark.parametrize("suffix", [".gz", ""])
@pytest.mark.parametrize("base", ["", "2.1.0", "mimic-cxr-jpg/2.1.0"])
def test_labels_of_a_study_reach_each_of_its_frontal_images(tmp_path, spec, write, write_image, suffix, base):
    write(tmp_path / base, suffix)
    raw = read_table(tmp_path, spec)
    assert raw.frame["image_id"].to_list() == [f"mimic-cxr/{key}" for key in ("a0", "a1", "d0", "d1")]
    assert raw.frame["label:Edema"].to_list() == [1, 1, None, 0]
    assert raw.frame["label:Fracture"].to_list() == [-1, -1, None, None]
    assert raw.frame["sub:view"].to_list() == ["AP", "PA", "AP", "PA"]
    assert raw.frame["group_id"].to_list() == ["mimic-cxr::10000032"] * 2 + ["mimic-cxr::12000062"] * 2
    prefix = f"{base}/" if base else ""
    assert raw.frame["path"][0] == f"{prefix}files/p10/p10000032/s50000001/a0.jpg"
    for seed, path in enumerate(raw.frame["path"]):
        write_image(tmp_path / path, seed)
    assert build_index(raw, tmp_path, spec, workers=1).frame["quarantine"].null_count() == 4


def test_every_row_left_out_is_counted_once(tmp_path, spec, write, tables):
    write(tmp_path)
    raw = read_table(tmp_path, spec)
    counts = {item.reason: item.rows for item in raw.exclusions}
    assert counts == {"view_unknown": 1, "view_not_frontal": 1, "study_without_labels": 1}
    assert raw.frame.height + sum(counts.values()) == len(tables[METADATA])
    assert [(item.reason, item.rows) for item in raw.notices] == [("no_label_observed", 1)]


@pytest.mark.parametrize(("split", "kept"), [("all", 4), ("test", 2), ("validate+test", 2)])
def test_official_splits_can_be_selected(tmp_path, catalogue, write, split, kept):
    write(tmp_path)
    raw = read_table(tmp_path, catalogue("mimic-cxr", reader_options={"split": split}))
    counts = {item.reason: item.rows for item in raw.exclusions}
    assert raw.frame.height == kept
    # Outside ``test`` lie four images, outside ``validate+test`` three.
    assert counts.get("split_not_selected", 0) == {"all": 0, "test": 4, "validate+test": 3}[split]


def test_shuffled_label_columns_and_rows_change_nothing(tmp_path, spec, write, write_table, tables):
    write(tmp_path)
    expected = read_table(tmp_path, spec).frame
    header = list(tables[LABELS][0])
    for seed in range(3):
        random.Random(seed).shuffle(header)
        rows = random.Random(seed).sample(tables[LABELS], len(tables[LABELS]))
        write_table(tmp_path / f"{LABELS}.gz", rows, header)
        assert read_table(tmp_path, spec).frame.equals(expected)


def test_the_compressed_original_wins_over_an_unpacked_copy(tmp_path, spec, write, tables):
    write(tmp_path)
    (tmp_path / METADATA).write_text("dicom_id\nnonsense\n")
    assert f"{METADATA}.gz" in read_table(tmp_path, spec).tables


@pytest.mark.parametrize(
    ("table", "row", "change", "message"),
    [
        (SPLIT, 0, {"split": "val"}, r"split.csv.gz: column 'split': .*'validate'.*\(row 2\)"),
        (SPLIT, 1, {"split": "test"}, "1 subjects are in more than one split"),
        (SPLIT, 0, {"subject_id": "10000032.0"}, "column 'subject_id': expected digits only"),
        (SPLIT, 6, {"dicom_id": "zz"}, r"metadata.csv.gz: images have no row in the split table \(row 8\)"),
        (SPLIT, 1, {"dicom_id": "a0"}, r"split.csv.gz: dicom_id repeats \(rows 2, 3\)"),
        (METADATA, 1, {"dicom_id": "a0"}, r"metadata.csv.gz: image ids repeat \(rows 2, 3\)"),
        (
            LABELS,
            1,
            {"subject_id": "10000032", "study_id": "50000001"},
            r"subject_id with study_id repeats \(rows 2, 3\)",
        ),
        (LABELS, 0, {"Edema": "positive"}, r"column 'Edema': expected 1, 0, -1 or blank \(row 2\)"),
    ],
)
def test_defects_are_refused_by_row(tmp_path, spec, write, tables, table, row, change, message):
    tables[table][row] |= change
    write(tmp_path)
    with pytest.raises(DatasetError, match=message) as caught:
        read_table(tmp_path, spec)
    assert "1000003" not in str(caught.value)


def test_ids_that_disagree_between_tables_are_refused(tmp_path, spec, write, tables):
    for meta, split in zip(tables[METADATA], tables[SPLIT], strict=True):
        meta |= {"subject_id": split["subject_id"], "study_id": split["study_id"]}
    tables[METADATA][3]["study_id"] = "50000009"
    write(tmp_path)
    with pytest.raises(DatasetError, match=r"'study_id' differs from the split table \(row 5\)"):
        read_table(tmp_path, spec)


def test_a_missing_table_is_named(tmp_path, spec, write):
    write(tmp_path)
    (tmp_path / f"{SPLIT}.gz").unlink()
    with pytest.raises(DatasetError, match=r"mimic-cxr-2.0.0-split.csv: the table is missing"):
        read_table(tmp_path, spec)


def test_a_login_page_in_place_of_a_table_is_recognised(tmp_path, spec, write):
    write(tmp_path)
    (tmp_path / f"{LABELS}.gz").write_text("<html>PhysioNet login</html>")
    with pytest.raises(DatasetError, match=r"chexpert.csv.gz: a web page"):
        read_table(tmp_path, spec)
