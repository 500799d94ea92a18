import polars as pl
import pytest

from crs_assets.science.datasets import DatasetIndex, check_expected, count_summary, suppress_small
from crs_assets.science.datasets.counts import count_raw
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
        ("positives", "no DR", "10"),
        ("positives", "mild", "<10"),
        ("positives", "moderate", "0"),
        ("positives", "severe", "0"),
        ("positives", "proliferative", "0"),
    ]


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
