import pytest

from crs_assets.science.datasets import DatasetError, build_index, read_table

IDS = ["000c1434d8d7", "001639a390f0", "0024cdab0c1e"]


@pytest.fixture
def spec(catalogue):
    return catalogue("aptos2019")


@pytest.fixture
def rows():
    return [{"id_code": name, "diagnosis": grade} for name, grade in zip(IDS, ["2", "4", "0"], strict=True)]


@pytest.mark.parametrize(
    ("folder", "extension"),
    [
        ("train_images", "png"),
        ("train_images/train_images", "png"),
        ("train_images", "jpg"),
        ("train_images", "PNG"),
        ("train_images", "jpeg"),
    ],
)
def test_copies_with_other_folders_and_extensions_give_the_same_ids(
    tmp_path, spec, write_table, write_image, rows, folder, extension
):
    write_table(tmp_path / "train.csv", rows)
    for seed, name in enumerate(IDS):
        write_image(tmp_path / folder / f"{name}.{extension}", seed)
    raw = read_table(tmp_path, spec)
    assert raw.frame["image_id"].to_list() == [f"aptos2019/{name}" for name in IDS]
    assert raw.frame["path"].to_list() == [f"{folder}/{name}.{extension}" for name in IDS]
    assert raw.frame["group_id"].to_list() == [f"aptos2019::{name}" for name in IDS]
    assert raw.frame["label"].to_list() == [2, 4, 0]
    assert build_index(raw, tmp_path, spec, workers=1).frame["quarantine"].null_count() == 3


def test_the_layouts_own_extension_wins(tmp_path, spec, write_table, write_image, rows):
    write_table(tmp_path / "train.csv", rows)
    for extension in ("tif", "png", "jpg"):
        write_image(tmp_path / "train_images" / f"{IDS[0]}.{extension}")
    assert read_table(tmp_path, spec).frame["path"][0] == f"train_images/{IDS[0]}.png"


def test_ids_may_carry_an_extension(tmp_path, spec, write_table, rows):
    write_table(tmp_path / "train.csv", [row | {"id_code": f"{row['id_code']}.png"} for row in rows])
    frame = read_table(tmp_path, spec).frame
    assert frame["image_id"].to_list() == [f"aptos2019/{name}" for name in IDS]
    assert frame["path"][0] == f"train_images/{IDS[0]}.png"


def test_two_eyes_of_a_patient_are_one_group_where_patients_are_known(tmp_path, catalogue, write_table, rows):
    people = [("P1", "left"), ("P1", "right"), ("NA", "left")]
    eyes = [row | {"patient_id": who, "eye": eye} for row, (who, eye) in zip(rows, people, strict=True)]
    write_table(tmp_path / "train.csv", eyes)
    frame = read_table(tmp_path, catalogue("demo-fundus")).frame
    assert frame["group_id"].to_list() == ["demo-fundus::P1", "demo-fundus::P1", "demo-fundus::NA"]
    assert frame["sub:eye"].to_list() == ["left", "right", "left"]


@pytest.mark.parametrize("grade", ["5", "-1", "1.5", "", "mild", "1,0", "nan"])
def test_grades_outside_the_scale_are_refused(tmp_path, spec, write_table, rows, grade):
    rows[1]["diagnosis"] = grade
    write_table(tmp_path / "train.csv", rows)
    with pytest.raises(DatasetError, match=r"column 'diagnosis': expected a whole number from 0 to 4 \(row 3\)"):
        read_table(tmp_path, spec)


def test_grades_written_as_decimals_are_the_same(tmp_path, spec, write_table, rows):
    write_table(tmp_path / "train.csv", [row | {"diagnosis": f"{row['diagnosis']}.0"} for row in rows])
    assert read_table(tmp_path, spec).frame["label"].to_list() == [2, 4, 0]


def test_git_lfs_pointers_in_place_of_all_images(tmp_path, spec, write_table, rows):
    # Seen in a public copy: 3,662 of 3,662.
    write_table(tmp_path / "train.csv", rows)
    (tmp_path / "train_images").mkdir()
    for name in IDS:
        (tmp_path / "train_images" / f"{name}.png").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(DatasetError, match=r"none of 3 images can be used \(git_lfs_pointer 3\)"):
        build_index(read_table(tmp_path, spec), tmp_path, spec, workers=1)


def test_a_missing_root_and_a_table_without_rows_are_refused(tmp_path, spec):
    with pytest.raises(DatasetError, match="folder does not exist"):
        read_table(tmp_path / "nowhere", spec)
    (tmp_path / "train.csv").write_text("id_code,diagnosis\n")
    with pytest.raises(DatasetError, match="no rows are left of 0"):
        read_table(tmp_path, spec)


def test_a_copy_divided_into_three_tables_is_the_whole_set(tmp_path, spec, write_table, write_image, rows):
    places = {"train_1": "train_images", "valid": "val_images", "test": "test_images"}
    for seed, (row, (table, folder)) in enumerate(zip(rows, places.items(), strict=True)):
        write_table(tmp_path / f"{table}.csv", [row])
        write_image(tmp_path / folder / folder / f"{row['id_code']}.png", seed)
    raw = read_table(tmp_path, spec)
    assert raw.frame["image_id"].to_list() == [f"aptos2019/{name}" for name in IDS]
    assert raw.frame["label"].to_list() == [2, 4, 0]
    assert raw.tables == ("train_1.csv", "valid.csv", "test.csv")
    assert raw.frame["path"][1] == f"val_images/val_images/{IDS[1]}.png"
    assert build_index(raw, tmp_path, spec, workers=1).frame["quarantine"].null_count() == 3


def test_a_copy_that_lacks_one_of_its_tables_is_refused(tmp_path, spec, write_table, rows):
    write_table(tmp_path / "train_1.csv", rows[:1])
    with pytest.raises(DatasetError, match=r"valid.csv: the table is missing[\s\S]*test.csv: the table is missing"):
        read_table(tmp_path, spec)


def test_the_published_test_table_has_no_grades_and_is_not_read(tmp_path, spec, write_table, rows):
    write_table(tmp_path / "train.csv", rows)
    write_table(tmp_path / "test.csv", [{"id_code": "0005cfc8afb6"}])
    assert read_table(tmp_path, spec).tables == ("train.csv",)


def test_copies_beside_eyepacs_and_in_folders_of_classes(tmp_path, spec, write_table, write_image, rows):
    resized, coloured = tmp_path / "resized", tmp_path / "coloured"
    write_table(resized / "labels" / "trainLabels19.csv", rows)
    write_table(resized / "labels" / "trainLabels15.csv", [{"image": "10_left", "level": "0"}])
    write_table(coloured / "train.csv", rows)
    for seed, (row, name) in enumerate(zip(rows, ("Moderate", "Proliferate_DR", "No_DR"), strict=True)):
        write_image(resized / "resized train 19" / f"{row['id_code']}.jpg", seed)
        write_image(coloured / "colored_images" / name / f"{row['id_code']}.png", seed)
    for root in (resized, coloured):
        raw = read_table(root, spec)
        assert raw.frame["image_id"].to_list() == [f"aptos2019/{name}" for name in IDS]
        assert build_index(raw, root, spec, workers=1).frame["quarantine"].null_count() == 3


def test_filtered_pixels_under_the_same_names_are_not_the_data_set(tmp_path, spec, write_table, write_image, rows):
    write_table(tmp_path / "train.csv", rows)
    for seed, name in enumerate(IDS):
        write_image(tmp_path / "gaussian_filtered_images" / "Mild" / f"{name}.png", seed)
    with pytest.raises(DatasetError, match="3 of 3 image files are missing"):
        build_index(read_table(tmp_path, spec), tmp_path, spec, workers=1)
