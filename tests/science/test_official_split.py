"""An official test set: taken to the image, and nothing of its groups anywhere else."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science.protocol import load_protocol
from crs_assets.science.splits import check_no_leak, split_seed, take_official_test

PROTOCOL = load_protocol("crs-v1")


@dataclass(frozen=True)
class Space:
    id: str = "eyes"
    task: str = "multiclass"
    classes: tuple[str, ...] = ("a", "b", "c")


def index(split, group, label=None, quarantine=None):
    n = len(split)
    return pl.DataFrame(
        {
            "image_id": [f"eyes/{i:04d}" for i in range(n)],
            "group_id": [f"eyes::{g}" for g in group],
            "split": pl.Series(split, dtype=pl.String),
            "label": pl.Series(label or [i % 3 for i in range(n)], dtype=pl.Int16),
            "pixel_digest": [f"digest of {g}" for g in group],
            "quarantine": pl.Series(quarantine or [None] * n, dtype=pl.String),
        }
    )


def test_the_published_test_set_stays_and_its_copies_elsewhere_have_no_role():
    # Group 1 is one picture in train and test, group 3 one in val, test and (damaged) train.
    frame = index(
        ["train", "train", "test", "val", "test", "train", "test", None],
        [0, 1, 1, 3, 3, 3, 6, 7],
        quarantine=[None, None, None, None, None, "truncated", None, None],
    )
    taken = take_official_test(frame)
    gone = "group_in_official_test"
    assert taken["quarantine"].to_list() == [None, gone, None, gone, None, "truncated", None, None]
    assert taken["is_test"].to_list() == [False, None, True, None, True, None, True, False]
    assert taken["image_id"].to_list() == frame["image_id"].to_list()


def test_a_damaged_test_image_takes_nobody_with_it():
    taken = take_official_test(index(["test", "train"], [0, 0], quarantine=["truncated", None]))
    assert taken["is_test"].to_list() == [None, False]
    assert taken["quarantine"].to_list() == ["truncated", None]


def test_an_index_without_a_split_is_refused():
    with pytest.raises(ValueError, match="no column 'split'"):
        take_official_test(index(["test"], [0]).drop("split"))


@settings(max_examples=25, deadline=None)
@given(groups=st.integers(3, 120), largest=st.integers(1, 6), seed=st.integers(0, 9999), share=st.floats(0.05, 0.6))
def test_no_group_and_no_picture_is_on_two_sides_at_any_seed(groups, largest, seed, share):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), rng.integers(1, largest + 1, groups))
    split = np.where(rng.random(len(group)) < share, "test", "train")
    split[0] = "test"
    frame = take_official_test(index(split.tolist(), group.tolist()))
    published = set(frame.filter(pl.col("split") == "test")["image_id"])
    for split_seed_ in PROTOCOL.data.seeds:
        splits = split_seed(frame, Space(), split_seed_, PROTOCOL)
        check_no_leak(frame, splits)
        assert set(splits.ids("test")) == published
    # Independent count: what has no role is every train image of a group that the test set touches.
    touched = {g for g, s in zip(group, split, strict=True) if s == "test"}
    expected = sum(g in touched and s == "train" for g, s in zip(group, split, strict=True))
    assert frame.height - frame["quarantine"].null_count() == expected
