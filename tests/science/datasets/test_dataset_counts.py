import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crs_assets.science.datasets import DatasetIndex, check_expected, count_summary, suppress_small
from crs_assets.science.datasets.counts import count_raw, tell
from crs_assets.science.datasets.tables import Count, RawTable


@pytest.mark.parametrize(("count", "shown"), [(0, "0"), (1, "<10"), (9, "<10"), (10, "10"), (191_229, "191229")])
def test_small_counts_are_suppressed(count, shown):
    assert suppress_small(count) == shown


@pytest.fixture
def index(catalogue):
    """12 images of 6 patients: 11 healthy, one with a severe grade that is truncated."""
    spec = catalogue("demo-fundus")
    frame = pl.DataFrame(
        {
            "image_id": [f"demo-fundus/{n:02d}" for n in range(12)],
            "group_id": [f"demo-fundus::{n // 2}" for n in range(12)],
            "label": pl.Series([0] * 10 + [1, 3], dtype=pl.Int16),
        }
    )
    raw = RawTable(frame, (Count("lateral_view", 4),), (Count("without_group", 2),), ())
    pixels = frame.with_columns(
        pl.Series("flags", [["small"]] * 2 + [[]] * 10, dtype=pl.List(pl.String)),
        pl.Series("quarantine", [None] * 11 + ["truncated"], dtype=pl.String),
    )
    return DatasetIndex(pixels, count_raw(raw, spec))


def test_summary_tells_read_excluded_quarantined_and_used(index, catalogue):
    summary = count_summary(index, catalogue("demo-fundus"))
    assert summary.columns == ["dataset", "kind", "name", "count"]
    assert summary["dataset"].unique().to_list() == ["demo-fundus"]
    assert summary.drop("dataset").rows() == [
        ("read", "images", "12"),
        ("read", "groups", "6"),
        ("excluded", "lateral_view", "4"),
        ("noticed", "without_group", "2"),
        ("quarantined", "truncated", "1"),
        ("flagged", "small", "2"),
        ("used", "images", "11"),
        ("used", "groups", "6"),
        # 11 used images less 10 would be the 1 that is not told.
        ("positives", "no DR", "suppressed"),
        ("positives", "mild", "suppressed"),
        ("positives", "moderate", "0"),
        ("positives", "severe", "0"),
        ("positives", "proliferative", "0"),
    ]


@pytest.mark.parametrize(
    ("counts", "shown"),
    [
        ([50, 20, 30], ["50", "20", "30"]),
        # 100 - 50 - 41 = 9: the next smallest, 41, is hidden too, and nothing tells which is the small one.
        ([50, 9, 41], ["50", "suppressed", "suppressed"]),
        ([50, 9, 20, 20, 0], ["50", "suppressed", "suppressed", "20", "0"]),
        # Of two small ones only the sum follows, here 11.
        ([60, 3, 8], ["60", "<10", "<10"]),
        # Two that sum to 2 are 1 and 1; two that sum to 18, each below 10, are 9 and 9.
        ([60, 1, 1], ["suppressed", "suppressed", "suppressed"]),
        ([60, 9, 9, 70], ["suppressed", "suppressed", "suppressed", "70"]),
        # Nothing is left to hide it with.
        ([0, 4, 0], ["0", "<10", "0"]),
    ],
)
def test_no_small_count_follows_from_the_total(counts, shown):
    assert tell(counts, adds_up=True) == shown


def test_without_a_total_small_counts_alone_are_hidden():
    assert tell([50, 9, 41], adds_up=False) == ["50", "<10", "41"]


@given(st.lists(st.integers(0, 60), min_size=3, max_size=8))
def test_whoever_subtracts_is_left_with_a_choice(counts):
    assume(any(count >= 10 for count in counts))
    told = tell(counts, adds_up=True)
    hidden = [at for at, text in enumerate(told) if not text.isdigit()]
    rest = sum(counts) - sum(int(text) for text in told if text.isdigit())
    others = len(hidden) - 1
    # Each hidden count is at least 1, and at most 9 where that is said; the others take what is left.
    most = 9 if "<10" in told else rest
    for at in hidden:
        least_possible, most_possible = max(1, rest - most * others), min(most, rest - others)
        assert least_possible < most_possible, (counts, told, at)
    assert not [count for count, text in zip(counts, told, strict=True) if 0 < count < 10 and text.isdigit()]


def summarised(spec, labels, groups):
    """Positives of each class that a data set of these labels and groups shows."""
    frame = pl.DataFrame(
        {"image_id": [f"{spec.id}/{n}" for n in range(len(groups))], "group_id": [f"{spec.id}::{n}" for n in groups]}
    ).with_columns(labels)
    pixels = frame.with_columns(
        pl.Series("flags", [[]] * len(groups), dtype=pl.List(pl.String)), pl.lit(None, pl.String).alias("quarantine")
    )
    summary = count_summary(DatasetIndex(pixels, count_raw(RawTable(frame, (), (), ()), spec)), spec)
    return summary.filter(pl.col("kind") == "positives")["count"].to_list()


def test_classes_of_a_multilabel_set_make_no_total(catalogue):
    spec = catalogue("demo-chest", classes=["Edema", "Fracture"], derived={})
    labels = {"label:Edema": [1] * 12 + [0] * 18, "label:Fracture": [1] * 3 + [0] * 27}
    columns = [pl.Series(name, cells, dtype=pl.Int8) for name, cells in labels.items()]
    assert summarised(spec, columns, range(30)) == ["12", "<10"]


@pytest.mark.parametrize(
    ("labels", "groups", "shown"),
    [
        # 20 images of mild are of 4 people; the next smallest goes with it, or 60 - 25 - 15 would be the 20.
        ([0] * 25 + [1] * 20 + [2] * 15, [*range(25), *([25, 26, 27, 28] * 5), *range(29, 44)], ["25", "?", "?"]),
        # 10 people each.
        ([0] * 25 + [1] * 20 + [2] * 15, [*range(25), *([*range(25, 35)] * 2), *range(35, 50)], ["25", "20", "15"]),
        # 30 images lack the one class, all of the same 3 people; so few carry the other.
        ([0] * 40 + [1] * 30, [*range(40), *([40, 41, 42] * 10)], ["?", "?", "0"]),
    ],
)
def test_many_images_of_few_people_are_not_told_nor_what_they_follow_from(catalogue, labels, groups, shown):
    spec = catalogue("demo-fundus", classes=["none", "mild", "severe"])
    told = summarised(spec, [pl.Series("label", labels, dtype=pl.Int16)], groups)
    assert told == [text.replace("?", "suppressed") for text in shown]


def test_a_label_that_few_people_lack_is_not_told(catalogue):
    spec = catalogue("demo-chest", classes=["Edema", "Fracture"], derived={})
    # 12 images lack the first label, of 2 people; 12 of the second, of 12.
    labels = {"label:Edema": [1] * 28 + [0] * 12, "label:Fracture": [0] * 12 + [1] * 28}
    columns = [pl.Series(name, cells, dtype=pl.Int8) for name, cells in labels.items()]
    assert summarised(spec, columns, [*range(28), *([28, 29] * 6)]) == ["suppressed", "28"]


def test_expected_counts_are_those_of_the_files_as_read(index, catalogue):
    as_read = {"images": 12, "groups": 6, "positives": {"severe": 1}}
    assert check_expected(index, catalogue("demo-fundus", expected=as_read)) == []
    assert check_expected(index, catalogue("demo-fundus")) == []


def test_every_mismatch_is_told(index, catalogue):
    wrong = {"images": 3_662, "groups": 6, "positives": {"mild": 370, "severe": 1}}
    texts = check_expected(index, catalogue("demo-fundus", expected=wrong))
    assert [text.split(";")[0] for text in texts] == [
        "demo-fundus: 12 images read, 3,662 expected",
        "demo-fundus: 1 positives of mild read, 370 expected",
    ]
