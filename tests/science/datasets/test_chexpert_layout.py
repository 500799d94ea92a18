import random

import pytest

from crs_assets.science.datasets import DatasetError, build_index, read_table

FRONTAL, LATERAL = "view1_frontal.jpg", "view2_lateral.jpg"


@pytest.fixture
def spec(catalogue):
    return catalogue("chexpert")


@pytest.fixture
def row(spec):
    def make(path, view="Frontal", **cells):
        facts = {"Path": path, "Sex": "Female", "Age": "60", "Frontal/Lateral": view, "AP/PA": "AP"}
        return facts | dict.fromkeys(spec.classes, "") | cells

    return make


@pytest.fixture
def rows(row):
    """Two patients in train, one in valid; one lateral view."""
    return {
        "train": [
            row(f"CheXpert-v1.0/train/patient00001/study1/{FRONTAL}", Edema="1.0", Fracture="-1.0", Pneumonia="0.0"),
            row(f"CheXpert-v1.0/train/patient00001/study1/{LATERAL}", "Lateral", Edema="1.0"),
            row(f"CheXpert-v1.0/train/patient00002/study3/{FRONTAL}", Sex="Unknown", Age="0", Cardiomegaly="1"),
        ],
        "valid": [row(f"CheXpert-v1.0/valid/patient64541/study1/{FRONTAL}", Atelectasis="1")],
    }


@pytest.fixture
def write(write_table, write_image, rows):
    """Write tables below ``base`` and images where ``place`` puts them."""

    def tree(root, base, place, tables=("train", "valid")):
        for name in tables:
            write_table(root / base / f"{name}.csv", rows[name])
        seed = 0
        for name in ("train", "valid"):
            for entry in rows[name]:
                seed += 1
                write_image(root / place(name, entry["Path"].split(f"/{name}/")[1]), seed)

    return tree


def _batch(split, key):
    if split == "valid":
        return f"chexpertchestxrays-u20210408/CheXpert-v1.0 batch 1 (validate & csv)/valid/{key}"
    number = 2 if key.startswith("patient00001") else 3
    return f"chexpertchestxrays-u20210408/CheXpert-v1.0 batch {number} (train {number - 1})/{key}"


PLACES = {
    "root is the release": ("", lambda split, key: f"{split}/{key}"),
    "small": ("CheXpert-v1.0-small", lambda split, key: f"CheXpert-v1.0-small/{split}/{key}"),
    "full": ("CheXpert-v1.0", lambda split, key: f"CheXpert-v1.0/{split}/{key}"),
    "doubled": ("CheXpert-v1.0/CheXpert-v1.0", lambda split, key: f"CheXpert-v1.0/CheXpert-v1.0/{split}/{key}"),
    "val for valid": ("", lambda split, key: f"{split.replace('valid', 'val')}/{key}"),
    "batches": ("chexpertchestxrays-u20210408/CheXpert-v1.0 batch 1 (validate & csv)", _batch),
}


@pytest.mark.parametrize("variant", PLACES)
def test_every_release_gives_the_same_ids_and_finds_its_images(tmp_path, spec, write, variant):
    write(tmp_path, *PLACES[variant])
    raw = read_table(tmp_path, spec)
    assert raw.frame["image_id"].to_list() == [
        "chexpert/patient00001/study1/view1_frontal",
        "chexpert/patient00002/study3/view1_frontal",
        "chexpert/patient64541/study1/view1_frontal",
    ]
    assert raw.frame["group_id"].to_list() == [f"chexpert::patient{n}" for n in ("00001", "00002", "64541")]
    assert [(item.reason, item.rows) for item in raw.exclusions] == [("lateral_view", 1)]
    assert build_index(raw, tmp_path, spec, workers=2).frame["quarantine"].null_count() == 3


def test_cells_and_subgroups(tmp_path, spec, write):
    write(tmp_path, *PLACES["small"])
    frame = read_table(tmp_path, spec).frame
    assert frame["label:Edema"].to_list() == [1, None, None]
    assert frame["label:Fracture"].to_list() == [-1, None, None]
    assert frame["label:Pneumonia"].to_list() == [0, None, None]
    assert frame["label:Cardiomegaly"].to_list() == [None, 1, None]
    assert frame["sub:sex"].to_list() == ["female", None, "female"]
    assert frame["sub:age"].to_list() == [60.0, None, 60.0]
    assert frame["sub:view"].to_list() == ["AP", "AP", "AP"]


def test_labels_are_matched_by_name(tmp_path, spec, write, write_table, rows):
    write(tmp_path, *PLACES["full"])
    expected = read_table(tmp_path, spec).frame
    for name, entries in rows.items():
        header = list(entries[0])
        random.Random(1).shuffle(header)
        shouted = [
            {key.upper() if key in spec.classes else key: cell for key, cell in entry.items()} for entry in entries
        ]
        header = [key.upper() if key in spec.classes else key for key in header]
        write_table(tmp_path / "CheXpert-v1.0" / f"{name}.csv", shouted, header)
    assert read_table(tmp_path, spec).frame.equals(expected)


def test_chexlocalize_has_no_view_sex_or_age(tmp_path, catalogue, write_table, rows, spec):
    # Its test table drops these columns; the view is in the file name.
    options = {"tables": ["test_labels.csv"]}
    entries = [
        {"Path": f"test/patient64741/study1/{name}"} | dict.fromkeys(spec.classes, "0.0") for name in (FRONTAL, LATERAL)
    ]
    write_table(tmp_path / "CheXlocalize" / "CheXpert" / "test_labels.csv", entries)
    (tmp_path / "CheXlocalize" / "CheXpert" / "test").mkdir()
    raw = read_table(tmp_path / "CheXlocalize", catalogue("chexpert", reader_options=options))
    assert raw.frame["path"].to_list() == [f"CheXpert/test/patient64741/study1/{FRONTAL}"]
    assert raw.frame["sub:sex"].to_list() == [None]
    assert {item.reason for item in raw.notices} >= {"subgroup_unknown_throughout:sex"}


def test_frontal_with_an_odd_projection_stays(tmp_path, spec, write, rows):
    # 17 frontal rows of train.csv have LL or RL; they are part of the 191,027.
    rows["train"][0]["AP/PA"] = "LL"
    write(tmp_path, *PLACES["small"])
    assert read_table(tmp_path, spec).frame["sub:view"][0] == "LL"


def test_windows_paths_are_the_same_images(tmp_path, spec, write, write_table, rows):
    write(tmp_path, *PLACES["small"])
    expected = read_table(tmp_path, spec).frame
    for entry in rows["train"]:
        entry["Path"] = entry["Path"].replace("/", "\\")
    write_table(tmp_path / "CheXpert-v1.0-small" / "train.csv", rows["train"])
    assert read_table(tmp_path, spec).frame.equals(expected)


def test_rows_without_any_label_stay_and_are_noticed(tmp_path, spec, write, rows):
    rows["valid"][0]["Atelectasis"] = ""
    write(tmp_path, *PLACES["small"])
    raw = read_table(tmp_path, spec)
    assert raw.frame.height == 3
    assert [(item.reason, item.rows) for item in raw.notices] == [("no_label_observed", 1)]


def test_all_problems_at_once_by_row_and_without_ids(tmp_path, spec, write, rows):
    rows["train"][0] |= {"Edema": "yes", "Age": "411"}
    rows["train"][1]["Frontal/Lateral"] = "PA"
    rows["train"][2] |= {"Path": "patient00002.jpg", "Pneumonia": "0,5"}
    rows["valid"][0]["Path"] = rows["train"][0]["Path"]
    rows["valid"][0]["Fracture"] = "2"
    write_rows = dict(rows)
    for name, entries in write_rows.items():
        (tmp_path / f"{name}.csv").write_text(_csv(entries))
    with pytest.raises(DatasetError) as caught:
        read_table(tmp_path, spec)
    text = str(caught.value)
    for expected in (
        "train.csv: column 'Edema': expected 1, 0, -1 or blank (row 2)",
        "train.csv: column 'Age': expected an age in years from 0 to 120 (row 2)",
        "train.csv: column 'Frontal/Lateral': expected Frontal or Lateral (row 3)",
        "train.csv: column 'Path': expected",
        "train.csv: column 'Pneumonia': expected 1, 0, -1 or blank (row 4). Export numbers with a decimal point",
        "valid.csv: column 'Fracture'",
    ):
        assert expected in text
    assert "patient0000" not in text
    assert "411" not in text


def _csv(entries):
    quoted = (",".join(f'"{cell}"' for cell in entry.values()) for entry in entries)
    return "\n".join([",".join(entries[0]), *quoted])


def test_one_image_in_both_tables_is_refused(tmp_path, spec, write, write_table, rows):
    write(tmp_path, *PLACES["small"])
    rows["valid"].append(rows["train"][0])
    write_table(tmp_path / "CheXpert-v1.0-small" / "valid.csv", rows["valid"])
    with pytest.raises(DatasetError, match=r"train.csv: image ids repeat \(row 2\)[\s\S]*valid.csv: .* \(row 3\)"):
        read_table(tmp_path, spec)


@pytest.mark.parametrize(
    ("tables", "message"),
    [(("train",), "valid.csv: the table is missing"), ((), "not found")],
)
def test_missing_tables_are_refused(tmp_path, spec, write, tables, message):
    write(tmp_path, *PLACES["small"], tables=tables)
    with pytest.raises(DatasetError, match=message):
        read_table(tmp_path, spec)


def test_two_releases_below_one_root_are_refused(tmp_path, spec, write):
    write(tmp_path, *PLACES["small"])
    write(tmp_path, *PLACES["full"])
    with pytest.raises(DatasetError, match="2 copies"):
        read_table(tmp_path, spec)


def test_missing_label_column_is_refused(tmp_path, spec, write, write_table, rows):
    write(tmp_path, *PLACES["small"])
    for entry in rows["train"]:
        del entry["Edema"]
    write_table(tmp_path / "CheXpert-v1.0-small" / "train.csv", rows["train"])
    with pytest.raises(DatasetError, match=r"columns missing: \['Edema'\]"):
        read_table(tmp_path, spec)
