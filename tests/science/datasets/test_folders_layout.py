import pytest

from crs_assets.science.datasets import DatasetError, build_index, read_table
from crs_assets.science.toml_models import CatalogError
from crs_assets.science.toml_models import validate as validate_model


@pytest.fixture
def spec(catalogue):
    def load(**options):
        return catalogue(
            "aptos2019", id="mine", task="multiclass", classes=["NORMAL", "PNEUMONIA"], reader="folders",
            group="patient", reader_options=options,
        )  # fmt: skip

    return load


@pytest.fixture
def kermany(tmp_path, write_image):
    """The layout of a public copy: doubled folder, three sets, macOS leftovers."""
    base = tmp_path / "chest_xray" / "chest_xray"
    names = [
        "train/NORMAL/IM-0115-0001.jpeg",
        "train/PNEUMONIA/person1_bacteria_1.jpeg",
        "train/PNEUMONIA/person1_virus_6.JPEG",
        "test/PNEUMONIA/person1_virus_6.jpeg",
    ]
    for n, name in enumerate(names):
        write_image(base / name, n)
    for stray in ("train/NORMAL/._IM-0115-0001.jpeg", ".DS_Store", "train/.DS_Store", "__MACOSX/train/x.jpeg"):
        (base / stray).parent.mkdir(parents=True, exist_ok=True)
        (base / stray).write_bytes(b"\0")
    (base / "train" / "readme.txt").write_text("no image")
    return tmp_path


def test_classes_are_folder_names(kermany, spec):
    raw = read_table(kermany, spec(folder="chest_xray"))
    # Names restart in the other set: the path is part of the id.
    assert dict(zip(raw.frame["image_id"], raw.frame["label"], strict=True)) == {
        "mine/test/PNEUMONIA/person1_virus_6": 1,
        "mine/train/NORMAL/IM-0115-0001": 0,
        "mine/train/PNEUMONIA/person1_bacteria_1": 1,
        "mine/train/PNEUMONIA/person1_virus_6": 1,
    }
    index = build_index(raw, kermany, spec(folder="chest_xray"), workers=1).frame
    assert index["quarantine"].null_count() == 4
    assert [(notice.reason, notice.rows) for notice in raw.notices] == [("without_group", 4)]


def test_groups_by_file_name(kermany, spec):
    raw = read_table(kermany, spec(folder="chest_xray", group_pattern=r"^(person\d+|IM-\d+)"))
    assert set(raw.frame["group_id"]) == {"mine::person1", "mine::IM-0115"}
    assert raw.notices == ()


def test_folders_called_otherwise(tmp_path, write_image, spec):
    write_image(tmp_path / "No_Finding" / "a.png")
    write_image(tmp_path / "pneumonia" / "deep" / "b.png", 1)
    with pytest.raises(DatasetError, match=r"1 images lie in no folder of a class: No_Finding \(1\)"):
        read_table(tmp_path, spec())
    raw = read_table(tmp_path, spec(names={"no finding": "NORMAL"}))
    assert raw.frame["label"].to_list() == [0, 1]
    with pytest.raises(DatasetError, match="no class"):
        read_table(tmp_path, spec(names={"no finding": "HEALTHY"}))


def test_what_cannot_be_read_is_refused(tmp_path, spec, write_image):
    with pytest.raises(DatasetError, match="no file ends in"):
        read_table(tmp_path, spec())
    with pytest.raises(DatasetError, match="no folder 'here'"):
        read_table(tmp_path, spec(folder="here"))
    write_image(tmp_path / "NORMAL" / "a.png")
    several = type(spec()).model_validate(spec().model_dump() | {"task": "multilabel"})
    with pytest.raises(DatasetError, match="Write a manifest"):
        read_table(tmp_path, several)
    write_image(tmp_path / "NORMAL" / "a.jpg")
    with pytest.raises(DatasetError, match="image ids repeat"):
        read_table(tmp_path, spec())


@pytest.mark.parametrize(
    ("pattern", "message"), [("person[0-9]+", "in parentheses"), ("(person", "not a regular expression")]
)
def test_a_group_pattern_must_have_a_group(spec, pattern, message):
    with pytest.raises(CatalogError, match=message):
        validate_model(type(spec()), spec().model_dump() | {"reader_options": {"group_pattern": pattern}}, source="x")
