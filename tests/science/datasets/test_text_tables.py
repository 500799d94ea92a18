import datetime
import gzip

import polars as pl
import pytest

from crs_assets.science.datasets import DatasetError
from crs_assets.science.datasets.text_tables import ROW, read_text_tables


def read(tmp_path, data, name="table.csv"):
    path = tmp_path / name
    path.write_bytes(data)
    (table,) = read_text_tables([path], "mine")
    return table


def test_cells_stay_as_they_are_written(tmp_path):
    # What spreadsheets and table readers like to change: leading zeros, a patient called NA, Excel's dates.
    table = read(tmp_path, b"id,other\n0012,NA\n3-11,None\n11-Mar,1.0\n1e3,2026-11-03\n")
    assert table.frame["id"].to_list() == ["0012", "3-11", "11-Mar", "1e3"]
    assert table.frame["other"].to_list() == ["NA", "None", "1.0", "2026-11-03"]
    assert table.frame[ROW].to_list() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfid,b\n1,x\n2,\n",
        b"id,b\r\n1,x\r\n2,\r\n",
        b"id,b\n1,x\n2,  \n",
        b'id,b\n"1","x"\n"2",""\n',
        b" id ,b,,\n1,x,,\n2,,,\n",
        gzip.compress(b"id,b\n1,x\n2,\n"),
    ],
    ids=["BOM", "CRLF", "blanks", "quotes", "header spaces and empty columns", "gzip"],
)
def test_harmless_variants_read_alike(tmp_path, data):
    frame = read(tmp_path, data).frame
    assert frame.select("id", "b").rows() == [("1", "x"), ("2", None)]


def test_blank_rows_are_skipped_and_rows_keep_their_numbers(tmp_path):
    assert read(tmp_path, b"id,b\n1,x\n\n,\n2,y\n").frame[ROW].to_list() == [2, 5]


def test_columns_are_found_by_name_not_by_position_or_case(tmp_path):
    table = read(tmp_path, b"b,Pleural_effusion\n1,2\n")
    assert table.find("Pleural Effusion") == "Pleural_effusion"
    assert table.find("Edema") is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"a;b\n1;2\n", "semicolons"),
        (b"a\tb\n1\t2\n", "tabs"),
        (b"a,b\n1,2\n3\n4,5,6\n", "do not have 2 cells .rows 3, 4"),
        (b"a,a\n1,2\n", "repeat: .'a'"),
        (b'a,b\n"1,2\n', "quotes do not match"),
        ("a,b\nM\u00fcller,1\n".encode("latin-1"), "not UTF-8"),
        ("a,b\n1,2\n".encode("utf-16"), "UTF-16"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"<!DOCTYPE html><html>Log in</html>", "web page"),
        (gzip.compress(b"a,b\n1,2\n" * 50, mtime=0)[:-12], "gzip file is damaged"),
    ],
)
def test_damaged_tables_are_refused_with_the_cure(tmp_path, data, message):
    with pytest.raises(DatasetError, match=message) as caught:
        read(tmp_path, data)
    assert "table.csv" in str(caught.value)


def test_all_damaged_tables_are_told_at_once(tmp_path):
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    paths[0].write_bytes(b"a;b\n")
    paths[1].write_bytes(b"")
    with pytest.raises(DatasetError) as caught:
        read_text_tables(paths, "mine")
    assert [text.split(":")[0] for text in caught.value.problems] == ["one.csv", "two.csv"]


def test_parquet_reads_like_text(tmp_path):
    path = tmp_path / "table.parquet"
    pl.DataFrame({"id": ["0012", "NA"], "n": [1, None], "x": [1.0, 0.5]}).write_parquet(path)
    (table,) = read_text_tables([path], "mine")
    assert table.frame.select("id", "n", "x").rows() == [("0012", "1", "1.0"), ("NA", None, "0.5")]


def test_parquet_dates_are_not_silently_turned_into_ids(tmp_path):
    path = tmp_path / "table.parquet"
    pl.DataFrame({"id": [datetime.date(2026, 3, 11)]}).write_parquet(path)
    with pytest.raises(DatasetError, match="column 'id' has type Date"):
        read_text_tables([path], "mine")


def test_many_rows_are_counted_not_listed(tmp_path):
    with pytest.raises(DatasetError, match=r"rows 2, 3, .*, 21 and 5 more, 25 in all") as caught:
        read(tmp_path, b"a,b\n" + b"1\n" * 25)
    assert "22" not in str(caught.value)
