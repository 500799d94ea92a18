"""A name that nobody knows: which one was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that an unknown one resembles most, as an end of a message: `` Did you mean 'demo'?``.

    Args:
        name: What was asked for.
        known: What there is.

    Returns:
        Empty where nothing resembles it.
    """
    close = get_close_matches(name, known, 1)
    return f" Did you mean {close[0]!r}?" if close else ""
