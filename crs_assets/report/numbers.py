"""How numbers are written in tables and pictures: three decimals, a dash where there is none."""

import math
import re
from collections.abc import Sequence

NONE = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"


def decimals(value: float | None) -> str:
    """Three decimals; a dash for None and NaN."""
    return NONE if value is None or math.isnan(value) else f"{value:.3f}".replace("-", _MINUS)


def rank_text(rank: float | None) -> str:
    """A rank; tied encoders share the mean of their ranks, so 1.5 is possible."""
    return NONE if rank is None else f"{rank:g}"


def places(rank_from: float | None, rank_to: float | None) -> float | None:
    """Places gained from one ranking to another; positive = higher in the second."""
    return None if rank_from is None or rank_to is None else rank_from - rank_to


def signed(value: float | None) -> str:
    """A count of places with its sign."""
    return NONE if value is None else "0" if value == 0 else f"{value:+g}".replace("-", _MINUS)


def change(value: float | None) -> str:
    """Three decimals with a sign; 0.000 without one, a dash for None and NaN."""
    if value is None or math.isnan(value):
        return NONE
    text = f"{value:+.3f}"
    return text[1:] if float(text) == 0 else text.replace("-", _MINUS)


def percent(share: float | None) -> str:
    """A share in whole percent; nothing but certainty is 0 or 100."""
    if share is None or math.isnan(share):
        return NONE
    whole = round(100 * share)
    if 0 < share < 1:
        return "<1 %" if whole == 0 else ">99 %" if whole == 100 else f"{whole} %"
    return f"{whole} %"


def interval(low: float | None, high: float | None) -> str:
    """An interval in brackets; a dash where there is none."""
    return NONE if low is None or high is None else f"[{decimals(low)}, {decimals(high)}]"


def change_interval(low: float | None, high: float | None) -> str:
    """An interval of a difference in brackets, ends with their signs; a dash where there is none."""
    return NONE if low is None or high is None else f"[{change(low)}, {change(high)}]"


def minus_signs(text: str) -> str:
    """A text made elsewhere, with the hyphens before its negative numbers as minus signs."""
    return re.sub(r"(?<![\w.])-(?=\d)", _MINUS, text)


def counted(number: int, noun: str) -> str:
    """A number with its noun, plural where it is one."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(names: Sequence[str]) -> str:
    """Names as a list in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "none"
