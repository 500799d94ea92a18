"""From text cells to typed columns; every cell that does not fit is recorded with its row number."""

from collections.abc import Mapping, Sequence

import polars as pl

from crs_assets.science.datasets.errors import Problems
from crs_assets.science.datasets.spec import DatasetSpec, normalise_name
from crs_assets.science.datasets.text_tables import ROW, TextTable
from crs_assets.science.labels import LABEL

SUBGROUP = "sub"
AGE = "age"
AGE_RANGE = (0, 120)

_UNKNOWN = ("unknown", "unk", "na", "n/a", "nan", "none", "null", "not available")
_SEX = {"m": "male", "f": "female"}
_DECIMAL_COMMA = r"^\s*-?\d+,\d+\s*$"


def number(cells: pl.Expr) -> pl.Expr:
    """Text as Float64; null where it is blank or not a number. ``1``, ``1.0`` and `` 1`` are the same number."""
    return cells.str.strip_chars().cast(pl.Float64, strict=False)


def multilabel_columns(table: TextTable, columns: Mapping[str, str], problems: Problems) -> pl.DataFrame:
    """Cells 1, 0, -1 or blank.

    Args:
        table: The table.
        columns: Column of each class, matched by name.
        problems: Where unusable cells are recorded.

    Returns:
        ``label:<class>`` Int8 for each class, null where blank; rows as in the table.
    """
    for column in columns.values():
        _refuse_unless(table, column, number(pl.col(column)).is_in([-1.0, 0.0, 1.0]), "1, 0, -1 or blank", problems)
    return table.frame.select(
        number(pl.col(column)).cast(pl.Int8, strict=False).alias(f"{LABEL}:{name}") for name, column in columns.items()
    )


def one_hot_column(table: TextTable, columns: Mapping[str, str], problems: Problems) -> pl.Series:
    """The position of the single 1 of each row.

    Args:
        table: The table.
        columns: Column of each class, in the order of the positions returned.
        problems: Where unusable cells, and rows without exactly one 1, are recorded.

    Returns:
        ``label`` Int16, null where a row is unusable.
    """
    names = list(columns.values())
    usable = pl.lit(value=True)
    for column in names:
        is_flag = number(pl.col(column)).is_in([0.0, 1.0]).fill_null(value=False)
        _refuse_unless(table, column, is_flag, "0 or 1", problems, blank_is_wrong=True)
        usable &= is_flag
    total = pl.sum_horizontal(number(pl.col(column)) for column in names)
    problems.add(
        table.name,
        f"the cells of {names} do not sum to 1",
        "Every image has exactly one class; correct the rows.",
        table.frame.filter(usable & (total != 1))[ROW],
    )
    position = pl.coalesce(
        pl.when(number(pl.col(column)) == 1).then(pl.lit(index, dtype=pl.Int16)) for index, column in enumerate(names)
    )
    return table.frame.select(pl.when(usable & (total == 1)).then(position).alias(LABEL))[LABEL]


def class_column(
    table: TextTable,
    column: str,
    classes: Sequence[str],
    problems: Problems,
    *,
    names: Mapping[str, str] | None = None,
    ignore_case: bool = False,
    blank_is_wrong: bool = True,
) -> pl.Series:
    """Class names as class indices.

    Args:
        table: The table.
        column: Where the names are.
        classes: Names in the order of the indices.
        problems: Where unusable cells are recorded.
        names: What the table calls a class -> the class, in addition to the classes' own names.
        ignore_case: Whether case, spaces and underscores make no difference.
        blank_is_wrong: Whether a blank cell is a problem; else it is null.

    Returns:
        ``label`` Int16, null where a cell is unusable.
    """
    position = {name: index for index, name in enumerate(classes)}
    position |= {called: position[name] for called, name in (names or {}).items() if name in position}
    if unknown := sorted(set((names or {}).values()) - set(classes)):
        problems.add(table.name, f"reader_options.names leads to {unknown}, which are no classes", "Correct the entry.")
    cell = pl.col(column).str.strip_chars()
    if ignore_case:
        position = {normalise_name(name): index for name, index in position.items()}
        cell = normalised(cell)
    index = cell.replace_strict(position, default=None, return_dtype=pl.Int16)
    expected = f"one of the classes {list(classes)}" + (f" or one of {sorted(names)}" if names else "")
    _refuse_unless(table, column, index.is_not_null(), expected, problems, blank_is_wrong=blank_is_wrong)
    return table.frame.select(index.alias(LABEL))[LABEL]


def normalised(cells: pl.Expr) -> pl.Expr:
    """Text as ``normalise_name`` makes it."""
    return cells.str.replace_all(r"[\s_]+", " ").str.strip_chars().str.to_lowercase()


def grade_column(table: TextTable, column: str, grades: int, problems: Problems) -> pl.Series:
    """Whole numbers from 0 to ``grades - 1`` as class indices: ``label`` Int16."""
    value = number(pl.col(column))
    allowed = value.is_in([float(grade) for grade in range(grades)])
    _refuse_unless(table, column, allowed, f"a whole number from 0 to {grades - 1}", problems, blank_is_wrong=True)
    return table.frame.select(pl.when(allowed).then(value).cast(pl.Int16).alias(LABEL))[LABEL]


def subgroup_columns(
    table: TextTable, spec: DatasetSpec, aliases: Mapping[str, str], problems: Problems, *, zero_age: bool = True
) -> pl.DataFrame:
    """The subgroup columns of a specification.

    Args:
        table: The table.
        spec: Names the subgroups wanted.
        aliases: Column of a subgroup, where the table calls it something else.
        problems: Where unusable ages are recorded.
        zero_age: Whether an age of 0 is an age; else it means unknown.

    Returns:
        ``sub:<name>`` for each subgroup: text, ``sub:age`` Float64 in years; null where unknown or where the table
        has no such column. ``sub:sex`` is in lower case, M and F spelt out.
    """
    selected = []
    for name in spec.subgroups:
        column = table.find(aliases.get(name, name))
        values = pl.lit(None, dtype=pl.String) if column is None else _known(pl.col(column))
        if name == AGE:
            if column is not None:
                in_range = number(values).is_between(*AGE_RANGE)
                expected = f"an age in years from {AGE_RANGE[0]} to {AGE_RANGE[1]}"
                _refuse_unless(table, column, values.is_null() | in_range, expected, problems)
            values = number(values)
            values = values if zero_age else pl.when(values != 0).then(values)
        elif name == "sex":
            values = values.str.to_lowercase().replace(_SEX)
        selected.append(values.alias(f"{SUBGROUP}:{name}"))
    return table.frame.select(ROW, *selected).drop(ROW)


def _known(cells: pl.Expr) -> pl.Expr:
    text = cells.str.strip_chars()
    return pl.when(~text.str.to_lowercase().is_in(_UNKNOWN)).then(text)


def _refuse_unless(
    table: TextTable,
    column: str,
    allowed: pl.Expr,
    expected: str,
    problems: Problems,
    *,
    blank_is_wrong: bool = False,
) -> None:
    """Record the rows whose cell is not allowed; a blank one only where that is wrong too."""
    considered = pl.lit(value=True) if blank_is_wrong else pl.col(column).is_not_null()
    wrong = table.frame.filter(considered & ~allowed.fill_null(value=False))
    comma = bool(wrong.select(pl.col(column).str.contains(_DECIMAL_COMMA).any()).item())
    cure = "Export numbers with a decimal point, not a comma." if comma else "Correct the cells."
    problems.add(table.name, f"column {column!r}: expected {expected}", cure, wrong[ROW])
