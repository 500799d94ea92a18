"""Which images a map is fitted on: sorted, nested by whole groups, named by nothing but a hash of their ids."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crs_assets.science.analyses.recalibration_cases import Cases, case_subsets, fit_half, rows_sha256

GROUPS = st.lists(st.sampled_from([f"p{k}" for k in range(12)]), min_size=1, max_size=60)


def in_hash_order(groups, prefix):
    return sorted(set(groups), key=lambda name: hashlib.sha256(f"{prefix}|{name}".encode()).hexdigest())


def test_the_digest_is_that_of_the_sorted_ids_one_a_line():
    expected = hashlib.sha256(b"a1\nb2\nc3\n").hexdigest()
    assert rows_sha256(["c3", "a1", "b2"]) == expected
    # A separator is needed: "a1", "b" are other images than "a", "1b".
    assert rows_sha256(["a1", "b"]) != rows_sha256(["a", "1b"])


def test_cases_are_sorted_and_keep_each_row_together():
    cases = Cases.of(["c", "a", "b"], ["q", "p", "q"], np.array([2, 0, 1]), np.array([[2.0], [0.0], [1.0]]))
    assert (cases.ids, cases.groups) == (("a", "b", "c"), ("p", "q", "q"))
    np.testing.assert_array_equal(cases.labels, [0, 1, 2])
    np.testing.assert_array_equal(cases.logits[:, 0], [0, 1, 2])
    taken = cases.take(np.array([0, 2]))
    assert (taken.ids, taken.sha256, len(taken)) == (("a", "c"), hashlib.sha256(b"a\nc\n").hexdigest(), 2)


def test_cases_that_do_not_fit_together_are_refused():
    with pytest.raises(ValueError, match="1 image ids repeat among 2 cases"):
        Cases.of(["a", "a"], ["p", "p"], np.array([0, 1]), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="expected one row of each per image"):
        Cases.of(["a", "b"], ["p"], np.array([0, 1]), np.zeros((2, 2)))


@given(groups=GROUPS)
@settings(max_examples=60, deadline=None)
def test_subsets_take_whole_groups_in_the_order_of_their_hashes_until_the_count_is_reached(groups):
    subsets = case_subsets(groups, [1, 5, 20, 50], "salt", "set", 3)
    order = in_hash_order(groups, "salt|set|3")
    previous = set()
    for count, rows in subsets.items():
        if count > len(groups):
            assert rows is None
            continue
        members, images = [], 0
        for name in order:
            if images >= count:
                break
            members.append(name)
            images += groups.count(name)
        assert rows.tolist() == [row for row, name in enumerate(groups) if name in members]
        assert previous <= set(rows.tolist())
        previous = set(rows.tolist())


@given(groups=GROUPS)
@settings(max_examples=60, deadline=None)
def test_a_half_is_whole_groups_of_just_half_the_images(groups):
    chosen = fit_half(groups, "salt", "target")
    inside = {name for name, is_in in zip(groups, chosen, strict=True) if is_in}
    assert not inside & {name for name, is_in in zip(groups, chosen, strict=True) if not is_in}
    order = in_hash_order(groups, "salt|target")
    assert inside == set(order[: len(inside)])
    last = groups.count(order[len(inside) - 1])
    # At least half, and less than half without the last group.
    assert chosen.sum() - last < len(groups) / 2 <= chosen.sum()


def test_another_key_gives_another_order_and_row_order_gives_none():
    groups = [f"p{k % 40}" for k in range(100)]
    rows = case_subsets(groups, [30], "salt", 0)[30]
    assert rows.tolist() != case_subsets(groups, [30], "salt", 1)[30].tolist()
    backwards = case_subsets(groups[::-1], [30], "salt", 0)[30]
    assert {groups[row] for row in rows} == {groups[::-1][row] for row in backwards}
