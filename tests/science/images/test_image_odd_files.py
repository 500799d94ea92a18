"""Every file of the folder of odd images has a decided outcome."""

import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from crs_assets.science.images import ImageError, inspect_image, load_image

# A refused file: its reason. A readable one: its shape and quality flags.
OUTCOMES: dict[str, str | tuple[tuple[int, ...], tuple[str, ...]]] = {
    "693_J2KI.dcm": ((512, 512), ()),
    "CT_small.dcm": ((128, 128), ()),
    "JPGExtended.dcm": "dicom_plugin_missing",
    "MR_truncated.dcm": "truncated",
    "SC_rgb_rle_2frame.dcm": "multi_frame",
    "SC_rgb_small_odd.dcm": "too_small",
    "SC_ybr_full_422_uncompressed.dcm": ((100, 100, 3), ()),
    "animated_2frames.gif": "multi_frame",
    "cxr_16bit_12stored.png": ((599, 640), ()),
    "cxr_16bit_full.png": ((599, 640), ()),
    "cxr_float32.tif": ((599, 640), ()),
    "cxr_inverted.png": ((599, 640), ("bright_corners",)),
    "cxr_jpeg_L.jpg": ((2000, 2000), ("bright_corners",)),  # a film photographed on a bright background
    "cxr_monochrome1_12bit.dcm": ((300, 320), ()),
    "cxr_monochrome2_12bit.dcm": ((300, 320), ()),
    "cxr_png_RGBA.png": ((361, 373, 3), ()),
    "cxr_presentation_inverse.dcm": ((300, 320), ("bright_corners",)),
    "derm_cmyk.jpg": ((150, 200, 3), ()),
    "derm_exif6.jpg": ((150, 200, 3), ()),
    "derm_progressive.jpg": ((150, 200, 3), ()),
    "derm_truncated_2bytes.jpg": "truncated",
    "derm_truncated_60pct.jpg": "truncated",
    "empty.jpg": "empty_file",
    "examples_overlay.dcm": ((300, 484), ()),
    "examples_palette.dcm": ((350, 800, 3), ()),
    "extreme_aspect.png": ((40, 640), ("extreme_aspect", "small")),
    "fundus_big_black_border.jpg": ((686, 1024, 3), ("black_border",)),
    "html_error.jpg": "not_an_image",
    "huge_black_8000.png": ((8000, 8000), ("zero_variance",)),
    "lfs_pointer.png": "git_lfs_pointer",
    "multipage.tif": "multi_frame",
    "nih_rgba_00000059_001.png": ((64, 64, 3), ()),
    "no_meta.dcm": "dicom_incomplete",
    "nóme with späce, comma.png": ((599, 640, 3), ()),
    "tiny_1x1.png": "too_small",
    "tiny_30x30.png": ((30, 30), ("small",)),
    "wrong_ext_png.jpg": ((361, 373, 3), ()),
}


@pytest.fixture(scope="module")
def odd(shared_data: Path) -> Path:
    return shared_data / "odd" / "files"


def file_named(odd: Path, name: str) -> str:
    """The name as the file system spells it (composed or decomposed accents)."""
    return next(path.name for path in odd.iterdir() if unicodedata.normalize("NFC", path.name) == name)


def test_every_file_is_decided(odd: Path) -> None:
    assert {unicodedata.normalize("NFC", path.name) for path in odd.iterdir()} == set(OUTCOMES)


@pytest.mark.parametrize("name", OUTCOMES)
def test_outcome(odd: Path, name: str) -> None:
    if name.endswith(".dcm"):
        pytest.importorskip("pydicom", reason="DICOM files are read by an optional package")
    outcome, stored_name = OUTCOMES[name], file_named(odd, name)
    if isinstance(outcome, str):
        for _ in range(2):
            with pytest.raises(ImageError) as caught:
                load_image(odd, stored_name)
            assert caught.value.reason == outcome
            assert stored_name not in str(caught.value)
        return
    pixels = load_image(odd, stored_name)
    assert (pixels.shape, inspect_image(pixels)) == outcome
    assert pixels.dtype == np.uint8


def test_deep_and_float_versions_of_one_radiograph_agree(odd: Path) -> None:
    expected = load_image(odd, file_named(odd, "nóme with späce, comma.png"))[..., 0].astype(int)
    for name in ("cxr_16bit_12stored.png", "cxr_16bit_full.png", "cxr_float32.tif"):
        assert np.abs(load_image(odd, name).astype(int) - expected).max() <= 1, name


def test_orientation_6_is_the_upright_photograph(odd: Path) -> None:
    upright = load_image(odd, "derm_progressive.jpg").astype(int)
    rotated = load_image(odd, "derm_exif6.jpg").astype(int)
    assert np.abs(upright - rotated).mean() < 6  # two lossy encodings of the same picture
    assert np.abs(upright - rotated[::-1, ::-1]).mean() > 12


def test_opaque_alpha_leaves_the_colours(odd: Path) -> None:
    stored = np.asarray(Image.open(odd / "cxr_png_RGBA.png"))
    np.testing.assert_array_equal(load_image(odd, "wrong_ext_png.jpg"), stored[..., :3])
