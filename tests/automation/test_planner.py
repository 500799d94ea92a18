"""Ranges cover exactly what is wanted, and a range never crosses an absent cell or another encoder."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from crs_assets.automation.planner import contiguous_ranges

ORDER = [(encoder, task) for encoder in ("a", "b", "c") for task in ("x.s0", "x.s1", "y.s0", "y.s1")]


@given(wanted=st.sets(st.sampled_from(ORDER)))
def test_ranges_hold_what_is_wanted_once_and_nothing_else(wanted):
    ranges = list(contiguous_ranges(sorted(wanted), ORDER))
    assert [parts for run in ranges for parts in run] == [parts for parts in ORDER if parts in wanted]
    for run in ranges:
        assert len({encoder for encoder, _ in run}) == 1
        start = ORDER.index(run[0])
        assert ORDER[start : start + len(run)] == run


@given(wanted=st.sets(st.sampled_from(ORDER)))
def test_no_two_ranges_could_be_one(wanted):
    ranges = list(contiguous_ranges(sorted(wanted), ORDER))
    for first, second in pairwise(ranges):
        neighbours = ORDER.index(second[0]) == ORDER.index(first[-1]) + 1
        assert not (neighbours and first[-1][0] == second[0][0])


def test_one_dimension_is_split_at_gaps_of_the_given_order():
    order = [("c",), ("a",), ("b",)]
    assert list(contiguous_ranges([("a",), ("b",), ("c",)], order)) == [[("c",), ("a",), ("b",)]]
    assert list(contiguous_ranges([("b",), ("c",)], order)) == [[("c",)], [("b",)]]
