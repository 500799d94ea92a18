"""What the UI tells of classes: no small count, and none that another gives away; by hand."""

import polars as pl

from crs_assets.assets.describe import suppress


def table(positives, negatives, positive_groups=None, negative_groups=None):
    """Counts of the test set; every image is of another person where nothing else is said."""
    names = [f"c{at}" for at in range(len(positives))]
    return pl.DataFrame(
        {
            "class": names,
            "test_positives": positives,
            "test_negatives": negatives,
            "reason": names,
            "test_positive_groups": positive_groups or positives,
            "test_negative_groups": negative_groups or negatives,
        }
    )


def test_a_small_class_takes_the_next_smallest_with_it_where_classes_add_up():
    shown = suppress(table([50, 4, 20, 26], [50, 96, 80, 74]), adds_up=True)
    # 100 test images are told: 100 - 96 and 100 - 50 - 20 - 26 are both the 4.
    assert shown["test_positives"].to_list() == ["50", "suppressed", "suppressed", "26"]
    assert shown["test_negatives"].to_list() == ["50", "suppressed", "suppressed", "74"]


def test_labels_that_make_no_total_are_hidden_by_both_signs_alone():
    shown = suppress(table([50, 4, 95], [50, 96, 5]), adds_up=False)
    assert shown["test_positives"].to_list() == ["50", "suppressed", "suppressed"]
    assert shown["test_negatives"].to_list() == ["50", "suppressed", "suppressed"]


def test_many_images_of_few_people_are_hidden_with_what_would_give_them_away():
    counts = table([50, 30, 20], [50, 70, 80], positive_groups=[50, 9, 20])
    assert suppress(counts, adds_up=True)["test_positives"].to_list() == ["50", "suppressed", "suppressed"]
    assert suppress(counts, adds_up=False)["test_negatives"].to_list() == ["50", "suppressed", "80"]
    lacked_by_few = table([50, 30], [50, 70], negative_groups=[50, 9])
    assert suppress(lacked_by_few, adds_up=False)["test_positives"].to_list() == ["50", "suppressed"]


def test_reasons_and_numbers_of_people_are_left_out():
    assert suppress(table([50], [50]), adds_up=True).columns == ["class", "test_positives", "test_negatives"]
