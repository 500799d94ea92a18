"""One way to refuse a data set: every problem at once, by table, column and row number, never by a patient's id."""

from collections.abc import Iterable, Sequence

SHOWN_ROWS = 20


class DatasetError(ValueError):
    """A data set that cannot be read as it is.

    Attributes:
        source: What was read.
        problems: One sentence per problem: where, what was expected, what to do.
    """

    def __init__(self, source: str, problems: Sequence[str]) -> None:
        super().__init__(source, tuple(problems))
        self.source = source
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join([f"{self.source}: {len(self.problems)} problem(s):", *(f"  {text}" for text in self.problems)])


class Problems:
    """Collects what is wrong while a data set is read, so that one error tells all of it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._texts: list[str] = []

    def __bool__(self) -> bool:
        """Whether anything was recorded."""
        return bool(self._texts)

    def add(self, table: str, what: str, cure: str, rows: Iterable[int] | None = None) -> None:
        """Record one problem.

        Args:
            table: File name of the table.
            what: What was seen, and what was expected; names columns, never cell contents.
            cure: What to do next.
            rows: Row numbers of the file, the header being row 1; an empty collection means no problem.
        """
        if rows is None:
            self._texts.append(_sentence(table, what, cure))
            return
        numbers = sorted(rows)
        if numbers:
            self._texts.append(_sentence(table, f"{what} ({row_list(numbers)})", cure))

    def extend(self, error: DatasetError) -> None:
        """Take over the problems of an error."""
        self._texts.extend(error.problems)

    def raise_any(self) -> None:
        """Raise everything recorded so far.

        Raises:
            DatasetError: If anything was recorded.
        """
        if self._texts:
            raise DatasetError(self.source, self._texts)


def refusal(table: str, what: str, cure: str) -> DatasetError:
    """The error of a table of which nothing more can be read; the caller raises it."""
    return DatasetError(table, [_sentence(table, what, cure)])


def _sentence(table: str, what: str, cure: str) -> str:
    return f"{table}: {what}. {cure}"


def row_list(numbers: Sequence[int]) -> str:
    """Row numbers in words, long lists shortened."""
    shown = ", ".join(map(str, numbers[:SHOWN_ROWS]))
    if len(numbers) == 1:
        return f"row {shown}"
    rest = f" and {len(numbers) - SHOWN_ROWS} more, {len(numbers)} in all" if len(numbers) > SHOWN_ROWS else ""
    return f"rows {shown}{rest}"
