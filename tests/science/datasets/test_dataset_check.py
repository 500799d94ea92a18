import hashlib

import numpy as np
import polars as pl
import pytest
from PIL import Image

from crs_assets.science.datasets import check_dataset, near_duplicates, render_check
from crs_assets.science.datasets.near_duplicates import perceptual_hashes
from crs_assets.science.protocol import load_protocol


@pytest.fixture
def spec(catalogue):
    def load(**changes):
        facts = {"id": "mine", "task": "multiclass", "classes": ["ill", "well"], "reader": "manifest"}
        return catalogue("aptos2019", group="patient", **(facts | changes))

    return load


@pytest.fixture
def cohort(tmp_path, write_table, write_image):
    """240 images of 120 patients, every third image ill."""

    def write(edit=lambda rows: rows, n=240):
        rows = [
            {"image_id": f"i{k:03}", "path": f"img/{k:03}.png", "patient_id": f"p{k // 2}",
             "label": "ill" if k % 3 == 0 else "well", "sub:sex": "F"}
            for k in range(n)
        ]  # fmt: skip
        for k in range(n):
            if not (tmp_path / "img" / f"{k:03}.png").exists():
                write_image(tmp_path / "img" / f"{k:03}.png", k)
        write_table(tmp_path / "manifest.csv", edit(rows))
        return tmp_path

    return write


def test_a_sound_data_set(cohort, spec):
    check = check_dataset(cohort(), spec(), protocol="demo-v1")
    assert check.usable
    assert check.exclusions == ()
    # 40 px are few for every encoder, and noise is at times brighter in its corners: flags, nothing else.
    assert "240 images are flagged small." in check.warnings
    assert all("are flagged" in text for text in check.warnings)
    assert check.classes["eligible"].to_list() == [True, True]
    assert check.roles["images"].sum() == 240
    assert check.roles["groups"].sum() == 120
    assert check.fractions["fraction"].to_list() == [0.05, 0.25, 1.0]
    text = render_check(check)
    assert text.startswith("mine: can be used\n")
    assert "test" in text
    assert "scored" in text


def test_where_two_label_fractions_are_the_same_images_it_is_measured_only(cohort, spec):
    protocol = load_protocol("demo-v1")
    # A quarter, and an image in ten thousand more, of some 140 training images.
    close = protocol.data.model_copy(update={"fractions": (0.25, 0.2501, 1.0)})
    check = check_dataset(cohort(), spec(), protocol=protocol.model_copy(update={"data": close}))
    assert check.usable
    assert check.measured_only
    assert render_check(check).startswith("mine: can be measured, but not scored: see the warnings\n")


def test_everything_is_told_at_once_with_rows(cohort, spec, tmp_path):
    def edit(rows):
        (tmp_path / rows[0]["path"]).write_bytes(b"")
        (tmp_path / rows[5]["path"]).unlink()
        rows[7]["sub:sex"] = "M"  # the other image of this patient is F
        return rows

    check = check_dataset(cohort(edit), spec(subgroups=["sex"]), protocol="demo-v1")
    assert check.exclusions == (
        "1 images: empty_file (manifest.csv, row 2)",
        "1 images: missing_file (manifest.csv, row 7)",
    )
    assert "1 groups have more than one sex." in check.warnings
    assert check.usable


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda row: {"image_id": "i000"}, r"image ids repeat \(rows 2, 4\)"),
        (lambda row: {"path": "img/000.png"}, r"paths repeat \(rows 2, 4\)"),
        (lambda row: {"path": "img\\002.png"}, r"expected a relative path.*row 4"),
        (lambda row: {"path": "../002.png"}, r"expected a relative path.*row 4"),
        (lambda row: {"image_id": "I000"}, r"differ in case only \(rows 2, 4\)"),
        (lambda row: {"label": "unsure"}, r"expected one of the classes.*row 4"),
    ],
)
def test_a_table_that_cannot_be_used(cohort, spec, edit, message):
    def third_row(rows):
        rows[2] |= edit(rows[2])
        return rows

    check = check_dataset(cohort(third_row), spec(), protocol="demo-v1")
    assert not check.usable
    assert len(check.problems) == 1
    assert pl.Series(check.problems).str.contains(message).all()
    assert check.problems[0] in render_check(check)


def test_missing_files_are_told_beside_wrong_labels(cohort, spec, tmp_path):
    def edit(rows):
        (tmp_path / rows[5]["path"]).unlink()
        rows[2]["label"] = "unsure"
        return rows

    check = check_dataset(cohort(edit), spec(), protocol="demo-v1")
    assert check.problems == (
        "manifest.csv: column 'label': expected one of the classes ['ill', 'well'] (row 4). Correct the cells.",
        "manifest.csv: image files are missing (row 7). Put them there, or they are left out.",
    )


def test_a_wrong_folder_is_told_beside_wrong_labels(cohort, spec, tmp_path):
    root = cohort(lambda rows: [row | {"label": "unsure"} for row in rows])
    (tmp_path / "img").rename(tmp_path / "elsewhere")
    labels, files = check_dataset(root, spec(), protocol="demo-v1").problems
    assert "column 'label'" in labels
    assert files.startswith("mine: 240 of 240 image files are missing, though the tables were found.")


def test_a_wrong_folder_is_told_beside_missing_columns(cohort, spec, tmp_path):
    root = cohort(lambda rows: [{key: row[key] for key in row if key != "label"} for row in rows])
    (tmp_path / "img").rename(tmp_path / "elsewhere")
    columns, files = check_dataset(root, spec(), protocol="demo-v1").problems
    assert columns.startswith("manifest.csv: columns missing: ['label:ill', 'label:well']")
    assert files.startswith("mine: 240 of 240 image files are missing")


def test_the_tables_alone_give_the_same_as_long_as_the_images_are_sound(cohort, spec, tmp_path):
    root = cohort()
    opened = check_dataset(root, spec(), protocol="demo-v1")
    for image in (tmp_path / "img").iterdir():
        image.write_bytes(b"nothing that decodes")
    told = check_dataset(root, spec(), protocol="demo-v1", images=False)
    assert told.usable
    for table in ("classes", "roles", "fractions"):
        assert getattr(told, table).equals(getattr(opened, table))
    assert set(told.warnings) == {text for text in opened.warnings if "flagged" not in text}
    (tmp_path / "img" / "005.png").unlink()
    fewer = check_dataset(root, spec(), protocol="demo-v1", images=False)
    assert fewer.exclusions == ("1 images: missing_file (manifest.csv, row 7)",)
    assert fewer.roles["images"].sum() == 239


# Of 24 images 8 are ill; the test set takes a fifth of each class, 2 of these, and the protocol asks for 10.
def test_too_few_positives_are_told_by_the_tables_alone(cohort, spec):
    check = check_dataset(cohort(n=24), spec(), protocol="demo-v1", images=False)
    assert check.problems == (
        "no class has enough positives and negatives to be scored. Add images, or join rare classes.",
    )
    assert "2 test positives, 10 needed" in check.classes["reason"][0]


def test_a_patient_in_two_splits_of_a_vendor(cohort, spec):
    check = check_dataset(
        cohort(lambda rows: [row | {"split": "train" if k else "test"} for k, row in enumerate(rows)]), spec()
    )
    assert "groups are in more than one split (rows 2, 3)" in check.problems[0]


def test_declared_facts_are_checked_against_the_files(cohort, spec, tmp_path):
    def edit(rows):
        for row in rows:
            data = (tmp_path / row["path"]).read_bytes()
            row |= {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data), "width": 40, "height": 40}
        rows[3]["sha256"] = "0" * 64
        rows[4]["width"] = 41
        return rows

    check = check_dataset(cohort(edit), spec(), protocol="demo-v1")
    assert [text.split(".csv: ")[1] for text in check.problems] == [
        "column 'sha256' differs from the files (row 5). Correct either.",
        "column 'width' differs from the files (row 6). Correct either.",
    ]


def test_unknown_patients_and_one_sided_sites_are_warned_of(cohort, spec):
    def edit(rows):
        for k, row in enumerate(rows):
            row["patient_id"] = "" if k < 60 else row["patient_id"]
            row["sub:site"] = "a" if row["label"] == "ill" else "b" if k % 2 else "c"
        rows[0]["sub:site"] = "b"
        return rows

    check = check_dataset(cohort(edit), spec(subgroups=["site"]), protocol="demo-v1")
    assert any("60 of 240 images have no known patient" in text for text in check.warnings)
    # Site a holds ill images only, c well ones only, b both.
    assert any("2 of 3 sites have one class only" in text for text in check.warnings)


def test_a_subgroup_without_a_column_is_told_with_the_columns_there_are(cohort, spec):
    check = check_dataset(cohort(), spec(subgroups=["sex", "skin_type"]), protocol="demo-v1")
    (told,) = [text for text in check.warnings if "subgroups" in text]
    assert told.startswith("manifest.csv: subgroups names 'skin_type', and there is no column 'sub:skin_type'")
    assert "['image_id', 'path', 'patient_id', 'label', 'sub:sex']" in told
    assert "take 'skin_type' out of subgroups" in told
    assert told in render_check(check)
    assert check.usable


def test_a_subgroup_is_found_under_the_name_that_the_entry_gives_it(cohort, spec):
    gender = cohort(lambda rows: [{("gender" if key == "sub:sex" else key): row[key] for key in row} for row in rows])
    options = {"columns": {"sex": "gender"}}
    check = check_dataset(gender, spec(subgroups=["sex"], reader_options=options), protocol="demo-v1")
    assert not [text for text in check.warnings if "subgroup" in text]


def test_a_subgroup_with_blank_cells_only_is_told_once(cohort, spec):
    blank = cohort(lambda rows: [row | {"sub:sex": "unknown"} for row in rows])
    check = check_dataset(blank, spec(subgroups=["sex"]), protocol="demo-v1")
    (told,) = [text for text in check.warnings if "subgroup" in text]
    assert told.startswith("subgroup 'sex' is unknown for every image")


def test_a_missing_subgroup_is_told_beside_what_makes_a_table_unusable(cohort, spec):
    check = check_dataset(cohort(lambda rows: [row | {"label": "unsure"} for row in rows]), spec(subgroups=["eye"]))
    assert "expected one of the classes" in check.problems[0]
    assert "there is no column 'sub:eye' or 'eye'" in check.warnings[0]


def test_too_few_of_every_class_is_a_problem(cohort, spec):
    check = check_dataset(cohort(n=24), spec(), protocol="demo-v1")
    assert any("no class has enough" in text for text in check.problems)
    assert "needed" in render_check(check)


def test_a_target_is_judged_as_a_whole(cohort, spec):
    check = check_dataset(cohort(), spec(role="target"), protocol="demo-v1")
    assert check.usable
    assert check.roles.is_empty()
    assert check.classes["test_positives"].to_list() == [80, 160]


@pytest.fixture
def smooth(tmp_path, write_table):
    """Twelve smooth pictures of 128 px, as radiographs are; one of them again, re-encoded and resized."""
    rng = np.random.default_rng(0)
    rows = []
    for k in range(12):
        coarse = Image.fromarray(rng.integers(0, 256, (9, 9), dtype=np.uint8))
        coarse.resize((128, 128), Image.Resampling.BICUBIC).save(tmp_path / f"{k}.png")
        rows.append(f"{k}.png")
    original = Image.open(tmp_path / "3.png")
    original.save(tmp_path / "copy.jpg", quality=60)
    original.resize((96, 96), Image.Resampling.BILINEAR).save(tmp_path / "small.png")
    original.resize((40, 40)).save(tmp_path / "tiny.png")
    rows += ["copy.jpg", "small.png", "tiny.png"]
    write_table(
        tmp_path / "manifest.csv",
        [
            {"image_id": name.partition(".")[0], "path": name, "patient_id": f"p{n}", "label": "ill"}
            for n, name in enumerate(rows)
        ],
    )
    return tmp_path


def test_altered_copies_are_found_and_unrelated_images_are_not(smooth, spec):
    chest = spec(specialty="chest", min_side=16)
    check = check_dataset(smooth, chest, protocol="demo-v1", look_alikes=True)
    pairs = check.near_duplicates
    assert pairs.select("image_a", "image_b").rows() == [
        ("mine/3", "mine/copy"), ("mine/3", "mine/small"), ("mine/copy", "mine/small"),
    ]  # fmt: skip
    assert (pairs["correlation"] > 0.99).all()
    assert any("3 pairs of images in different groups look alike" in text for text in check.warnings)


def test_fundus_images_are_not_compared(smooth, spec):
    check = check_dataset(smooth, spec(specialty="fundus", min_side=16), protocol="demo-v1", look_alikes=True)
    assert check.near_duplicates.is_empty()
    assert any("fundus images resemble each other" in text for text in check.warnings)
    with pytest.raises(ValueError, match="exact duplicates"):
        near_duplicates(pl.DataFrame(), smooth, spec(specialty="fundus"))


def test_hash_ignores_brightness_and_contrast():
    rng = np.random.default_rng(1)
    coarse = Image.fromarray(rng.integers(60, 200, (9, 9), dtype=np.uint8))
    picture = np.asarray(coarse.resize((64, 64), Image.Resampling.BICUBIC))
    other = (picture // 2 + 40).astype(np.uint8)
    first, second = perceptual_hashes(np.stack([picture, other]))
    assert int(np.bitwise_count(first ^ second)) <= 2
    # Negated, all but the constant term change sign: nearly every bit turns.
    negated = perceptual_hashes((255 - picture)[None])[0]
    assert int(np.bitwise_count(first ^ negated)) >= 60


def test_resized_copies_of_real_radiographs(shared_data, tmp_path, spec, write_table):
    """A public repository re-split a set by copying with a resize: bytes differ, and one patient is on both sides."""
    folder = shared_data / "chest_kermany" / "images"
    names = sorted(path.name for path in folder.iterdir())[:60]
    rows = []
    for n, name in enumerate(names):
        image = Image.open(folder / name)
        image.save(tmp_path / f"{n}.png")
        rows.append((f"{n}.png", f"person{n}"))
        if n < 5:
            image.resize((image.width * 3 // 4, image.height * 3 // 4)).save(tmp_path / f"{n}-copy.jpg", quality=85)
            rows.append((f"{n}-copy.jpg", f"other{n}"))
    write_table(
        tmp_path / "manifest.csv",
        [{"image_id": f"i{path[:-4]}", "path": path, "patient_id": who, "label": "ill"} for path, who in rows],
    )
    check = check_dataset(tmp_path, spec(specialty="chest"), protocol="demo-v1", look_alikes=True)
    across = check.near_duplicates.filter(~pl.col("same_group"))
    assert across.select("image_a", "image_b").rows() == [(f"mine/i{n}", f"mine/i{n}-copy") for n in range(5)]
