"""Shelves of prepared images: scratch that saves work and decides nothing."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from crs_assets.resources.prepared_images import PreparedImages

SHAPE = (2, 4, 4, 3)
ROWS = 5
ROW_BYTES = 2 * 4 * 4 * 3


class Maker:
    """Makes rows that differ, and counts how often."""

    def __init__(self):
        self.asked = []

    def __call__(self, row):
        self.asked.append(row)
        return [np.full(SHAPE[1:], 10 * row + condition, np.uint8) for condition in range(SHAPE[0])]


@pytest.fixture
def make():
    return Maker()


def shelf_of(folder, recipe="a", limit=10**6):
    return PreparedImages(folder, limit).shelf({"recipe": recipe}, ROWS, SHAPE)


def test_a_row_is_made_once_and_comes_back_as_it_was(tmp_path, make):
    first = [shelf_of(tmp_path).load(row, make) for row in (3, 0)]
    again = [shelf_of(tmp_path).load(row, make) for row in (3, 0)]
    assert make.asked == [3, 0]
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(again[0][1], np.full(SHAPE[1:], 31))


def test_another_recipe_is_another_shelf(tmp_path, make):
    shelf_of(tmp_path, "a").load(1, make)
    shelf_of(tmp_path, "b").load(1, make)
    assert make.asked == [1, 1]


@pytest.mark.parametrize("harm", ["flip", "truncate", "delete"])
def test_a_damaged_row_is_made_again_and_mended(tmp_path, make, harm):
    shelf = shelf_of(tmp_path)
    shelf.load(2, make)
    content = bytearray(shelf.path.read_bytes())
    content[2 * ROW_BYTES + 7] ^= 1
    if harm == "flip":
        shelf.path.write_bytes(content)
    elif harm == "truncate":
        os.truncate(shelf.path, 2 * ROW_BYTES + 5)
    else:
        shelf.path.unlink()
    np.testing.assert_array_equal(shelf.load(2, make), Maker()(2))
    np.testing.assert_array_equal(shelf.load(2, make), Maker()(2))
    assert make.asked == [2, 2]


def test_a_black_image_is_not_taken_for_a_hole(tmp_path):
    asked = []

    def black(row):
        asked.append(row)
        return [np.zeros(SHAPE[1:], np.uint8)] * 2

    shelf = shelf_of(tmp_path)
    for _ in range(2):
        assert not np.any(shelf.load(4, black))
        assert not np.any(shelf.load(0, black))
    assert asked == [4, 0]


def test_what_was_used_longest_ago_makes_room_and_nothing_is_kept_without_any(tmp_path, make):
    def fill(name, age):
        shelf = shelf_of(tmp_path, name, 2 * 4096)
        shelf.load(0, make)
        os.utime(shelf.path, (age, age))
        return shelf.path

    old, newer = fill("old", 1), fill("newer", 2)
    third = fill("third", 3)
    assert [path.exists() for path in (old, newer, third)] == [False, True, True]
    assert shelf_of(tmp_path, "none", limit=0) is None
    assert shelf_of(tmp_path, "too large", limit=ROWS * ROW_BYTES - 1) is None


def test_a_full_disk_is_told_and_only_slows_the_work(tmp_path, make, monkeypatch, caplog):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    shelf = shelf_of(tmp_path)
    monkeypatch.setattr(os, "pwrite", full)
    for row in (0, 1):
        np.testing.assert_array_equal(shelf.load(row, make), Maker()(row))
    assert caplog.messages == ["prepared images are no longer kept: No space left on device"]


def test_threads_may_ask_for_the_same_rows(tmp_path):
    shelf = shelf_of(tmp_path)
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(lambda row: shelf.load(row, Maker()), [0, 1, 2, 3, 4] * 20))
    for row, images in zip([0, 1, 2, 3, 4] * 20, loaded, strict=True):
        np.testing.assert_array_equal(images, Maker()(row))


def test_a_row_of_another_shape_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"this shelf holds uint8 \(2, 4, 4, 3\)"):
        shelf_of(tmp_path).load(0, lambda _: [np.zeros((4, 4, 3), np.uint8)])
