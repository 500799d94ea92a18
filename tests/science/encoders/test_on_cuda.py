"""What only a CUDA device can show: its features are those of the CPU, and the same every time."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from crs_assets.science.encoders import load_encoder

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device here")


@pytest.fixture
def on_device(make_spec, snapshot):
    return load_encoder(make_spec(), snapshot, "cuda")


def test_features_are_those_of_the_cpu(on_device, make_spec, snapshot, images):
    expected = load_encoder(make_spec(), snapshot).encode(images)
    assert np.abs(on_device.encode(images) - expected).max() < 1e-4 * np.abs(expected).max()


def test_convolutions_do_not_round_their_factors(on_device):
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


def test_the_same_batch_gives_the_same_bits_in_whichever_thread(on_device, images):
    expected = on_device.encode(images)
    with ThreadPoolExecutor(2) as pool:
        for found in pool.map(on_device.encode, [images] * 8):
            assert np.array_equal(found, expected)


def test_bfloat16_stays_close(on_device, images):
    exact, mixed = on_device.encode(images), on_device.in_precision("bfloat16").encode(images)
    cosine = (exact * mixed).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(mixed, axis=1)
    assert cosine.min() > 0.995
