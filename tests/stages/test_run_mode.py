"""A batch that does not fit is halved, remembered, and part of the fingerprint."""

import numpy as np
import pytest

from crs_assets.resources import bench as bench_module
from crs_assets.science.encoders import EncoderMemoryError
from crs_assets.stages.encoders import Features


class SmallDevice:
    """Holds at most ``limit`` images."""

    def __init__(self, limit):
        self.limit = limit
        self.batches = []

    def encode(self, batch):
        self.batches.append(len(batch))
        if len(batch) > self.limit:
            raise EncoderMemoryError(len(batch), "test device")
        return np.ones((len(batch), 3), np.float32)


def first_features(bench):
    return next(iter(Features().partitions(bench)))


def test_a_batch_that_does_not_fit_is_halved_and_remembered(bench, monkeypatch):
    parts = first_features(bench)
    device = SmallDevice(limit=2)
    monkeypatch.setattr(bench_module, "load_encoder", lambda *_: device)
    monkeypatch.setattr(Features, "code_version", "another")  # so that there is something to do
    outcome = Features().ensure(bench, *parts)
    assert outcome.made
    assert outcome.manifest.recipe["inputs"]["numeric_mode"]["batch_size"] == 2
    assert bench.batch_size(parts[0]) == 2
    assert 8 in device.batches
    assert 4 in device.batches
    device.batches.clear()
    assert not Features().ensure(bench, *parts).made
    assert device.batches == []


def test_one_image_that_does_not_fit_is_an_error(bench, monkeypatch):
    monkeypatch.setattr(bench_module, "load_encoder", lambda *_: SmallDevice(limit=0))
    monkeypatch.setattr(Features, "code_version", "another")
    with pytest.raises(EncoderMemoryError):
        Features().ensure(bench, *first_features(bench))
