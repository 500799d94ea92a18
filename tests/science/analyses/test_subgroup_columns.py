"""Which image belongs to which subgroup."""

import polars as pl
import pytest

from crs_assets.science.analyses.subgroup_columns import UNKNOWN, age_bands, subgroup_columns
from crs_assets.science.analyses.suppression import shown_count

EDGES = (0.0, 40.0, 65.0)


def test_an_edge_belongs_to_the_band_above_it():
    ages = pl.Series([0.0, 39.9, 40.0, 64.0, 65.0, 101.0, None, float("nan")])
    young, middle, old = "under 40", "40 to under 65", "65 and over"
    assert age_bands(ages, EDGES) == [young, young, middle, middle, old, old, None, None]


@pytest.mark.parametrize(
    ("edges", "bands"), [((0.0,), ["any age"] * 2), ((18.0,), ["under 18", "18 and over"]), ((0.5, 70.0), None)]
)
def test_bands_cover_every_age_whatever_the_edges(edges, bands):
    found = age_bands(pl.Series([17.0, 18.0]), edges)
    assert found == (bands or ["0.5 to under 70"] * 2)


def test_groups_are_ordered_and_what_is_missing_comes_last():
    index = pl.DataFrame(
        {
            "image_id": ["a", "b", "c", "d"],
            "sub:site": ["trunk", None, "arm", UNKNOWN],
            "sub:age": [70.0, 3.0, 50.0, None],
            "sub:race": pl.Series([None] * 4, dtype=pl.String),
            "subject": ["w", "x", "y", "z"],
        }
    )
    site, age = subgroup_columns(index, EDGES)
    assert (site.name, site.groups, site.member.tolist()) == ("site", ("arm", "trunk", UNKNOWN), [1, 2, 0, 2])
    assert (age.name, age.groups) == ("age", ("under 40", "40 to under 65", "65 and over", UNKNOWN))
    assert age.member.tolist() == [2, 0, 1, 3]
    assert site.rows(UNKNOWN).tolist() == [1, 3]
    assert site.rows("leg").tolist() == []


@pytest.mark.parametrize(
    ("count", "people", "shown"),
    [(9, None, "<10"), (10, None, "10"), (30, 9, "suppressed"), (30, 10, "30"), (4, 2, "<10")],
)
def test_few_people_are_never_told_how_few(count, people, shown):
    assert shown_count(count, 10, people=people) == shown
