"""The untrained twin of any encoder: the same network, tap and input, no file, and bits that the seed fixes."""

import numpy as np
import pytest
import timm
import torch

from crs_assets.assets.checks import is_twin
from crs_assets.science.encoders import fingerprint, load_encoder, load_encoder_spec, untrained_twin
from crs_assets.science.encoders.releases import encoder_toml
from crs_assets.science.encoders.spec import ENCODER_FOLDER

ENTRIES = [load_encoder_spec(path) for path in sorted(ENCODER_FOLDER.glob("*.toml"))]
TRAINED = [spec for spec in ENTRIES if spec.weights.source != "none"]


@pytest.mark.parametrize("spec", TRAINED, ids=lambda spec: spec.id)
def test_every_trained_encoder_of_the_catalogue_has_a_twin(spec, tmp_path):
    twin = untrained_twin(spec, 3)
    assert is_twin(spec, twin)
    assert (twin.id, twin.role, twin.untrained_seed) == (f"{spec.id}-untrained-3", "control", 3)
    assert (twin.tap, twin.preprocessing, twin.absent) == (spec.tap, spec.preprocessing, spec.absent)
    assert (twin.parameters, twin.gated, twin.unverified) == (spec.parameters, False, ())
    (tmp_path / f"{twin.id}.toml").write_text(encoder_toml(twin), encoding="utf-8")
    assert load_encoder_spec(tmp_path / f"{twin.id}.toml") == twin


@pytest.mark.parametrize("spec", [spec for spec in ENTRIES if spec.weights.source == "none"], ids=lambda spec: spec.id)
def test_what_was_never_trained_has_none(spec):
    with pytest.raises(ValueError, match="no untrained twin"):
        untrained_twin(spec, 0)


def test_a_twin_is_timms_own_initialisation_under_that_seed(make_spec):
    spec = make_spec()
    images = np.random.default_rng(1).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    features = load_encoder(untrained_twin(spec, 5)).encode(images)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        model = timm.create_model(spec.architecture.arch, num_classes=0, **spec.architecture.kwargs).eval()
    pixels = (images.astype(np.float64) / 255 - spec.preprocessing.mean) / spec.preprocessing.std
    with torch.inference_mode():
        expected = model.forward_features(torch.from_numpy(pixels.transpose(0, 3, 1, 2)).float())[:, 0]
    np.testing.assert_allclose(features, expected.numpy(), rtol=0, atol=2e-6)
    np.testing.assert_array_equal(load_encoder(untrained_twin(spec, 5)).encode(images), features)
    assert np.abs(load_encoder(untrained_twin(spec, 6)).encode(images) - features).max() > 1e-3


def test_seeds_and_names_decide_as_they_should(make_spec):
    spec = make_spec()
    prints = [fingerprint(untrained_twin(spec, seed), {}) for seed in (0, 1)]
    assert prints[0] != prints[1]
    # How a file's names are read is nothing to a network without a file.
    mapped = make_spec(architecture={"key_map": "mae", "position_resampling": "bicubic-antialias"})
    assert fingerprint(untrained_twin(mapped, 0), {}) == prints[0]
