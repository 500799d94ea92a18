"""Trials of batch sizes and of bfloat16, on a device whose speed and memory are written down."""

import numpy as np
import pytest

from crs_assets.science.encoders import EncoderMemoryError, RunMode, smallest_cosine, tune
from crs_assets.science.encoders.tuning import fastest_batch

IMAGES = np.zeros((5, 4, 4, 3), np.uint8)


class Device:
    """Needs ``fixed`` seconds a batch and ``each`` an image; holds ``limit`` images."""

    def __init__(self, fixed=1.0, each=0.01, limit=1000, turn=0.0, speedup=2.0):
        self.fixed, self.each, self.limit, self.turn, self.speedup = fixed, each, limit, turn, speedup
        self.now = 0.0
        self.precision = "float32"

    def in_precision(self, precision):
        view = Device(self.fixed, self.each, self.limit, self.turn, self.speedup)
        view.precision, view.clock = precision, self.clock
        view.advance = self.advance
        return view

    def advance(self, seconds):
        self.now += seconds

    def clock(self):
        return self.now

    def encode(self, batch):
        if len(batch) > self.limit:
            raise EncoderMemoryError(len(batch), "test device")
        mixed = self.precision == "bfloat16"
        self.advance((self.fixed + self.each * len(batch)) / (self.speedup if mixed else 1.0))
        return np.tile(np.float32([3, 3 * self.turn * mixed]), (len(batch), 1))


def tried(device, sizes=(16, 32, 64, 128), may_mix=False):
    return tune(device, IMAGES, batch_sizes=sizes, may_mix=may_mix, clock=device.clock)


def test_the_batch_grows_while_it_pays():
    # Images/s by hand: 16 -> 13.79, 32 -> 24.24, 64 -> 39.02, 128 -> 56.1; each step is worth far more than 5 %.
    device = Device()
    assert fastest_batch(device.encode, IMAGES, (16, 32, 64, 128), device.clock) == pytest.approx((128, 128 / 2.28))


def test_the_batch_stops_growing_where_it_no_longer_pays():
    # Images/s by hand: 16 -> 16/0.17 = 94.1, 32 -> 32/0.33 = 97.0: 3 % more.
    assert tried(Device(fixed=0.01)) == RunMode(16)


def test_a_batch_that_does_not_fit_ends_the_trial():
    assert tried(Device(limit=50)) == RunMode(32)


def test_a_device_too_small_for_the_smallest_batch_is_an_error():
    with pytest.raises(EncoderMemoryError):
        tried(Device(limit=15))


@pytest.mark.parametrize(
    ("turn", "speedup", "expected"),
    [
        (0.01, 2.0, "bfloat16"),
        # cos(atan(0.05)) = 0.99875
        (0.05, 2.0, "float32"),
        (0.01, 1.02, "float32"),
    ],
    ids=["close and fast", "too far", "not worth it"],
)
def test_bfloat16_is_taken_where_it_is_close_and_pays(turn, speedup, expected):
    assert tried(Device(turn=turn, speedup=speedup), may_mix=True).precision == expected


def test_bfloat16_is_never_taken_unasked():
    assert tried(Device()).precision == "float32"


def test_the_cosine_is_that_of_the_worst_image():
    class Uneven(Device):
        def in_precision(self, precision):
            view = Uneven()
            view.precision = precision
            return view

        def encode(self, batch):
            turns = batch[:, 0, 0, 0] / 100 * (self.precision == "bfloat16")
            return np.stack([np.ones(len(batch)), turns], axis=1).astype(np.float32)

    images = np.zeros((3, 4, 4, 3), np.uint8)
    images[1] = 75
    # (1, 0) and (1, 0.75): 1 / 1.25
    assert smallest_cosine(Uneven(), images, 2) == pytest.approx(0.8)


def test_an_embedding_of_zeros_counts_as_turned_away():
    class Dead(Device):
        def in_precision(self, _):
            return self

        def encode(self, batch):
            return np.zeros((len(batch), 2), np.float32)

    assert smallest_cosine(Dead(), IMAGES, 2) == 0
