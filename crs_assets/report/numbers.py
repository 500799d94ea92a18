"""How numbers are written in tables and pictures: three decimals, a dash where there is none."""

import math

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
