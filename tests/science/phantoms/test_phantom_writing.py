"""Writing: the same bytes twice, all or nothing, never over anything else."""

import json
from dataclasses import replace

import numpy as np
import pytest

from crs_assets.science.phantoms import (
    MARKER,
    PHANTOMS,
    PhantomError,
    contact_sheet,
    fundus,
    isic,
    phantom_version,
    skin,
    write_phantom,
)
from crs_assets.science.phantoms.files import apportion

SMALL = {"n": 8, "size": 40}


def contents(root):
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", PHANTOMS)
def test_two_writes_give_the_same_bytes_and_another_seed_gives_others(name, tmp_path):
    write_phantom(name, tmp_path / "a", **SMALL)
    write_phantom(name, tmp_path / "b", **SMALL)
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    write_phantom(name, tmp_path / "c", seed=1, **SMALL)
    assert contents(tmp_path / "c") != contents(tmp_path / "a")


def test_a_phantom_in_place_is_left_alone(tmp_path):
    root = tmp_path / "skin"
    write_phantom("skin", root, **SMALL)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    write_phantom("skin", root, **SMALL)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "skin").mkdir()
    write_phantom("skin", tmp_path / "skin", **SMALL)
    assert (tmp_path / "skin" / MARKER).is_file()


def test_another_phantom_is_never_overwritten(tmp_path):
    write_phantom("skin", tmp_path / "data", **SMALL)
    before = contents(tmp_path / "data")
    with pytest.raises(
        PhantomError, match=r"holds another phantom: .*'phantom': 'skin'.* wanted .*'phantom': 'fundus'"
    ):
        write_phantom("fundus", tmp_path / "data", **SMALL)
    with pytest.raises(PhantomError, match="holds another phantom"):
        write_phantom("skin", tmp_path / "data", n=9, size=40)
    assert contents(tmp_path / "data") == before


def test_other_files_are_never_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PhantomError, match="it is no phantom"):
        write_phantom("skin", tmp_path, **SMALL)
    assert contents(tmp_path) == {"notes.txt": b"mine"}


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def fails(*_):
        raise OSError("disk full")

    monkeypatch.setattr(isic, "jpeg_bytes", fails)
    with pytest.raises(OSError, match="disk full"):
        write_phantom("skin", tmp_path / "skin", **SMALL)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_phantom_is_refused(tmp_path):
    for call in (lambda: write_phantom("brain", tmp_path / "x"), lambda: phantom_version("brain"),
                 lambda: contact_sheet("brain")):  # fmt: skip
        with pytest.raises(PhantomError, match="unknown phantom 'brain'"):
            call()


def test_the_version_is_in_the_marker_and_depends_on_every_parameter(tmp_path):
    write_phantom("chest", tmp_path / "chest", **SMALL)
    marker = json.loads((tmp_path / "chest" / MARKER).read_text(encoding="utf-8"))
    assert marker["version"] == phantom_version("chest", **SMALL)
    versions = {phantom_version(name) for name in PHANTOMS}
    versions |= {phantom_version("skin", n=9), phantom_version("skin", seed=1), phantom_version("skin", size=40)}
    assert len(versions) == 7


def test_photographs_of_one_lesion_differ_and_lesions_do_not_depend_on_drawing_order():
    lesion = skin.Lesion("0000001", 0)
    first, again, other = (skin.render(lesion, number, 0, 40, 1.0) for number in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (skin.render(replace(lesion, label=2), 0, 0, 40, 1.0) != first).any()


def test_fundus_is_black_outside_the_field_of_view():
    image = fundus.render(fundus.Eye("P1", "left", 2), 0, 64, 1.0)
    assert image.shape == (64, 72, 3)
    assert image[:3, :3].max() == 0
    assert image[32, 36].max() > 20


@pytest.mark.parametrize(
    ("name", "rows", "height", "width"),
    [("skin", 8, 40, 53), ("fundus", 5, 40, 45), ("chest", 14, 40, 48), ("chest_b", 14, 47, 40)],
)
def test_contact_sheets_have_one_row_per_class(name, rows, height, width):
    sheet = contact_sheet(name, columns=2, size=40)
    assert sheet.shape == (rows * height, 2 * width, 3)
    assert sheet.dtype == np.uint8


def test_apportionment_by_hand():
    # 10 by 5:3:1 is 5.56, 3.33, 1.11: floors 5, 3, 1, and the largest remainder takes the tenth.
    assert apportion(10, [5, 3, 1]).tolist() == [6, 3, 1]
