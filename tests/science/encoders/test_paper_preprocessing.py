"""Inputs of the article's encoders against the pipelines that their authors publish, or hand-written copies of them."""

import numpy as np
import open_clip.transform
import pytest
import timm.data
import torch
from PIL import Image
from torchvision import transforms
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from crs_assets.science.encoders.preprocessing import prepare
from crs_assets.science.encoders.spec import ENCODER_FOLDER, load_encoder_spec
from crs_assets.science.encoders.timm_encoder import TimmEncoder

IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
HALF = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
CLIP = {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711)}
# Larger and smaller than the inputs, wide and tall, with margins that torchvision (half to even) and transformers
# (down) halve alike.
SIZES = [(512, 640), (700, 512), (200, 301)]


def photograph(height, width, seed=0):
    # Structure at several scales: aliasing, overshoot and clipping all show.
    rng = np.random.default_rng((seed, height, width))
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / 7 + c) * np.cos(y / (11 + c)) * 70 + (x + 2 * y) % 97 for c in range(3)]
    noise = rng.integers(-60, 60, (height, width, 3))
    return np.clip(np.stack(waves, axis=2) + 80 + noise, 0, 255).astype(np.uint8)


def inputs(encoder_id, image):
    """What the network gets of an image, (3, S, S) float32, and the catalogue's preprocessing."""
    spec = load_encoder_spec(ENCODER_FOLDER / f"{encoder_id}.toml")
    encoder = TimmEncoder(spec, torch.nn.Identity())
    return encoder._normalised(prepare(image, spec.preprocessing)[None])[0]


def torchvision_pipeline(*steps, mean, std):
    # The first transforms, which the published code uses, divide by 255 where v2 multiplies by its inverse.
    return transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(mean, std)])


def resize_and_crop(resize_to, size, mode, **statistics):
    interpolation = v2.InterpolationMode[mode.upper()]
    return torchvision_pipeline(v2.Resize(resize_to, interpolation), v2.CenterCrop(size), **statistics)


def timms(crop, mode, **statistics):
    return timm.data.create_transform((3, 224, 224), interpolation=mode, crop_pct=crop, **statistics)


def open_clips(**statistics):
    return open_clip.transform.image_transform(224, is_train=False, **statistics)


PIPELINES = {
    "resnet50": timms(0.95, "bicubic", **IMAGENET),
    "resnet50-tv": timms(0.875, "bilinear", **IMAGENET),
    "vit-b16": timms(0.9, "bicubic", **HALF),
    "clip-b16": open_clips(**CLIP),
    "clip-b16-proj": open_clips(**CLIP),
    "biomedclip": open_clips(**CLIP),
    "biomedclip-proj": open_clips(**CLIP),
    "dinov2-b14": resize_and_crop(256, 224, "bicubic", **IMAGENET),
    "dinov2-b14-518": resize_and_crop(518, 518, "bicubic", **IMAGENET),
    "mae-b16": resize_and_crop(256, 224, "bicubic", **IMAGENET),
    "retfound": resize_and_crop(256, 224, "bicubic", **IMAGENET),
    "retfound-cls": resize_and_crop(256, 224, "bicubic", **IMAGENET),
    "retfound-oct": resize_and_crop(256, 224, "bicubic", **IMAGENET),
    "retfound-dinov2": resize_and_crop(256, 224, "bicubic", **IMAGENET),
    # 0.228 stands in PanDerm's evaluation; torchvision's Resize is bilinear when not told otherwise.
    "panderm": torchvision_pipeline(
        v2.Resize(256), v2.CenterCrop(224), mean=(0.485, 0.456, 0.406), std=(0.228, 0.224, 0.225)
    ),
    "panderm-base": torchvision_pipeline(
        v2.Resize(256), v2.CenterCrop(224), mean=(0.485, 0.456, 0.406), std=(0.228, 0.224, 0.225)
    ),
}


@pytest.mark.parametrize("encoder_id", PIPELINES)
def test_inputs_are_bit_for_bit_those_of_the_published_pipeline(encoder_id):
    for shape in SIZES:
        image = photograph(*shape)
        expected = PIPELINES[encoder_id](Image.fromarray(image))
        assert torch.equal(inputs(encoder_id, image), expected)


# Encoder -> transformers' processor and the options of the published preprocessor_config.json.
PROCESSORS = {
    "clip-b16": ("CLIPImageProcessor", {}),
    "biomedclip": ("CLIPImageProcessor", {}),
    "siglip-b16": ("SiglipImageProcessor", {}),
    "medsiglip-squash": ("SiglipImageProcessor", {"size": {"height": 448, "width": 448}}),
    "medgemma": ("Gemma3ImageProcessor", {"size": {"height": 896, "width": 896}}),
    "vit-b16-in21k": ("ViTImageProcessor", {}),
    "dinov2-b14": (
        "BitImageProcessor",
        {"size": {"shortest_edge": 256}, "image_mean": IMAGENET["mean"], "image_std": IMAGENET["std"]},
    ),
    "rad-dino": (
        "BitImageProcessor",
        {
            "size": {"shortest_edge": 518},
            "crop_size": {"height": 518, "width": 518},
            "image_mean": [0.5307] * 3,
            "image_std": [0.2583] * 3,
        },
    ),
}


def processor(name, options):
    transformers = pytest.importorskip("transformers")
    # transformers 5 keeps Pillow's pipeline, the one that version 4 published with, under this name.
    found = getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)
    return found(**options)


@pytest.mark.parametrize("encoder_id", PROCESSORS)
def test_inputs_are_those_of_the_published_processor(encoder_id):
    run = processor(*PROCESSORS[encoder_id])
    for shape in SIZES:
        image = photograph(*shape)
        if encoder_id == "rad-dino":
            image = np.repeat(image[:, :, :1], 3, axis=2)
        expected = run(Image.fromarray(image), return_tensors="np")["pixel_values"][0]
        # float32 rescaling by 1 / 255 rounds once more than a division.
        np.testing.assert_allclose(inputs(encoder_id, image), expected, rtol=0, atol=2e-6)


def llava_square(image):
    """LLaVA's expand2square with the processor's mean colour."""
    width, height = image.size
    side = max(width, height)
    canvas = Image.new("RGB", (side, side), tuple(int(channel * 255) for channel in CLIP["mean"]))
    canvas.paste(image, ((side - width) // 2, (side - height) // 2))
    return canvas


@pytest.mark.parametrize("shape", SIZES)
def test_llava_med_pads_to_a_square_of_the_mean_colour(shape):
    image = photograph(*shape)
    run = processor("CLIPImageProcessor", {"size": {"shortest_edge": 336}, "crop_size": {"height": 336, "width": 336}})
    expected = run(llava_square(Image.fromarray(image)), return_tensors="np")["pixel_values"][0]
    np.testing.assert_allclose(inputs("llava-med", image), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("shape", SIZES)
def test_medsiglip_pads_to_a_black_square_and_is_bilinear(shape):
    image = photograph(*shape)
    # torchvision's central crop pads with zeros what is smaller than it.
    square = v2.CenterCrop(max(shape))
    resize = v2.Resize((448, 448), v2.InterpolationMode.BILINEAR)
    expected = torchvision_pipeline(square, resize, **HALF)(Image.fromarray(image))
    assert torch.equal(inputs("medsiglip", image), expected)


@pytest.mark.parametrize(("encoder_id", "side"), [("biovil", 480), ("biovil-t", 448)])
@pytest.mark.parametrize("shape", [(512, 640), (700, 600)])
def test_biovil_gets_a_stretched_grey_image_without_normalisation(encoder_id, side, shape):
    # A dull radiograph, 40..200. hi-ml: subtract the minimum, divide by the maximum, times 255, truncated.
    grey = (photograph(*shape)[:, :, 0] * (160 / 255) + 40).astype(np.uint8)
    stretched = grey.astype(float) - grey.min()
    stretched = (stretched / stretched.max() * 255).astype(np.uint8)
    steps = [v2.Resize(512), v2.CenterCrop(side), transforms.ToTensor()]
    expected = transforms.Compose(steps)(Image.fromarray(stretched)).repeat(3, 1, 1)
    assert torch.equal(inputs(encoder_id, grey), expected)
    assert expected.max() > 0.98


def chexzero_reference(image):
    """The published way: fitted into 320 x 320, normalised on the 0..255 scale, then resized as a tensor."""
    height, width = image.shape[:2]
    ratio = 320 / max(height, width)
    fitted = Image.fromarray(image).resize((int(width * ratio), int(height * ratio)), Image.Resampling.LANCZOS)
    canvas = Image.new("L", (320, 320))
    canvas.paste(fitted, ((320 - fitted.width) // 2, (320 - fitted.height) // 2))
    tensor = torch.from_numpy(np.array(canvas)).float().expand(3, 320, 320)
    normalised = (tensor - 101.48761) / 83.43944
    return functional.resize(normalised, [224, 224], v2.InterpolationMode.BICUBIC, antialias=False)


@pytest.mark.parametrize("encoder_id", ["chexzero", "chexzero-cls"])
@pytest.mark.parametrize("shape", SIZES)
def test_chexzero_differs_from_its_pipeline_by_rounding_alone(encoder_id, shape):
    # Between 50 and 200, so that no overshoot is clipped: what is left is the rounding to whole grey levels.
    grey = (photograph(*shape)[:, :, 0] * (100 / 255) + 75).astype(np.uint8)
    difference = (inputs(encoder_id, grey) - chexzero_reference(grey)).abs() * 83.43944
    inner = slice(224 // 4, -224 // 4)  # away from the black border, whose edge overshoots
    assert difference[:, inner, inner].max() <= 0.501
    black = difference[:, 0] if shape[1] > shape[0] else difference[:, :, 0]
    assert black.max() <= 0.501


def test_a_colour_image_reaches_a_chest_encoder_as_its_luma():
    image = photograph(512, 640)
    luma = np.array(Image.fromarray(image).convert("L"))
    for encoder_id in ("rad-dino", "chexzero"):
        assert torch.equal(inputs(encoder_id, image), inputs(encoder_id, luma))


def test_every_entry_with_published_weights_has_a_reference_here():
    entries = [load_encoder_spec(path) for path in ENCODER_FOLDER.glob("*.toml")]
    by_hand = {"llava-med", "medsiglip", "biovil", "biovil-t", "chexzero", "chexzero-cls"}
    published = {entry.id for entry in entries if entry.weights.source in ("hub", "file")}
    assert published == set(PIPELINES) | set(PROCESSORS) | by_hand
