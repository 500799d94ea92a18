"""Small counts and what would give them away, by hand."""

from types import SimpleNamespace

import polars as pl
import pytest

from crs_assets.exports.suppression import count_classes, mark_hidden, told


def space(task, *classes):
    return SimpleNamespace(id="d", task=task, classes=classes)


def table(positives, *, total, adds_up, **more):
    """Counts where every image is of another patient."""
    columns = {
        "class": [f"c{at}" for at in range(len(positives))],
        "positives": positives,
        "negatives": [total - count for count in positives],
        "positive_groups": positives,
        "negative_groups": [total - count for count in positives],
        "adds_up": [adds_up] * len(positives),
    }
    return pl.DataFrame(columns | more)


def test_groups_are_counted_once_however_many_images_they_have():
    index = pl.DataFrame(
        {
            "image_id": ["a", "b", "c", "d", "e"],
            "group_id": ["p", "p", "p", "q", "r"],
            "label": pl.Series([0, 0, 1, 1, 1], dtype=pl.Int16),
        }
    )
    counted = count_classes(index, space("multiclass", "x", "y")).row(0, named=True)
    # Class x: images a, b of patient p; the others are c of p, d of q, e of r.
    assert counted == {
        "class": "x",
        "positives": 2,
        "negatives": 3,
        "positive_groups": 1,
        "negative_groups": 3,
        "adds_up": True,
    }


def test_uncertain_cells_carry_neither_sign():
    index = pl.DataFrame(
        {
            "image_id": ["a", "b", "c"],
            "group_id": ["p", "q", "r"],
            "label:x": pl.Series([1, -1, 0], dtype=pl.Int8),
        }
    )
    counted = count_classes(index, space("multilabel", "x")).row(0, named=True)
    assert (counted["positives"], counted["negatives"], counted["adds_up"]) == (1, 1, False)


@pytest.mark.parametrize(
    ("positives", "adds_up", "hidden"),
    [
        ([50, 9, 20, 21], False, [False, True, False, False]),
        # 100 - 50 - 20 - 21 = 9 would follow, so the next smallest (20) is hidden too.
        ([50, 9, 20, 21], True, [False, True, True, False]),
        # Two hidden ones have only their sum told.
        ([60, 9, 8, 23], True, [False, True, True, False]),
        # Two that sum to 2 are 1 and 1.
        ([60, 1, 1, 38], True, [False, True, True, True]),
        ([50, 10, 20, 20], True, [False, False, False, False]),
        # None is no patient's secret; 5 is hidden with the next smallest that has any, 95.
        ([95, 0, 5], True, [True, False, True]),
        # Fewer than 10 lack the class: 96 of 100.
        ([96, 50], False, [True, False]),
    ],
)
def test_which_classes_are_hidden(positives, adds_up, hidden):
    marked = mark_hidden(table(positives, total=100, adds_up=adds_up))
    assert marked["hidden"].to_list() == hidden


def test_many_images_of_few_patients_are_hidden():
    few = table([40, 60], total=100, adds_up=False).with_columns(positive_groups=pl.Series([9, 30]))
    assert mark_hidden(few)["hidden"].to_list() == [True, False]


def test_data_sets_of_one_table_do_not_touch_each_other():
    both = pl.concat(
        [
            table([91, 9], total=100, adds_up=True, dataset=["a"] * 2),
            table([60, 40], total=100, adds_up=True, dataset=["b"] * 2),
        ]
    )
    assert mark_hidden(both, ["dataset"])["hidden"].to_list() == [True, True, False, False]


def test_only_one_to_nine_are_not_told():
    shown = pl.DataFrame({"n": [0, 1, 9, 10, 500]}).select(told("n"))["n"].to_list()
    assert shown == [0, None, None, 10, 500]
