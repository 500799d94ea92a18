"""The two tables of a data set: as its source wrote it, and as the benchmark uses it."""

from dataclasses import dataclass, field

import polars as pl


@dataclass(frozen=True)
class Count:
    """A number of rows and the reason that they are counted for."""

    reason: str
    rows: int


@dataclass(frozen=True)
class RawTable:
    """A data set's tables, before any image is opened.

    Attributes:
        frame: One row per image, in the order of the tables: ``image_id`` and ``group_id`` (canonical), ``path``
            (relative to the root, ``/``), ``label`` Int16 or ``label:<class>`` Int8 (1, 0, -1, null blank),
            ``label:<name>`` Int8 for each derived label, ``sub:<name>`` for each subgroup (String; age Float64; null
            unknown), ``split`` where the source names it.
        exclusions: Rows that the layout's rules leave out, by reason.
        notices: Rows that are kept and deserve a look, by reason.
        tables: Paths of the tables, relative to the root.
        origin: Beside ``frame``, row by row: ``table`` and ``row`` that it came from, and what a manifest declares of
            the file (``declared:sha256``, ``declared:bytes``, ``declared:width``, ``declared:height``).
    """

    frame: pl.DataFrame
    exclusions: tuple[Count, ...]
    notices: tuple[Count, ...]
    tables: tuple[str, ...]
    origin: pl.DataFrame = field(default_factory=pl.DataFrame)


@dataclass(frozen=True)
class DatasetIndex:
    """A data set's index and the counts of the tables that it came from.

    Attributes:
        frame: One row per image, ascending ``image_id``: the columns of the raw table, then ``height`` and ``width``
            (Int32, pixels), ``pixel_digest`` (SHA-256 of the decoded pixels), ``flags`` (list of quality flags),
            ``quarantine`` (null, or the reason why the image has no role).
        counts: Tidy counts of the tables as read, before any quarantine: ``kind``, ``name``, ``count``.
    """

    frame: pl.DataFrame
    counts: pl.DataFrame
