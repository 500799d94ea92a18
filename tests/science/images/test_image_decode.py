import io
import pickle
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile, ImageOps

from crs_assets.science.images import ImageError, pixel_digest, read_image

RNG = np.random.default_rng(7)
COLOUR = RNG.integers(0, 256, (24, 32, 3), dtype=np.uint8)
GREY = np.ascontiguousarray(COLOUR[:, :, 0])


def encode(image: Image.Image | np.ndarray, file_format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    picture = image if isinstance(image, Image.Image) else Image.fromarray(image)
    picture.save(buffer, file_format, **options)
    return buffer.getvalue()


def png(width: int, height: int, depth: int, colour_type: int, raw: bytes) -> bytes:
    """A PNG written by hand: Pillow has no writer for some depths."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def reason_of(data: bytes | Path, **options: int) -> str:
    with pytest.raises(ImageError) as caught:
        read_image(data, **options)
    return caught.value.reason


@pytest.mark.parametrize("file_format", ["PNG", "BMP", "TIFF", "WEBP"])
@pytest.mark.parametrize("pixels", [GREY, COLOUR], ids=["grey", "colour"])
def test_lossless_formats_round_trip(file_format: str, pixels: np.ndarray) -> None:
    options = {"lossless": True} if file_format == "WEBP" else {}
    decoded = read_image(encode(pixels, file_format, **options))
    if file_format == "WEBP" and pixels.ndim == 2:  # WebP has no grey: the file is a colour file
        pixels = np.stack([pixels] * 3, axis=2)
    np.testing.assert_array_equal(decoded, pixels)
    assert decoded.flags["C_CONTIGUOUS"]
    assert decoded.flags["WRITEABLE"]


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("pixels", [GREY, COLOUR], ids=["grey", "colour"])
def test_jpeg_agrees_with_pillow(progressive: bool, pixels: np.ndarray) -> None:
    data = encode(pixels, "JPEG", quality=80, progressive=progressive)
    expected = np.asarray(Image.open(io.BytesIO(data))).astype(int)
    decoded = read_image(data)
    assert decoded.shape == pixels.shape
    assert np.abs(decoded.astype(int) - expected).max() <= 1


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied_once(file_format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(COLOUR, file_format, exif=exif.tobytes())
    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
    assert expected.size == ((32, 24) if orientation < 5 else (24, 32))
    assert np.abs(read_image(data).astype(int) - np.asarray(expected).astype(int)).max() <= 1


def test_malformed_exif_leaves_the_pixels_as_stored() -> None:
    data = encode(COLOUR, "JPEG", exif=b"Exif\x00\x00MM\x00\x2a\xff\xff")
    assert read_image(data).shape == COLOUR.shape


def test_first_picture_of_an_mpo_is_the_image() -> None:
    preview = Image.fromarray(GREY[::2, ::2])
    data = encode(COLOUR, "MPO", save_all=True, append_images=[preview], quality=95)
    assert Image.open(io.BytesIO(data)).n_frames == 2
    assert read_image(data).shape == COLOUR.shape


def test_palette_becomes_rgb() -> None:
    palette = Image.fromarray(COLOUR).quantize(16)
    np.testing.assert_array_equal(read_image(encode(palette, "PNG")), np.asarray(palette.convert("RGB")))


def test_one_bit_becomes_black_and_white() -> None:
    decoded = read_image(encode(Image.fromarray(GREY > 128), "PNG"))
    np.testing.assert_array_equal(decoded, np.where(GREY > 128, 255, 0))


def test_equal_channels_stay_colour() -> None:
    pixels = np.stack([GREY] * 3, axis=2)
    assert read_image(encode(pixels, "PNG")).shape == (24, 32, 3)


@pytest.mark.parametrize("alpha", [0, 128, 255])
def test_constant_alpha_is_dropped(alpha: int) -> None:
    pixels = np.dstack([COLOUR, np.full((24, 32), alpha, np.uint8)])
    np.testing.assert_array_equal(read_image(encode(pixels, "PNG")), COLOUR)


def test_varying_alpha_is_flattened_on_black() -> None:
    alpha = np.tile(np.array([0, 51, 102, 255], np.uint8), (24, 8))
    decoded = read_image(encode(np.dstack([COLOUR, alpha]), "PNG"))
    expected = COLOUR.astype(int) * alpha[..., None] / 255
    assert np.abs(decoded - expected).max() <= 0.5
    black = np.zeros((24, 32, 4), np.uint8)
    black[..., 3] = 255
    over = Image.alpha_composite(Image.fromarray(black), Image.fromarray(np.dstack([COLOUR, alpha])))
    assert np.abs(decoded.astype(int) - np.asarray(over)[..., :3]).max() <= 1


def test_grey_with_alpha_stays_grey() -> None:
    pixels = np.dstack([GREY, np.full((24, 32), 255, np.uint8)])
    np.testing.assert_array_equal(read_image(encode(Image.fromarray(pixels, "LA"), "PNG")), GREY)


# 255 x value / (2**bits - 1), rounded: by hand 1000 / 1023 -> 249.27, 3000 / 4095 -> 186.81, 9000 / 16383 -> 140.08,
# 40000 / 65535 -> 155.64.
@pytest.mark.parametrize(
    ("top", "value", "expected"),
    [(200, 100, 100), (1023, 1000, 249), (4095, 3000, 187), (16383, 9000, 140), (65535, 40000, 156)],
)
@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_by_the_bits_in_use(file_format: str, top: int, value: int, expected: int) -> None:
    pixels = np.full((20, 20), value, np.uint16)
    pixels[0, 0], pixels[0, 1] = top, 0
    decoded = read_image(encode(pixels, file_format))
    assert decoded[10, 10] == expected
    assert decoded[0, 1] == 0
    assert decoded[0, 0] == (top if top < 256 else 255)


def test_declared_bits_hold_for_a_dark_image() -> None:
    pixels = np.full((20, 20), 819, np.uint16)  # 819 / 4095 = 0.2 -> 51
    data = encode(pixels, "PNG")
    assert (read_image(data, stored_bits=12) == 51).all()
    assert reason_of(data, stored_bits=8) == "unsupported_range"


@pytest.mark.parametrize(("colour_type", "channels"), [(2, 3), (4, 2), (6, 4)])
def test_16_bit_colour_is_refused(colour_type: int, channels: int) -> None:
    raw = (b"\x00" + b"\x12\x34" * 20 * channels) * 20
    assert reason_of(png(20, 20, 16, colour_type, raw)) == "unsupported_mode"


def test_float_tiff_in_the_unit_range_is_accepted() -> None:
    pixels = (GREY / np.float32(255)).astype(np.float32)
    np.testing.assert_array_equal(read_image(encode(pixels, "TIFF")), GREY)


@pytest.mark.parametrize("bad", [-0.01, 1.5, np.nan, np.inf])
def test_other_floats_are_refused(bad: float) -> None:
    pixels = np.full((20, 20), 0.5, np.float32)
    pixels[3, 3] = bad
    assert reason_of(encode(pixels, "TIFF")) == "unsupported_range"


def test_cmyk_becomes_rgb() -> None:
    data = encode(Image.fromarray(COLOUR).convert("CMYK"), "TIFF")
    assert np.abs(read_image(data).astype(int) - COLOUR).max() <= 1


@pytest.mark.parametrize("mode", ["LAB", "I"])
def test_other_modes_are_refused(mode: str) -> None:
    source = Image.new("LAB", (20, 20)) if mode == "LAB" else Image.fromarray(np.full((20, 20), 9, np.int32))
    assert reason_of(encode(source, "TIFF")) == "unsupported_mode"


def test_16_bit_grey_with_white_as_zero_is_refused() -> None:
    assert reason_of(encode(np.full((20, 20), 9, np.uint16), "TIFF", tiffinfo={262: 0})) == "unsupported_mode"


@pytest.mark.parametrize("file_format", ["GIF", "TIFF", "PNG", "WEBP"])
def test_several_frames_are_refused(file_format: str) -> None:
    frames = [Image.fromarray(COLOUR), Image.fromarray(255 - COLOUR)]
    assert reason_of(encode(frames[0], file_format, save_all=True, append_images=frames[1:])) == "multi_frame"


def test_size_limits() -> None:
    data = encode(GREY, "PNG")
    assert reason_of(data, min_side=25) == "too_small"
    assert reason_of(data, max_pixels=24 * 32 - 1) == "too_large"
    assert read_image(data, min_side=24, max_pixels=24 * 32).shape == (24, 32)


@pytest.mark.parametrize("side", [10_000, 40_000])
def test_decompression_bombs_are_refused_before_decoding(side: int) -> None:
    assert reason_of(png(side, side, 8, 0, b"")) == "too_large"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty_file"),
        (b"\n<!DOCTYPE html><html><body>403</body></html>", "not_an_image"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git_lfs_pointer"),
        (b"id,label\n1,0\n", "not_an_image"),
        (b"\xff\xd8\xff\xe0junk", "corrupt_data"),
    ],
)
def test_what_is_no_image_has_a_named_reason(data: bytes, reason: str) -> None:
    assert reason_of(data) == reason


ENCODED = {
    "jpeg": encode(COLOUR, "JPEG", quality=90),
    "grey jpeg": encode(GREY, "JPEG", quality=90),
    "cmyk jpeg": encode(Image.fromarray(COLOUR).convert("CMYK"), "JPEG"),
    "png": encode(COLOUR, "PNG"),
    "bmp": encode(COLOUR, "BMP"),
    "tiff": encode(COLOUR, "TIFF"),
    "gif": encode(GREY, "GIF"),
    "webp": encode(COLOUR, "WEBP"),
}


@pytest.mark.parametrize("name", ENCODED)
def test_a_cut_file_never_gives_other_pixels(name: str) -> None:
    data = ENCODED[name]
    whole = read_image(data)
    readable = 0
    for length in range(0, len(data), max(1, len(data) // 60)):
        try:
            pixels = read_image(data[:length])
        except ImageError:
            continue
        np.testing.assert_array_equal(pixels, whole)
        readable += 1
    assert readable <= 2


@pytest.mark.parametrize("name", ["jpeg", "grey jpeg", "cmyk jpeg", "png"])
@pytest.mark.parametrize("missing", [2, 40])
def test_a_missing_end_is_truncation(name: str, missing: int) -> None:
    assert {reason_of(ENCODED[name][:-missing]) for _ in range(3)} == {"truncated"}


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(ENCODED)), st.data())
def test_damaged_bytes_end_in_pixels_or_an_image_error(name: str, data: st.DataObject) -> None:
    raw = bytearray(ENCODED[name])
    for position in data.draw(st.lists(st.integers(0, len(raw) - 1), min_size=1, max_size=6)):
        raw[position] ^= data.draw(st.integers(1, 255))
    try:
        pixels = read_image(bytes(raw))
    except ImageError:
        return
    assert pixels.dtype == np.uint8
    assert pixels.ndim in (2, 3)


def test_refuses_to_fill_up_truncated_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(RuntimeError, match="LOAD_TRUNCATED_IMAGES"):
        read_image(ENCODED["gif"])


def test_messages_never_name_the_path(tmp_path: Path) -> None:
    path = tmp_path / "patient_0042.png"
    with pytest.raises(ImageError) as missing:
        read_image(path)
    assert missing.value.reason == "missing_file"
    path.write_bytes(ENCODED["png"][:100])
    with pytest.raises(ImageError) as cut:
        read_image(path)
    with pytest.raises(ImageError) as folder:
        read_image(tmp_path)
    assert folder.value.reason == "unreadable_file"
    for caught in (missing, cut, folder):
        assert "0042" not in str(caught.value)
        assert str(tmp_path) not in str(caught.value)
        assert caught.value.__cause__ is None


def test_error_survives_a_process_boundary() -> None:
    restored = pickle.loads(pickle.dumps(ImageError("too_small", "1 x 1 pixels")))
    assert (restored.reason, str(restored)) == ("too_small", "1 x 1 pixels")


def test_pixel_digest_sees_pixels_and_shape_only() -> None:
    assert pixel_digest(read_image(ENCODED["png"])) == pixel_digest(read_image(ENCODED["bmp"]))
    assert pixel_digest(GREY) != pixel_digest(GREY.reshape(32, 24))
    assert pixel_digest(GREY) != pixel_digest(GREY[:, :, None])
    assert pixel_digest(GREY[:, ::-1]) == pixel_digest(np.ascontiguousarray(GREY[:, ::-1]))
