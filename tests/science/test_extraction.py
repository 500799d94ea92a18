"""The extraction loop with encoders and images whose right answers are known by construction."""

import threading
import time
import traceback

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science.encoders.errors import EncoderMemoryError
from crs_assets.science.extraction import ExtractionError, chunk_count, extract


class Recorder:
    """Features are (pixel value, pixel value squared, images in the batch)."""

    def __init__(self):
        self.sizes = []

    def encode(self, batch):
        self.sizes.append(len(batch))
        value = batch[:, 0, 0, 0].astype(np.float32)
        return np.stack([value, value**2, np.full(len(batch), len(batch), np.float32)], axis=1)


def image(value):
    return np.full((2, 2, 3), value, np.uint8)


def loader(conditions=1, loaded=None):
    def load(row):
        if loaded is not None:
            loaded.append(row)
        return [image(row * conditions + place) for place in range(conditions)]

    return load


def names(prefix, count):
    return [f"{prefix}{number}" for number in range(count)]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(0, 20),
    conditions=st.integers(1, 4),
    batch_size=st.integers(1, 9),
    chunk_batches=st.integers(1, 3),
    workers=st.integers(0, 3),
)
def test_every_image_is_encoded_once_in_order_whatever_the_cutting(
    rows, conditions, batch_size, chunk_batches, workers
):
    ids, kinds, encoder = names("i", rows), names("c", conditions), Recorder()
    options = {"batch_size": batch_size, "chunk_batches": chunk_batches}
    chunks = list(extract(ids, loader(conditions), encoder, conditions=kinds, workers=workers, **options))
    total = rows * conditions
    assert len(chunks) == chunk_count(total, **options)
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert all(len(chunk.ids) == batch_size * chunk_batches for chunk in chunks[:-1])
    assert all(size == batch_size for size in encoder.sizes[:-1])
    assert [i for chunk in chunks for i in chunk.ids] == [i for i in ids for _ in kinds]
    assert [c for chunk in chunks for c in chunk.conditions] == kinds * rows
    if chunks:
        features = np.concatenate([chunk.features for chunk in chunks])
        assert features.dtype == np.float32
        np.testing.assert_array_equal(features[:, 0], np.arange(total))


@pytest.mark.parametrize("conditions", [1, 3])
@pytest.mark.parametrize("start", [0, 1, 2, 3, 4])
def test_resumed_chunks_are_those_of_one_go_and_stored_images_are_not_loaded(start, conditions):
    rows, loaded = 12 // conditions + 2, []
    ids, kinds = names("i", rows), names("c", conditions)
    options = {"conditions": kinds, "batch_size": 2, "chunk_batches": 2}
    whole = list(extract(ids, loader(conditions), Recorder(), **options))
    resumed = list(extract(ids, loader(conditions, loaded), Recorder(), start_chunk=start, **options))
    assert [chunk.index for chunk in resumed] == list(range(start, len(whole)))
    for one, other in zip(whole[start:], resumed, strict=True):
        assert (one.ids, one.conditions) == (other.ids, other.conditions)
        assert one.features.tobytes() == other.features.tobytes()
    assert sorted(loaded) == list(range(min(start * 4 // conditions, rows), rows))


@pytest.mark.parametrize("workers", [1, 4])
def test_workers_do_not_change_a_bit_even_when_they_overtake_each_other(workers):
    rng = np.random.default_rng(0)
    pixels, delays = rng.integers(0, 256, (24, 2, 2, 3), dtype=np.uint8), rng.random(24) * 0.004

    def slow(row):
        time.sleep(delays[row])
        return [pixels[row]]

    options = {"batch_size": 5, "chunk_batches": 2}
    alone = list(extract(names("i", 24), lambda row: [pixels[row]], Recorder(), workers=0, **options))
    many = list(extract(names("i", 24), slow, Recorder(), workers=workers, **options))
    assert [c.features.tobytes() for c in many] == [c.features.tobytes() for c in alone]


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_memory_is_bounded_however_long_the_index(workers):
    loaded = []
    chunks = extract(names("i", 5000), loader(1, loaded), Recorder(), batch_size=4, chunk_batches=1, workers=workers)
    for done in range(1, 6):
        next(chunks)
        # Two batches, or two images per worker, may wait; one more is handed over; two batches are being encoded.
        assert len(loaded) <= 4 * done + max(2 * workers, 8) + 1 + 8
    chunks.close()


@pytest.mark.parametrize("encoders", [1, 3])
def test_encoding_threads_change_neither_order_nor_bits(encoders):
    reference = list(extract(names("i", 23), loader(), Recorder(), batch_size=4, chunk_batches=2))
    chunks = extract(names("i", 23), loader(), Recorder(), batch_size=4, chunk_batches=2, encoders=encoders, workers=2)
    for expected, chunk in zip(reference, chunks, strict=True):
        assert chunk.ids == expected.ids
        np.testing.assert_array_equal(chunk.features, expected.features)


def test_closing_early_stops_the_threads():
    chunks = extract(names("i", 100), loader(), Recorder(), batch_size=2, chunk_batches=1, workers=2)
    next(chunks)
    assert any(thread.name.startswith("images") for thread in threading.enumerate())
    chunks.close()
    assert not any(thread.name.startswith("images") for thread in threading.enumerate())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_failing_image_is_named_by_its_row_and_never_by_its_path(workers):
    def load(row):
        if row == 5:
            raise OSError(2, "No such file", "/clinic/jane-doe/scan.png")
        return [image(row)]

    with pytest.raises(ExtractionError, match=r"row 5: its image cannot be loaded \(FileNotFoundError\)") as caught:
        list(extract(names("i", 9), load, Recorder(), batch_size=2, chunk_batches=1, workers=workers))
    assert caught.value.row == 5
    assert "jane-doe" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None


def test_chunks_before_a_failing_image_are_still_delivered():
    def load(row):
        if row == 6:
            raise ValueError
        return [image(row)]

    chunks = extract(names("i", 9), load, Recorder(), batch_size=2, chunk_batches=1, workers=1)
    assert [next(chunks).ids for _ in range(3)] == [("i0", "i1"), ("i2", "i3"), ("i4", "i5")]
    with pytest.raises(ExtractionError):
        next(chunks)


def test_a_row_without_all_its_conditions_is_refused():
    with pytest.raises(ExtractionError, match=r"row 0: 2 image\(s\) for 3 condition\(s\)"):
        list(extract(["a"], loader(2), Recorder(), conditions=names("c", 3), batch_size=2, chunk_batches=1))


def test_an_image_of_another_shape_is_named_by_its_row():
    def load(row):
        return [np.zeros((2 + (row == 3), 2, 3), np.uint8)]

    with pytest.raises(ExtractionError, match=r"row 3: an image of shape \(3, 2, 3\) among"):
        list(extract(names("i", 4), load, Recorder(), batch_size=4, chunk_batches=1))


def test_features_that_are_not_finite_are_refused_by_row():
    class Broken(Recorder):
        def encode(self, batch):
            features = super().encode(batch)
            features[batch[:, 0, 0, 0] == 7, 1] = np.nan
            return features

    # Value 7 is row 3's second condition.
    with pytest.raises(ExtractionError, match="row 3: its features are not finite"):
        list(extract(names("i", 6), loader(2), Broken(), conditions=["a", "b"], batch_size=4, chunk_batches=2))


def test_memory_errors_tell_the_batch():
    class Full(Recorder):
        def encode(self, _batch):
            raise MemoryError

    with pytest.raises(EncoderMemoryError) as caught:
        list(extract(names("i", 6), loader(), Full(), batch_size=4, chunk_batches=2))
    assert caught.value.images == 4


def test_progress_counts_stored_vectors_and_measures_the_rate():
    seen = []
    options = {"batch_size": 2, "chunk_batches": 2, "start_chunk": 1}
    list(extract(names("i", 9), loader(), Recorder(), progress=lambda *a: seen.append(a), **options))
    assert [(done, total) for done, total, _ in seen] == [(6, 9), (8, 9), (9, 9)]
    assert all(rate > 0 for *_, rate in seen)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"chunk_batches": 0},
        {"conditions": ()},
        {"workers": -1},
        {"start_chunk": 4},
        {"start_chunk": -1},
    ],
)
def test_arguments_out_of_range_are_refused_at_once(options):
    with pytest.raises(ValueError, match=r"at least|outside"):
        extract(names("i", 6), loader(), Recorder(), **{"batch_size": 2, "chunk_batches": 1} | options)
