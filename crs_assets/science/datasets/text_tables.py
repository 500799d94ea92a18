"""Tables as text: no value is interpreted before a reader asks for it, so ``0012``, ``NA`` and ``3-11`` stay."""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from crs_assets.science.datasets.errors import DatasetError, Problems, refusal
from crs_assets.science.datasets.spec import normalise_name

ROW = "(row)"
"""Name of the column of row numbers: those of the file, the header being row 1."""

_CHUNK_ROWS = 20_000
_GZIP_MAGIC = b"\x1f\x8b"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


@dataclass(frozen=True)
class TextTable:
    """A table whose columns are text.

    Attributes:
        name: File name, for messages.
        frame: One String column per header with null for a blank cell, and ``ROW``.
    """

    name: str
    frame: pl.DataFrame

    def find(self, name: str) -> str | None:
        """The column of that name, whatever its case and spacing; None where there is none."""
        wanted = normalise_name(name)
        return next((column for column in self.frame.columns if normalise_name(column) == wanted), None)

    def require(self, names: Sequence[str], problems: Problems) -> dict[str, str]:
        """Map each wanted name to its column, recording those that are missing."""
        found = {name: self.find(name) for name in names}
        if missing := [name for name, column in found.items() if column is None]:
            problems.add(
                self.name,
                f"columns missing: {missing}; the table has {[c for c in self.frame.columns if c != ROW]}",
                "Columns are matched by name; use the original table or rename them.",
            )
        return {name: column for name, column in found.items() if column is not None}


def read_text_tables(paths: Sequence[Path], source: str) -> list[TextTable]:
    """Read several tables, reporting what is wrong with any of them.

    Args:
        paths: CSV files, plain or gzip-compressed, or Parquet files.
        source: Name of the data set, for messages.

    Raises:
        DatasetError: With the problems of all the tables.
    """
    problems = Problems(source)
    tables = []
    for path in paths:
        try:
            tables.append(_read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path))
        except DatasetError as error:
            problems.extend(error)
    problems.raise_any()
    return tables


def _read_csv(path: Path) -> TextTable:
    problems = Problems(path.name)
    records = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    header = [name.strip() for name in next(records, [])]
    _check_header(path.name, header)
    ragged: list[int] = []
    try:
        chunks = [_text_frame(header, *chunk) for chunk in _chunks(records, len(header), ragged)]
    except csv.Error as error:
        raise refusal(path.name, f"quotes do not match ({error})", "Export the table again as CSV.") from None
    problems.add(path.name, f"rows do not have {len(header)} cells", "Fetch or export the table again.", ragged)
    problems.raise_any()
    return TextTable(path.name, pl.concat(chunks) if chunks else _text_frame(header, [], []))


def _chunks(records: Iterator[list[str]], width: int, ragged: list[int]) -> Iterator[tuple[list[int], list[list[str]]]]:
    """Rows in blocks, so that a large table is never held as Python objects; blank rows are skipped."""
    numbers: list[int] = []
    rows: list[list[str]] = []
    for number, cells in enumerate(records, start=2):
        if not any(cells):
            continue
        if len(cells) != width:
            ragged.append(number)
            continue
        numbers.append(number)
        rows.append(cells)
        if len(rows) == _CHUNK_ROWS:
            yield numbers, rows
            numbers, rows = [], []
    if rows:
        yield numbers, rows


def _text_frame(header: Sequence[str], numbers: Sequence[int], rows: Sequence[Sequence[str]]) -> pl.DataFrame:
    cells = zip(*rows, strict=True) if rows else [()] * len(header)
    columns = [pl.Series(name, values, dtype=pl.String) for name, values in zip(header, cells, strict=True) if name]
    frame = pl.DataFrame(columns).with_columns(_blank_to_null(pl.all()))
    return frame.with_columns(pl.Series(ROW, numbers, dtype=pl.Int64))


def _blank_to_null(cells: pl.Expr) -> pl.Expr:
    return pl.when(cells.str.strip_chars() != "").then(cells)


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP_MAGIC):
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise refusal(path.name, f"the gzip file is damaged ({error})", "Fetch it again.") from None
    except OSError as error:
        raise refusal(path.name, f"the file cannot be read ({error.strerror})", "Check its permissions.") from None
    if data.startswith(b"version https://git-lfs"):
        raise refusal(path.name, "a Git LFS pointer in place of the table", "Run `git lfs pull` in its source.")
    if data.lstrip()[:1] == b"<":
        raise refusal(path.name, "a web page saved as a table", "Log in to its source and fetch it again.")
    if data.startswith(_UTF16_MARKS):
        raise refusal(path.name, "the text is UTF-16, expected UTF-8", "Export the table as 'CSV UTF-8'.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        what = f"the text is not UTF-8 (first at byte {error.start})"
        raise refusal(path.name, what, "Export the table as 'CSV UTF-8'.") from None


def _check_header(name: str, header: Sequence[str]) -> None:
    problems = Problems(name)
    if not any(header):
        problems.add(name, "the table is empty or its first row is blank", "Fetch or export it again.")
    if len(header) == 1:
        for separator, called in _OTHER_SEPARATORS.items():
            if separator in header[0]:
                problems.add(
                    name,
                    f"cells are separated by {called}, expected commas",
                    "Export with commas between cells and points in numbers (Excel: a locale with a decimal point).",
                )
    named = [column for column in header if column]
    if repeated := sorted({column for column in named if named.count(column) > 1}):
        problems.add(name, f"column names repeat: {repeated}", "Give every column its own name.")
    problems.raise_any()


def _read_parquet(path: Path) -> TextTable:
    try:
        frame = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        raise refusal(path.name, "not a readable Parquet file", "Write it again.") from None
    problems = Problems(path.name)
    for column, dtype in frame.schema.items():
        if not (dtype.is_numeric() or dtype in (pl.String, pl.Boolean, pl.Null, pl.Categorical)):
            problems.add(path.name, f"column {column!r} has type {dtype}", "Write it as text or as numbers.")
    problems.raise_any()
    text = frame.with_columns(pl.all().cast(pl.String)).with_columns(_blank_to_null(pl.all()))
    return TextTable(path.name, text.with_columns(pl.int_range(2, pl.len() + 2, dtype=pl.Int64).alias(ROW)))
