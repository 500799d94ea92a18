"""Prepared pixels against independent compositions: torchvision's, timm's, OpenCV's and hand calculations."""

import cv2
import numpy as np
import pytest
import timm.data
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from crs_assets.science.encoders.preprocessing import prepare
from crs_assets.science.encoders.spec import ENCODER_FOLDER, Preprocessing, load_encoder_spec
from crs_assets.science.encoders.timm_encoder import TimmEncoder

UNIT = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
SIZES = [(60, 97), (97, 60), (64, 64), (33, 35), (151, 40), (32, 20)]


def random_image(height, width, channels=3, seed=0):
    # Smooth plus noise: filters overshoot at edges, so that clipping is exercised too.
    rng = np.random.default_rng((seed, height, width))
    ramp = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[:, :, None] % 256
    image = np.clip(ramp + rng.integers(-80, 80, (height, width, channels)), 0, 255).astype(np.uint8)
    return image if channels == 3 else image[:, :, 0]


def reference(image, resize, size, resize_to, interpolation):
    mode = v2.InterpolationMode[interpolation.upper()]
    if resize == "shortest":
        steps = [v2.Resize(resize_to, mode, antialias=True), v2.CenterCrop(size)]
    else:
        steps = [v2.Resize((size, size), mode, antialias=True)]
    return np.asarray(v2.Compose(steps)(Image.fromarray(image).convert("RGB")))


@pytest.mark.parametrize("channels", [1, 3], ids=["grey", "rgb"])
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "lanczos", "box"])
@pytest.mark.parametrize("resize", ["shortest", "squash"])
def test_pixels_equal_torchvisions_on_pil_images(resize, interpolation, shape, channels):
    image = random_image(*shape, channels)
    resize_to = 37 if resize == "shortest" else None
    spec = Preprocessing(input_size=32, resize=resize, resize_to=resize_to, interpolation=interpolation, **UNIT)
    np.testing.assert_array_equal(prepare(image, spec), reference(image, resize, 32, resize_to, interpolation))


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 80), st.integers(1, 80), st.integers(8, 24), st.integers(0, 12))
def test_any_size_gives_the_input_size_and_torchvisions_crop(height, width, size, margin):
    spec = Preprocessing(input_size=size, resize="shortest", resize_to=size + margin, interpolation="bilinear", **UNIT)
    image = random_image(height, width)
    np.testing.assert_array_equal(prepare(image, spec), reference(image, "shortest", size, size + margin, "bilinear"))


TIMM_CROPS = {
    "efficientnet-lite0-112": 0.875,
    "efficientnet-lite1-112": 0.882,
    "efficientnet-lite2-112": 0.890,
    "efficientnet-lite0-128": 0.875,
    "vit-tiny-untrained-112": 0.9,
    "dinov2-vits14-focus-block3-112": 0.875,
}


@pytest.mark.parametrize("encoder_id", TIMM_CROPS)
def test_demo_inputs_are_bit_for_bit_those_of_timms_transform(encoder_id):
    spec = load_encoder_spec(ENCODER_FOLDER / f"{encoder_id}.toml")
    pre, crop = spec.preprocessing, TIMM_CROPS[encoder_id]
    assert timm.get_pretrained_cfg(spec.architecture.arch).mean == pre.mean
    assert timm.get_pretrained_cfg(spec.architecture.arch).std == pre.std
    side = pre.input_size
    transform = timm.data.create_transform(
        (3, side, side), interpolation="bicubic", mean=pre.mean, std=pre.std, crop_pct=crop
    )
    encoder = TimmEncoder(spec, torch.nn.Identity())
    for shape in ((144, 200), (512, 512), (123, 111)):
        image = random_image(*shape)
        ours = encoder._normalised(prepare(image, pre)[None])[0]
        assert torch.equal(ours, transform(Image.fromarray(image)))


def test_padding_is_centred_and_coloured():
    # 4 wide, 2 high, white, padded to 4 x 4 in (10, 20, 30): one row above, one below.
    spec = Preprocessing(input_size=4, resize="pad", pad_colour=(10, 20, 30), **UNIT)
    prepared = prepare(np.full((2, 4), 255, np.uint8), spec)
    assert prepared[[0, 3]].reshape(-1, 3).tolist() == [[10, 20, 30]] * 8
    assert (prepared[1:3] == 255).all()


def test_pre_padding_fits_the_long_side_into_a_black_square():
    # 50 x 100 white -> 32 x 64 in 64 x 64: 16 rows of black above and below; halved: 8 and 8.
    spec = Preprocessing(input_size=32, resize="squash", interpolation="box", pre_pad=64, **UNIT)
    prepared = prepare(np.full((50, 100, 3), 255, np.uint8), spec)
    np.testing.assert_array_equal(prepared[:, 0, 0], [0] * 8 + [255] * 16 + [0] * 8)


def test_box_is_the_mean_over_blocks():
    # Blocks of (v, v + 2; v + 2, v): mean v + 1.
    image = np.kron(np.arange(64).reshape(8, 8), np.ones((2, 2), int)) + np.tile([[0, 2], [2, 0]], (8, 8))
    spec = Preprocessing(input_size=8, resize="squash", interpolation="box", **UNIT)
    np.testing.assert_array_equal(prepare(image.astype(np.uint8), spec)[:, :, 0], np.arange(64).reshape(8, 8) + 1)


def test_grey_is_the_luma_of_itu_r_601():
    spec = Preprocessing(input_size=1, resize="squash", colour="grey", **UNIT)
    for rgb in ([255, 0, 0], [0, 255, 0], [0, 0, 255], [12, 200, 90]):
        expected = 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]
        prepared = prepare(np.array([[rgb]], np.uint8), spec)[0, 0]
        assert np.ptp(prepared) == 0
        assert abs(prepared[0] - expected) <= 1


def test_grey_minmax_stretches_the_whole_image():
    spec = Preprocessing(input_size=2, resize="squash", colour="grey_minmax", **UNIT)
    # (v - 10) / 30 * 255 = 0, 85, 170, 255
    prepared = prepare(np.array([[10, 20], [30, 40]], np.uint8), spec)
    assert prepared[:, :, 0].tolist() == [[0, 85], [170, 255]]
    assert (prepare(np.full((2, 2), 9, np.uint8), spec) == 0).all()


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_without_antialias_pixels_are_those_of_torchvision_and_close_to_opencvs(interpolation):
    image = random_image(90, 70)
    spec = Preprocessing(input_size=32, resize="squash", interpolation=interpolation, antialias=False, **UNIT)
    prepared = prepare(image, spec)
    # On floats, as the pipelines that skip the antialias filter do; torchvision's uint8 kernel is another one.
    tensor = torch.from_numpy(image).permute(2, 0, 1).float()
    mode = v2.InterpolationMode[interpolation.upper()]
    theirs = functional.resize(tensor, [32, 32], mode, antialias=False).permute(1, 2, 0).numpy()
    assert np.abs(prepared - np.clip(theirs, 0, 255)).max() <= 0.5
    flag = {"bilinear": cv2.INTER_LINEAR, "bicubic": cv2.INTER_CUBIC}[interpolation]
    assert np.abs(prepared.astype(int) - cv2.resize(image, (32, 32), interpolation=flag)).max() <= 1
    smooth = prepare(image, spec.model_copy(update={"antialias": True}))
    assert np.abs(prepared.astype(int) - smooth).max() > 10


def test_the_image_is_left_as_it_was_and_the_result_is_its_own():
    image = random_image(32, 32)
    image.flags.writeable = False
    prepared = prepare(image, Preprocessing(input_size=32, resize="squash", **UNIT))
    np.testing.assert_array_equal(prepared, image)
    prepared[:] = 0


@pytest.mark.parametrize(
    "image",
    [np.zeros((4, 4), np.float32), np.zeros((4, 4, 4), np.uint8), np.zeros((0, 4), np.uint8), np.zeros(4, np.uint8)],
)
def test_other_arrays_are_refused(image):
    with pytest.raises(ValueError, match="expected uint8 of shape"):
        prepare(image, Preprocessing(input_size=2, resize="squash", **UNIT))
