"""Pictures of the report: who is told apart, who is dominated, equal bytes for equal content."""

import re

import polars as pl
import pytest

from crs_assets.report.drawings import elsewhere, ranking
from crs_assets.report.drawings.looks import COLOURS, OTHER, looks
from crs_assets.report.drawings.recalibration import case_order
from crs_assets.report.drawings.tradeoffs import non_dominated


def rows(count, first_by_auroc):
    return [
        {"encoder": f"e{at:02d}", "rank": at + 1.0, "rank_auroc": 0.5 if at == first_by_auroc else at + 1.0}
        for at in range(count)
    ]


def test_few_encoders_are_all_marked_and_no_two_look_alike():
    found = looks(rows(4, 2))
    assert all(look.is_marked for look in found.values())
    assert len({look.colour for look in found.values()}) == len({look.marker for look in found.values()}) == 4


def test_of_many_the_first_are_marked_and_whoever_is_first_by_auroc():
    found = looks(rows(15, 11))
    marked = [name for name, look in found.items() if look.is_marked]
    assert marked == ["e00", "e01", "e02", "e03", "e04", "e11"]
    assert len(marked) == len(COLOURS)
    assert found["e05"] == OTHER


def test_non_dominated_by_hand():
    # b is worse than a on both; c is best on the second; d equals a, and equals do not dominate each other.
    values = {"a": (2, 1), "b": (1, 0), "c": (0, 3), "d": (2, 1)}
    assert non_dominated(values) == {"a", "c", "d"}


def test_numbers_of_cases_stand_in_ascending_order_with_all_last():
    assert case_order(["all", "500", "50", "100", "50"]) == ["50", "100", "500", "all"]


@pytest.fixture(scope="module")
def tables():
    intervals = pl.DataFrame(
        {
            "encoder": ["e00", "e00", "pixels"],
            "kind": ["case", "seed", "case"],
            "value": [0.5, 0.5, 0.1],
            "low": [0.3, None, 0.05],
            "high": [0.45, None, 0.2],
        }
    )
    ranks = pl.DataFrame({"encoder": ["e00"], "rank": [1], "probability": [1.0]})
    return intervals, ranks


def test_a_picture_has_the_same_bytes_each_time_and_names_no_address(tables):
    one, other = (ranking.score_intervals(["e00", "e01"], ["pixels"], *tables) for _ in range(2))
    assert one == other
    assert one.png[:8] == b"\x89PNG\r\n\x1a\n"
    assert one.size == (1400, one.size[1])
    svg = one.svg.decode()
    # Names of XML vocabularies are no addresses: nothing is fetched from them.
    assert set(re.findall(r'(\S+)="https?://', svg)) <= {"xmlns", "xmlns:xlink"}
    assert "<!DOCTYPE" not in svg
    assert not re.findall(r'href="(?!#)', svg)


def test_a_group_without_any_value_is_said_to_have_too_few_cases():
    groups = pl.DataFrame(
        {"column": ["sex"], "group": ["male"], "axis": ["calibration"], "encoder": ["e00"], "value": [0.1]}
    )
    with_value = elsewhere.subgroup_gaps(groups, ["e00"], "Skin")
    without = elsewhere.subgroup_gaps(groups.with_columns(value=pl.lit(None, pl.Float64)), ["e00"], "Skin")
    assert with_value.png != without.png
