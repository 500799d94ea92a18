from pathlib import Path

import pytest

from crs_assets.science.datasets import DatasetError, build_index, check_expected, load_dataset_spec, read_table
from crs_assets.science.datasets.counts import count_raw
from crs_assets.science.datasets.tables import DatasetIndex

CATALOG = Path(__file__).parents[3] / "crs_assets" / "catalog" / "datasets"
TRUTH, METADATA = "ISIC_2019_Training_GroundTruth.csv", "ISIC_2019_Training_Metadata.csv"
FOLDER = "ISIC_2019_Training_Input"


@pytest.fixture
def spec(catalogue):
    return catalogue("isic2019")


@pytest.fixture
def tables(spec):
    images = [
        ("ISIC_0000000", "NV", "", "55", "female"),
        ("ISIC_0000013_downsampled", "MEL", "MSK4_0011169", "", "male"),
        ("ISIC_0024306", "AK", "HAM_0000550", "45", ""),
        ("ISIC_0024307", "AK", "HAM_0000550", "50", "male"),
        ("ISIC_0053453", "SCC", "BCN_0000001", "0", "male"),
    ]
    columns = [*spec.classes, "UNK"]
    return {
        TRUTH: [{"image": name} | {c: str(float(c == label)) for c in columns} for name, label, *_ in images],
        METADATA: [
            {"image": name, "age_approx": age, "anatom_site_general": "head/neck", "lesion_id": lesion, "sex": sex}
            for name, _, lesion, age, sex in images
        ],
    }


@pytest.fixture
def write(write_table, tables):
    def tree(root):
        for name, rows in tables.items():
            write_table(root / name, rows)

    return tree


def test_the_real_tables(shared_data):
    spec = load_dataset_spec(CATALOG / "isic2019.toml")
    raw = read_table(shared_data / "meta_isic2019", spec)
    assert check_expected(DatasetIndex(raw.frame, count_raw(raw, spec)), spec) == []
    # Counted from the files: images in lesions of more than one, unknown sex, site and age, suffixes, prefixes.
    sizes = raw.frame.group_by("group_id").len()["len"]
    assert int(sizes.filter(sizes > 1).sum()) == 16_459
    assert sizes.max() == 31
    unknown = [raw.frame[f"sub:{name}"].null_count() for name in ("sex", "anatom_site", "age")]
    assert unknown == [384, 2_631, 437]
    assert raw.frame["image_id"].str.ends_with("_downsampled").sum() == 2_074
    centres = dict(raw.frame["sub:centre"].drop_nulls().value_counts().iter_rows())
    assert (centres["BCN"], centres["HAM"]) == (12_413, 10_015)
    assert raw.exclusions == ()
    assert [(item.reason, item.rows) for item in raw.notices] == [("without_group", 2_084)]


@pytest.mark.parametrize(
    ("base", "folder"), [("", FOLDER), ("", f"{FOLDER}/{FOLDER}"), ("isic-2019", f"isic-2019/{FOLDER}")]
)
def test_images_lie_plain_doubled_or_nested(tmp_path, spec, write, write_image, tables, base, folder):
    write(tmp_path / base)
    for seed, row in enumerate(tables[TRUTH]):
        write_image(tmp_path / folder / f"{row['image']}.jpg", seed)
    (tmp_path / folder / "ATTRIBUTION.txt").write_text("terms")
    (tmp_path / folder / "._ISIC_0024306.jpg").write_bytes(b"\0\0")
    raw = read_table(tmp_path, spec)
    assert raw.frame["path"][1] == f"{folder}/ISIC_0000013_downsampled.jpg"
    assert build_index(raw, tmp_path, spec, workers=2).frame["quarantine"].null_count() == 5


def test_labels_groups_and_subgroups(tmp_path, spec, write):
    write(tmp_path)
    frame = read_table(tmp_path, spec).frame
    assert [spec.classes[label] for label in frame["label"]] == ["NV", "MEL", "AK", "AK", "SCC"]
    assert frame["group_id"].to_list() == [
        "isic2019::ISIC_0000000",
        "isic2019::MSK4_0011169",
        "isic2019::HAM_0000550",
        "isic2019::HAM_0000550",
        "isic2019::BCN_0000001",
    ]
    assert frame["sub:centre"].to_list() == [None, "MSK", "HAM", "HAM", "BCN"]
    assert frame["sub:age"].to_list() == [55.0, None, 45.0, 50.0, 0.0]
    assert frame["sub:sex"].to_list() == ["female", "male", None, "male", "male"]


def test_columns_and_rows_in_another_order_with_extra_columns(tmp_path, spec, write, write_table, tables):
    write(tmp_path)
    expected = read_table(tmp_path, spec).frame
    reordered = [dict(reversed(row.items())) | {"diagnosis": "x", "target": "1"} for row in tables[TRUTH]]
    write_table(tmp_path / TRUTH, reordered)
    write_table(tmp_path / METADATA, tables[METADATA][::-1])
    assert read_table(tmp_path, spec).frame.equals(expected)


def test_whole_numbers_are_the_same_labels(tmp_path, spec, write, tables):
    write(tmp_path)
    expected = read_table(tmp_path, spec).frame
    for row in tables[TRUTH]:
        row.update({key: str(int(float(cell))) for key, cell in row.items() if key != "image"})
    write(tmp_path)
    assert read_table(tmp_path, spec).frame.equals(expected)


def test_the_unknown_class_is_left_out_and_counted(tmp_path, spec, write, tables):
    tables[TRUTH][0] |= {"NV": "0.0", "UNK": "1.0"}
    write(tmp_path)
    raw = read_table(tmp_path, spec)
    assert raw.frame.height == 4
    assert [(item.reason, item.rows) for item in raw.exclusions] == [("unknown_class", 1)]


@pytest.mark.parametrize(
    ("table", "row", "change", "message"),
    [
        (TRUTH, 0, {"MEL": "1.0"}, r"do not sum to 1 \(row 2\)"),
        (TRUTH, 1, {"MEL": "0.0"}, r"do not sum to 1 \(row 3\)"),
        (TRUTH, 2, {"AK": "0.5"}, r"column 'AK': expected 0 or 1 \(row 4\)"),
        (TRUTH, 2, {"AK": ""}, r"column 'AK': expected 0 or 1 \(row 4\)"),
        (TRUTH, 3, {"image": "ISIC_0024306"}, r"image ids repeat \(rows 4, 5\)"),
        (TRUTH, 3, {"image": "isic_0024306"}, r"differ in case only \(rows 4, 5\)"),
        (TRUTH, 3, {"image": " ISIC_0024307"}, r"white space at an end.*\(row 5\)"),
        # The suffix is part of the id: without it the metadata describe another image.
        (METADATA, 1, {"image": "ISIC_0000013"}, rf"{TRUTH}: images have no row in {METADATA} \(row 3\)"),
        (METADATA, 3, {"image": "ISIC_0024306"}, rf"{METADATA}: images repeat \(rows 4, 5\)"),
        (METADATA, 2, {"age_approx": "4,5"}, r"column 'age_approx': .*\(row 4\). Export numbers with a decimal point"),
        (METADATA, 2, {"lesion_id": "HAM_1 "}, "groups have white space at an end"),
    ],
)
def test_defects_are_refused_by_row(tmp_path, spec, write, tables, table, row, change, message):
    tables[table][row] |= change
    write(tmp_path)
    with pytest.raises(DatasetError, match=message) as caught:
        read_table(tmp_path, spec)
    assert "ISIC_00" not in str(caught.value)
    assert "HAM_" not in str(caught.value)


@pytest.mark.parametrize(("table", "column"), [(TRUTH, "AK"), (METADATA, "lesion_id")])
def test_missing_columns_are_named(tmp_path, spec, write, tables, table, column):
    for row in tables[table]:
        row[f"{column}IEC"] = row.pop(column)
    write(tmp_path)
    with pytest.raises(DatasetError, match=rf"{table}: columns missing: \['{column}'\]"):
        read_table(tmp_path, spec)
