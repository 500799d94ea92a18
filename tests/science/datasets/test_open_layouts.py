"""Layouts of the open sets: NIH ChestX-ray14, HAM10000, ISIC 2020, IDRiD, PAD-UFES-20."""

import pytest

from crs_assets.science.datasets import DatasetError, build_index, read_table

NIH_HEADER = [
    "Image Index", "Finding Labels", "Follow-up #", "Patient ID", "Patient Age", "Patient Gender", "View Position",
    "OriginalImage[Width", "Height]", "OriginalImagePixelSpacing[x", "y]", "",
]  # fmt: skip
NIH_ROWS = [
    ("00000001_000.png", "Cardiomegaly|Emphysema", "1", "58", "M", "PA"),
    ("00000001_001.png", "No Finding", "1", "411", "M", "PA"),
    ("00000002_000.png", "Pleural_Thickening", "2", "072Y", "F", "AP"),
    ("00000003_000.png", "Hernia", "3", "005M", "F", "AP"),
]


def counts(items):
    return {item.reason: item.rows for item in items}


@pytest.fixture
def nih(tmp_path, write_table):
    def write(rows=NIH_ROWS, name="Data_Entry_2017.csv"):
        full = [dict.fromkeys(NIH_HEADER, "1") | {"": ""} for _ in rows]
        for row, cells in zip(full, rows, strict=True):
            named = ("Image Index", "Finding Labels", "Patient ID", "Patient Age", "Patient Gender", "View Position")
            row |= dict(zip(named, cells, strict=True))
        write_table(tmp_path / name, full, NIH_HEADER)
        return tmp_path

    return write


def test_nih_findings_of_one_cell(nih, catalogue):
    raw = read_table(nih(), catalogue("nih-chestxray14"))
    # The header's own commas make more columns than names; the columns that matter come before them.
    assert raw.frame["image_id"].to_list() == [f"nih-chestxray14/{row[0][:-4]}" for row in NIH_ROWS]
    assert raw.frame["group_id"].to_list() == [f"nih-chestxray14::0000000{n}" for n in (1, 1, 2, 3)]
    assert raw.frame["label:Cardiomegaly"].to_list() == [1, 0, 0, 0]
    assert raw.frame["label:Emphysema"].to_list() == [1, 0, 0, 0]
    assert raw.frame["label:Pleural_Thickening"].to_list() == [0, 0, 1, 0]
    # Any of the 14: not "No Finding".
    assert raw.frame["label:finding"].to_list() == [1, 0, 1, 1]
    assert raw.frame["sub:sex"].to_list() == ["male", "male", "female", "female"]
    # 058 years, an impossible age, the first release's 072Y, five months.
    assert raw.frame["sub:age"].to_list() == [58.0, None, 72.0, 0.0]
    assert counts(raw.notices) == {"age_above_120": 1}


def test_nih_unknown_findings_are_told_with_rows(nih, catalogue):
    rows = [*NIH_ROWS, ("00000004_000.png", "Edema|Oedema", "4", "30", "F", "PA")]
    with pytest.raises(DatasetError, match=r"Finding Labels.*row 6"):
        read_table(nih(rows), catalogue("nih-chestxray14"))


@pytest.mark.parametrize("layout", [("images_001/images", "images_012/images"), ("images", "images")])
def test_nih_images_in_parts_or_in_one_folder(nih, catalogue, write_image, layout):
    root = nih()
    for n, (name, *_) in enumerate(NIH_ROWS):
        write_image(root / layout[n // 2] / name, n)
    frame = build_index(read_table(root, catalogue("nih-chestxray14")), root, catalogue("nih-chestxray14"), workers=1)
    assert frame.frame["quarantine"].null_count() == 4
    assert frame.frame["path"][3] == f"{layout[1]}/00000003_000.png"


def test_nih_the_corrected_table_is_preferred(nih, catalogue):
    nih()
    root = nih([("00000001_000.png", "Hernia", "1", "58", "M", "PA")], "Data_Entry_2017_v2020.csv")
    raw = read_table(root, catalogue("nih-chestxray14"))
    assert raw.tables == ("Data_Entry_2017_v2020.csv",)
    assert raw.frame.height == 1


HAM_ROWS = [
    {"lesion_id": "HAM_1", "image_id": "ISIC_1", "dx": "akiec", "dx_type": "histo", "age": "80.0", "sex": "male",
     "localization": "scalp"},
    {"lesion_id": "HAM_1", "image_id": "ISIC_2", "dx": "akiec", "dx_type": "histo", "age": "80.0", "sex": "male",
     "localization": "scalp"},
    {"lesion_id": "HAM_2", "image_id": "ISIC_3", "dx": "nv", "dx_type": "follow_up", "age": "", "sex": "unknown",
     "localization": "unknown"},
]  # fmt: skip


@pytest.mark.parametrize("name", ["HAM10000_metadata.csv", "HAM10000_metadata"])
def test_ham10000(tmp_path, catalogue, write_table, write_image, name):
    spec = catalogue("ham10000")
    write_table(tmp_path / name, HAM_ROWS)
    for n, folder in enumerate(["HAM10000_images_part_1", "HAM10000_images_part_1", "HAM10000_images_part_2"]):
        write_image(tmp_path / folder / f"ISIC_{n + 1}.jpg", n)
    raw = read_table(tmp_path, spec)
    assert [spec.classes[label] for label in raw.frame["label"]] == ["AK", "AK", "NV"]
    assert raw.frame["group_id"].to_list() == ["ham10000::HAM_1", "ham10000::HAM_1", "ham10000::HAM_2"]
    assert raw.frame["sub:anatom_site"].to_list() == ["scalp", "scalp", None]
    assert raw.frame["path"][2] == "HAM10000_images_part_2/ISIC_3.jpg"
    # How a diagnosis was made gives it away and is nowhere in the table.
    assert not any("histo" in map(str, raw.frame[column].to_list()) for column in raw.frame.columns)
    assert build_index(raw, tmp_path, spec, workers=1).frame["quarantine"].null_count() == 3


def test_ham10000_needs_the_names_of_its_table(tmp_path, catalogue, write_table):
    write_table(tmp_path / "HAM10000_metadata.csv", HAM_ROWS)
    with pytest.raises(DatasetError, match=r"'dx': expected one of the classes.*rows 2, 3"):
        read_table(tmp_path, catalogue("ham10000", reader_options={}))
    with pytest.raises(DatasetError, match="no classes"):
        read_table(tmp_path, catalogue("ham10000", reader_options={"names": {"akiec": "AKIEC"}}))


@pytest.fixture
def isic2020(tmp_path, write_table):
    people = {"ISIC_1": ("IP_1", "0"), "ISIC_2": ("IP_2", "0"), "ISIC_3": ("IP_3", "1"), "ISIC_4": ("IP_4", "0")}

    def write(pairs=(), people=people):
        rows = [
            {"image_name": name, "patient_id": who, "sex": "female", "age_approx": "45.0", "diagnosis": "unknown",
             "anatom_site_general_challenge": "torso", "benign_malignant": "benign", "target": target}
            for name, (who, target) in people.items()
        ]  # fmt: skip
        write_table(tmp_path / "ISIC_2020_Training_GroundTruth.csv", rows)
        if pairs:
            listed = [{"image_name_1": a, "image_name_2": b} for a, b in pairs]
            write_table(tmp_path / "ISIC_2020_Training_Duplicates.csv", listed)
        return tmp_path

    return write


def test_isic2020_one_label(isic2020, catalogue):
    raw = read_table(isic2020(), catalogue("isic2020"))
    assert raw.frame["label:melanoma"].to_list() == [0, 0, 1, 0]
    assert raw.frame["group_id"].n_unique() == 4
    two = catalogue("isic2020", task="multiclass", classes=["benign", "melanoma"], label_map={})
    assert read_table(isic2020(), two).frame["label"].to_list() == [0, 0, 1, 0]
    with pytest.raises(DatasetError, match="expected one label"):
        read_table(isic2020(), catalogue("isic2020", classes=["melanoma", "nevus"]))


def test_isic2020_listed_duplicates_share_a_group(isic2020, catalogue):
    raw = read_table(isic2020([("ISIC_1", "ISIC_2"), ("ISIC_9", "ISIC_1")]), catalogue("isic2020"))
    groups = raw.frame["group_id"].to_list()
    assert groups[0] == groups[1] == "isic2020::IP_1"
    assert len(set(groups)) == 3
    assert counts(raw.notices) == {"listed_duplicates": 2}


def test_isic2020_contradicting_pairs_are_left_out(isic2020, catalogue):
    raw = read_table(isic2020([("ISIC_1", "ISIC_3")]), catalogue("isic2020"))
    assert raw.frame["image_id"].to_list() == ["isic2020/ISIC_2", "isic2020/ISIC_4"]
    assert counts(raw.exclusions) == {"listed_duplicate_contradicts": 2}


@pytest.fixture
def idrid(tmp_path, write_image):
    truths = tmp_path / "2. Groundtruths"
    truths.mkdir()
    header = "Image name,Retinopathy grade,Risk of macular edema ,,,\n"
    (truths / "a. IDRiD_Disease Grading_Training Labels.csv").write_text(
        f"{header}IDRiD_001,3,2,,,\nIDRiD_002,0,0,,,\n"
    )
    (truths / "b. IDRiD_Disease Grading_Testing Labels.csv").write_text(f"{header}IDRiD_001,4,0,,,\n")
    images = tmp_path / "1. Original Images"
    write_image(images / "a. Training Set" / "IDRiD_001.jpg", 1)
    write_image(images / "a. Training Set" / "IDRiD_002.jpg", 2)
    write_image(images / "b. Testing Set" / "IDRiD_001.jpg", 3)
    return tmp_path


def test_idrid_ids_carry_the_set(idrid, catalogue):
    spec = catalogue("idrid", subgroups=["macular_oedema"])
    raw = read_table(idrid, spec)
    assert raw.frame["image_id"].to_list() == ["idrid/train/IDRiD_001", "idrid/train/IDRiD_002", "idrid/test/IDRiD_001"]
    assert raw.frame["label"].to_list() == [3, 0, 4]
    # The column's name ends in a space, and three columns have no name.
    assert raw.frame["sub:macular_oedema"].to_list() == ["2", "0", "0"]
    assert raw.frame["group_id"].n_unique() == 3
    index = build_index(raw, idrid, spec, workers=1).frame
    assert index["quarantine"].null_count() == 3
    assert index["pixel_digest"].n_unique() == 3


def test_idrid_one_official_set(idrid, catalogue):
    raw = read_table(idrid, catalogue("idrid", reader_options={"split": "test"}))
    assert raw.frame["image_id"].to_list() == ["idrid/test/IDRiD_001"]
    assert counts(raw.exclusions) == {"split_not_selected": 2}


def test_pad_ufes_20(tmp_path, catalogue, write_table, write_image):
    rows = [
        {"patient_id": "PAT_8", "lesion_id": "1", "gender": "", "age": "8", "region": "ARM", "fitspatrick": "",
         "diagnostic": "NEV", "img_id": "PAT_8_15_820.png", "biopsed": "False"},
        {"patient_id": "PAT_46", "lesion_id": "881", "gender": "FEMALE", "age": "55", "region": "NECK",
         "fitspatrick": "2.0", "diagnostic": "BCC", "img_id": "PAT_46_881_939.png", "biopsed": "True"},
    ]  # fmt: skip
    write_table(tmp_path / "metadata.csv", rows)
    write_image(tmp_path / "images" / "imgs_part_1" / "imgs_part_1" / "PAT_8_15_820.png", 1)
    write_image(tmp_path / "images" / "imgs_part_3" / "PAT_46_881_939.png", 2)
    spec = catalogue("pad-ufes-20")
    raw = read_table(tmp_path, spec)
    assert raw.frame["image_id"].to_list() == ["pad-ufes-20/PAT_8_15_820", "pad-ufes-20/PAT_46_881_939"]
    assert raw.frame["group_id"].to_list() == ["pad-ufes-20::PAT_8", "pad-ufes-20::PAT_46"]
    assert raw.frame["sub:skin_type"].to_list() == [None, "2"]
    assert raw.frame["sub:sex"].to_list() == [None, "female"]
    assert raw.frame["sub:anatom_site"].to_list() == ["ARM", "NECK"]
    assert "sub:biopsed" not in raw.frame.columns
    assert build_index(raw, tmp_path, spec, workers=1).frame["quarantine"].null_count() == 2
    rows[1]["fitspatrick"] = "7"
    write_table(tmp_path / "metadata.csv", rows)
    with pytest.raises(DatasetError, match=r"expected 1 to 6 or blank \(row 3\)"):
        read_table(tmp_path, spec)
