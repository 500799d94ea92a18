import math

import pytest

from crs_assets.report.numbers import NONE, change, change_interval, counted, interval, listed, minus_signs, percent

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0314, "+0.031"),
        (-0.0314, f"{MINUS}0.031"),
        (-0.0001, "0.000"),
        (0.0, "0.000"),
        (None, NONE),
        (math.nan, NONE),
    ],
)
def test_change_has_a_sign_unless_it_rounds_to_0(value, text):
    assert change(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.004, "<1 %"),
        (0.996, ">99 %"),
        (0.5, "50 %"),
        (None, NONE),
        (math.nan, NONE),
    ],
)
def test_only_certainty_is_0_or_100_percent(share, text):
    assert percent(share) == text


def test_intervals_counts_and_lists():
    assert interval(0.1, -0.2) == f"[0.100, {MINUS}0.200]"
    assert change_interval(-0.1, 0.25) == f"[{MINUS}0.100, +0.250]"
    assert interval(None, 0.1) == change_interval(0.1, None) == NONE
    assert [counted(n, "pair") for n in (0, 1, 2000)] == ["0 pairs", "1 pair", "2,000 pairs"]
    assert [listed(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "none",
        "a",
        "a and b",
        "a, b and c",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rho -0.4 [-1.000, 0.2]", f"rho {MINUS}0.4 [{MINUS}1.000, 0.2]"),
        ("efficientnet-lite0-112 / -1", f"efficientnet-lite0-112 / {MINUS}1"),
        ("arXiv:2608.22059, a-1, 3-4", "arXiv:2608.22059, a-1, 3-4"),
    ],
)
def test_hyphens_are_minus_signs_before_numbers_and_stay_hyphens_in_names(text, shown):
    assert minus_signs(text) == shown
