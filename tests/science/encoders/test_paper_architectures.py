"""The article's encoders at full size on the meta device: shapes and counts without a byte of weights."""

import functools
import re

import pytest
import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

from crs_assets.science.encoders.spec import ENCODER_FOLDER, load_encoder_spec
from crs_assets.science.encoders.timm_encoder import TimmEncoder, _check_facts

# Parameters in millions, features, blocks or stages, input in pixels, 10^9 multiply-adds: measured once on the networks
# of the authors' code or timm's. Worked out by hand from those: a projection adds 768 x 512 weights and 512 zeros; 224
# for 518 px takes away 1,113 positions of 768; L/14 for L/16 is -184,320 (patches) + 61,440 (positions) + 49,152 (layer
# scale) parameters, and 257 tokens cost 12 d^2 each and 2 x 257^2 d together in each of 24 blocks, d = 1,024.
FIGURES = {
    "resnet50": (23.5, 2048, 4, 224, 4.1),
    "resnet50-tv": (23.5, 2048, 4, 224, 4.1),
    "vit-b16": (85.8, 768, 12, 224, 17.6),
    "vit-b16-in21k": (85.8, 768, 12, 224, 17.6),
    "clip-b16": (85.8, 768, 12, 224, 17.6),
    "clip-b16-proj": (86.2, 512, 12, 224, 17.6),
    "siglip-b16": (92.9, 768, 12, 224, 17.7),
    "dinov2-b14": (85.7, 768, 12, 224, 23.2),
    "dinov2-b14-518": (86.6, 768, 12, 518, 151.6),
    "mae-b16": (85.8, 768, 12, 224, 17.6),
    "biomedclip": (85.8, 768, 12, 224, 17.6),
    "biomedclip-proj": (86.2, 512, 12, 224, 17.6),
    "llava-med": (303.5, 1024, 24, 336, 191),
    "medsiglip": (428.6, 1152, 27, 448, 490),
    "medsiglip-squash": (428.6, 1152, 27, 448, 490),
    "medgemma": (416.9, 1152, 27, 896, 2730),
    "panderm": (303.4, 1024, 24, 224, 61.6),
    "panderm-base": (85.8, 768, 12, 224, 17.6),
    "retfound": (303.3, 1024, 24, 224, 61.6),
    "retfound-cls": (303.3, 1024, 24, 224, 61.6),
    "retfound-oct": (303.3, 1024, 24, 224, 61.6),
    "retfound-dinov2": (303.2, 1024, 24, 224, 81.0),
    "rad-dino": (86.6, 768, 12, 518, 151.6),
    "biovil": (23.5, 2048, 4, 480, 18.8),
    "biovil-t": (23.5, 2048, 4, 448, 16.3),
    "chexzero": (87.8, 512, 12, 224, 4.4),
    "chexzero-cls": (87.5, 768, 12, 224, 4.4),
}
ABSENT_FROM_APTOS = {"biovil", "biovil-t", "chexzero", "chexzero-cls"}


@pytest.fixture(params=FIGURES)
def spec(request):
    return load_encoder_spec(ENCODER_FOLDER / f"{request.param}.toml")


@functools.cache
def network(architecture):
    """Built once for the entries that share it; nothing here changes a network."""
    name, kwargs = architecture
    with torch.device("meta"):
        return timm.create_model(name, pretrained=False, **{"num_classes": 0, **dict(kwargs)})


def encoder_and_images(spec):
    model = network((spec.architecture.arch, tuple(spec.architecture.kwargs.items())))
    side = spec.preprocessing.input_size
    return TimmEncoder(spec, model, device="meta"), torch.empty(1, 3, side, side, device="meta")


MEASURED = {}


def measured(spec):
    """Shape of the features and multiply-adds, once for the entries that share network, tap and input size."""
    encoder, images = encoder_and_images(spec)
    key = (id(encoder.model), spec.tap, images.shape)
    if key not in MEASURED:
        with torch.inference_mode(), FlopCounterMode(display=False) as counter:
            shape = tuple(encoder.features(images).shape)
        MEASURED[key] = shape, counter.get_total_flops() / 2
    return MEASURED[key]


def test_the_network_has_the_stated_size_cost_and_features(spec):
    millions, dim, blocks, side, billions = FIGURES[spec.id]
    model = encoder_and_images(spec)[0].model
    _check_facts(model, spec)
    assert spec.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert spec.parameters / 1e6 == pytest.approx(millions, abs=0.051)
    assert (spec.tap.dim, spec.tap.blocks, spec.preprocessing.input_size) == (dim, blocks, side)
    shape, multiply_adds = measured(spec)
    assert shape == (1, dim)
    # A tap before the last block saves its share.
    assert multiply_adds / 1e9 == pytest.approx(billions * (spec.tap.block or blocks) / blocks, rel=0.02)


SWEEPS = {  # blocks -> those at 25, 50, 75, 100 %, and the width of a CNN's stages
    4: ([1, 2, 3, 4], [256, 512, 1024, 2048]),
    12: ([3, 6, 9, 12], None),
    24: ([6, 12, 18, 24], None),
    27: ([7, 14, 20, 27], None),
}


@pytest.mark.parametrize("encoder_id", ["resnet50", "vit-b16", "siglip-b16", "llava-med", "medgemma", "chexzero"])
def test_the_taps_of_the_depth_sweep_exist(encoder_id):
    spec = load_encoder_spec(ENCODER_FOLDER / f"{encoder_id}.toml")
    encoder, images = encoder_and_images(spec)
    blocks, widths = SWEEPS[spec.tap.blocks]
    with torch.inference_mode():
        outputs = encoder._pooled_blocks(images, blocks)
    assert [output.shape[1] for output in outputs] == (widths or [encoder.model.embed_dim] * 4)


TAPS = {
    "gap": {"resnet50", "resnet50-tv", "biovil", "biovil-t", "llava-med", "medgemma"},
    "gap_ln": {"retfound", "retfound-oct"},
    "map": {"siglip-b16", "medsiglip", "medsiglip-squash"},
    "proj": {"clip-b16-proj", "biomedclip-proj", "chexzero"},
}


def test_features_are_taken_where_the_authors_take_them(spec):
    pool = next((pool for pool, encoders in TAPS.items() if spec.id in encoders), "cls")
    assert (spec.tap.pool, spec.tap.block) == (pool, 23 if spec.id == "llava-med" else None)


def test_facts_of_people_are_complete(spec):
    assert re.search(r"arXiv:\d{4}\.\d{5}|doi:10\.", spec.citation)
    named = ("MIT", "Apache-2.0", "BSD-3-Clause", "CC-BY-NC-4.0", "CC-BY-NC-ND-4.0", "Health AI")
    assert spec.licence.startswith(named)
    assert spec.unverified
    assert (spec.weights.sha256 is None) == any("weights.sha256" in fact for fact in spec.unverified)
    unpinned = spec.weights.source == "hub" and spec.weights.revision is None
    assert unpinned == any("weights.revision" in fact for fact in spec.unverified)
    assert set(spec.absent) == ({"aptos2019"} if spec.id in ABSENT_FROM_APTOS else set())


def test_terms_have_to_be_accepted_where_the_owner_asks_for_it():
    gated = {name for name in FIGURES if load_encoder_spec(ENCODER_FOLDER / f"{name}.toml").gated}
    assert gated == {"medsiglip", "medsiglip-squash", "medgemma"} | {n for n in FIGURES if n.startswith("retfound")}
