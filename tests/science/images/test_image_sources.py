from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crs_assets.science.images import ImageError, load_image

PIXELS = np.random.default_rng(3).integers(0, 256, (20, 24, 3), dtype=np.uint8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "a folder").mkdir(parents=True)
    Image.fromarray(PIXELS).save(root / "a folder" / "é, 1.png")
    Image.fromarray(PIXELS).save(tmp_path / "secret.png")
    (root / "out.png").symlink_to(tmp_path / "secret.png")
    (root / "in.png").symlink_to(root / "a folder" / "é, 1.png")
    stack = np.stack([PIXELS, 255 - PIXELS])
    np.savez_compressed(root / "set.npz", train_images=stack, grey=stack[..., 0], wide=stack.astype(np.int32))
    return root


@pytest.mark.parametrize("reference", ["a folder/é, 1.png", "./a folder/é, 1.png", "in.png"])
def test_paths_inside_the_root(root: Path, reference: str) -> None:
    np.testing.assert_array_equal(load_image(root, reference), PIXELS)


def test_a_linked_root_is_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    np.testing.assert_array_equal(load_image(tmp_path / "link", "in.png"), PIXELS)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("/etc/passwd", "unsafe_path"),
        ("../secret.png", "unsafe_path"),
        ("a folder/../../secret.png", "unsafe_path"),
        ("a folder/../in.png", "unsafe_path"),
        ("out.png", "unsafe_path"),
        ("C:/x.png", "unsafe_path"),
        ("a folder\\x.png", "unsafe_path"),
        ("npz:../set.npz#train_images/0", "unsafe_path"),
        ("", "bad_reference"),
        ("a\0.png", "bad_reference"),
        ("npz:set.npz", "bad_reference"),
        ("npz:set.npz#train_images/-1", "bad_reference"),
        ("npz:set.npz#train_images/2", "bad_reference"),
        ("npz:set.npz#absent/0", "bad_reference"),
        ("npz:set.npz#wide/0", "unsupported_mode"),
        ("npz:absent.npz#train_images/0", "missing_file"),
        ("absent.png", "missing_file"),
        ("a folder", "unreadable_file"),
    ],
)
def test_refused_references(root: Path, reference: str, reason: str) -> None:
    with pytest.raises(ImageError) as caught:
        load_image(root, reference)
    assert caught.value.reason == reason
    assert str(root) not in str(caught.value)


def test_npz_entries(root: Path) -> None:
    np.testing.assert_array_equal(load_image(root, "npz:set.npz#train_images/1"), 255 - PIXELS)
    np.testing.assert_array_equal(load_image(root, "npz:set.npz#grey/0"), PIXELS[..., 0])


def test_npz_entries_are_copies(root: Path) -> None:
    load_image(root, "npz:set.npz#grey/0")[:] = 0
    np.testing.assert_array_equal(load_image(root, "npz:set.npz#grey/0"), PIXELS[..., 0])


def test_a_replaced_npz_is_read_anew(root: Path) -> None:
    load_image(root, "npz:set.npz#grey/0")
    np.savez(root / "set.npz", grey=np.full((1, 20, 20), 9, np.uint8))
    assert (load_image(root, "npz:set.npz#grey/0") == 9).all()


def test_npz_size_limits(root: Path) -> None:
    for options, reason in (({"min_side": 21}, "too_small"), ({"max_pixels": 479}, "too_large")):
        with pytest.raises(ImageError) as caught:
            load_image(root, "npz:set.npz#grey/0", **options)
        assert caught.value.reason == reason


def test_a_damaged_npz_is_named(root: Path) -> None:
    (root / "bad.npz").write_bytes((root / "set.npz").read_bytes()[:200])
    with pytest.raises(ImageError) as caught:
        load_image(root, "npz:bad.npz#grey/0")
    assert caught.value.reason == "corrupt_data"


def test_a_npz_of_python_objects_is_refused(root: Path) -> None:
    np.savez(root / "objects.npz", grey=np.array([{}, {}], dtype=object))
    with pytest.raises(ImageError) as caught:
        load_image(root, "npz:objects.npz#grey/0")
    assert caught.value.reason == "corrupt_data"
