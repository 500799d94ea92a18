"""Null controls: metadata as features, labels dealt anew."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crs_assets.science.nulls import metadata_features, shuffle_labels


def test_metadata_become_numbers_indicators_of_missing_and_one_column_per_value():
    index = pl.DataFrame(
        {
            "image_id": ["a", "b", "c"],
            "sub:sex": ["female", None, "male"],
            "sub:age": [61.0, None, 30.0],
            "sub:view": ["AP", "AP", "PA"],
            "label": [1, 0, 1],
        }
    )
    # In the order of names: age and its indicator, sex (female, male, missing), view (AP, PA).
    expected = [[61, 0, 1, 0, 0, 1, 0], [0, 1, 0, 0, 1, 1, 0], [30, 0, 0, 1, 0, 0, 1]]
    features = metadata_features(index)
    assert features.dtype == np.float32
    np.testing.assert_array_equal(features, expected)


def test_no_metadata_is_no_control():
    assert metadata_features(pl.DataFrame({"image_id": ["a"], "label": [1]})) is None


@given(st.permutations(range(12)), st.integers(0, 3))
def test_shuffled_labels_follow_the_image_and_not_the_row(order, seed):
    index = pl.DataFrame({"image_id": [f"i{n:02d}" for n in range(12)]})
    labels = np.arange(12) % 5
    dealt = shuffle_labels(labels, index, "salt", "set", seed)
    assert sorted(dealt) == sorted(labels)
    again = shuffle_labels(labels[order], index[order], "salt", "set", seed)
    np.testing.assert_array_equal(again, dealt[order])


@pytest.mark.parametrize("change", [("other", "set", 0), ("salt", "other", 0), ("salt", "set", 1)])
def test_salt_data_set_and_seed_deal_differently(change):
    index = pl.DataFrame({"image_id": [f"i{n:03d}" for n in range(200)]})
    labels = np.arange(200)
    dealt = shuffle_labels(labels, index, "salt", "set", 0)
    assert (shuffle_labels(labels, index, *change) != dealt).mean() > 0.9


def test_rows_of_a_multilabel_set_move_whole_and_mean_nothing():
    rng = np.random.default_rng(0)
    index = pl.DataFrame({"image_id": [f"i{n:04d}" for n in range(2000)]})
    labels = (rng.random((2000, 3)) < [0.5, 0.2, 0.1]).astype(np.float32)
    labels[:, 1] = labels[:, 0]
    labels[5] = np.nan
    dealt = shuffle_labels(labels, index, "salt", "set", 0)
    np.testing.assert_array_equal(dealt[:, 1], dealt[:, 0])
    assert np.isnan(dealt).sum() == 3
    known = ~np.isnan(dealt[:, 0]) & ~np.isnan(labels[:, 0])
    # Independent of the true labels: a correlation of 2,000 pairs is within 4 standard errors of 0.
    assert abs(np.corrcoef(dealt[known, 0], labels[known, 0])[0, 1]) < 4 / 2000**0.5
