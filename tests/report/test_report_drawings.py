"""Pictures of the report: who is told apart, who is dominated, equal bytes for equal content."""

import re

import polars as pl
import pytest

from crs_assets.report import canvas
from crs_assets.report.drawings import curves, elsewhere, ranking
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
            "kind": ["case-centred", "seed", "case-centred"],
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


@pytest.fixture
def figures(monkeypatch):
    """Pictures as matplotlib's figures, before they become bytes."""
    monkeypatch.setattr(canvas, "drawn", lambda figure: figure)


def depth_table():
    """Two seeds: e00 at half its blocks .8 and .9, at all .7 and .7; e01 has one depth that did not converge."""
    return pl.DataFrame(
        {
            "encoder": ["e00", "e00", "e01", "e01", "unranked"],
            "dataset": "skin",
            "share": [0.5, 1.0, 0.5, 1.0, 1.0],
            "auroc": [0.85, 0.70, None, 0.60, 0.99],
            "auroc_low": [0.8, 0.7, None, 0.6, 0.99],
            "auroc_high": [0.9, 0.7, None, 0.6, 0.99],
            "times_chosen": [2, 0, 0, 1, 1],
            "seeds": 2,
        }
    )


def rings(axes):
    """(share, AUROC, opacity) of what is drawn as a ring."""
    lines = [line for line in axes.get_lines() if line.get_markerfacecolor() == "none"]
    return [(float(line.get_xdata()[0]), float(line.get_ydata()[0]), line.get_alpha()) for line in lines]


def test_depths_of_ranked_encoders_are_curves_with_a_bar_over_the_seeds_and_a_ring_where_validation_chose(figures):
    figure = curves.depth_curves(depth_table(), ["skin"], looks(rows(2, 0)))
    (axes,) = figure.axes
    drawn = [line.get_ydata().tolist() for line in axes.get_lines() if line.get_markerfacecolor() != "none"]
    assert drawn == [[0.85, 0.70], [0.60]]
    spans = [segment[:, 1].tolist() for bars in axes.collections for segment in bars.get_segments()]
    assert spans == [[0.8, 0.9], [0.7, 0.7], [0.6, 0.6]]
    # Both seeds of e00 chose half the blocks, one of e01 all of them; marks stand side by side.
    assert rings(axes) == [(pytest.approx(0.5, abs=0.01), 0.85, 1.0), (pytest.approx(1.0, abs=0.01), 0.60, 0.5)]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["50 %", "100 %"]


def test_depths_have_a_panel_per_data_set_and_grey_encoders_neither_bar_nor_ring(figures):
    table = pl.concat([depth_table(), depth_table().with_columns(dataset=pl.lit("eye"))])
    grey = {"e00": OTHER}
    figure = curves.depth_curves(table, ["skin", "eye"], grey)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["skin", "eye"]
    for axes in figure.axes:
        assert len(axes.get_lines()) == 1
        assert not axes.collections


def test_label_curves_have_ece_below_auroc_in_the_same_order_of_data_sets(figures):
    names = ["a", "b", "c", "d"]
    table = pl.DataFrame(
        [
            {"encoder": "e00", "dataset": name, "fraction": share, "auroc": 0.8, "lower": 0.7, "upper": 0.9, "ece": at}
            for at, name in enumerate(names)
            for share in (0.1, 1.0)
        ]
    )
    figure = curves.label_curves(table, names, looks(rows(1, 0)))
    shown = [(axes.get_title(loc="left"), axes.get_ylabel()) for axes in figure.axes]
    assert shown == [(name, metric) for metric in ("AUROC", "ECE") for name in names]
    # Two rows of AUROC, then two of ECE, each of three and one.
    lefts, tops = zip(*((round(axes.bbox.x0), round(axes.bbox.y1)) for axes in figure.axes), strict=True)
    assert lefts[0] == lefts[3] == lefts[4] == lefts[7]
    assert tops[0] == tops[2] > tops[3] > tops[4] == tops[6] > tops[7]
    assert [axes.get_lines()[0].get_ydata()[0] for axes in figure.axes[4:]] == [0, 1, 2, 3]
    assert all(axes.collections for axes in figure.axes[:4])
    assert not any(axes.collections for axes in figure.axes[4:])


def test_a_group_looks_the_same_under_every_axis_even_where_the_first_has_no_value(figures):
    # Too few women for an AUROC: men come first there, and second in the panel of the calibration error.
    table = pl.DataFrame(
        {
            "column": "sex",
            "group": ["female", "male", "female", "male"],
            "axis": ["discrimination", "discrimination", "calibration", "calibration"],
            "encoder": "e00",
            "value": [None, 0.9, 0.2, 0.1],
        }
    )
    auroc, ece = elsewhere.subgroup_gaps(table, ["e00"], "Skin").axes
    looks_of = [
        {
            text.get_text(): handle.get_color()
            for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True)
        }
        for legend in (auroc.get_legend(), ece.get_legend())
    ]
    assert set(looks_of[0]) == {"male"}
    assert set(looks_of[1]) == {"female", "male"}
    assert looks_of[0]["male"] == looks_of[1]["male"] != looks_of[1]["female"]
