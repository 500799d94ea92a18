"""Welch's test: two groups of encoders with unequal variances, the encoder as unit."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit

from crs_assets.science.validation import open_unit

MIN_GROUP = 2
"""A variance needs two values."""


@dataclass(frozen=True)
class WelchTest:
    """Two-sided test of equal means [1]_.

    Attributes:
        n: Encoders of the group.
        n_against: Encoders of the group that it is compared with.
        mean: Mean of the group; None where it is empty.
        mean_against: Mean of the other.
        difference: Mean minus mean_against.
        lower: Lower end of the interval of the difference; None where there is no test.
        upper: Upper end.
        t: Test statistic.
        degrees_of_freedom: Welch-Satterthwaite.
        p_value: Two-sided, in [0, 1].
        reason: Why there is no test.

    References:
        .. [1] Welch, "The generalization of 'Student's' problem when several different population variances are
           involved", Biometrika 34, 1947.
    """

    n: int
    n_against: int
    mean: float | None
    mean_against: float | None
    difference: float | None
    lower: float | None = None
    upper: float | None = None
    t: float | None = None
    degrees_of_freedom: float | None = None
    p_value: float | None = None
    reason: str | None = None


def welch_test(values: ArrayLike, against: ArrayLike, *, level: float) -> WelchTest:
    """Compare the means of two groups.

    Args:
        values: One finite value per encoder of the group (n,); may be empty.
        against: The same of the group that it is compared with.
        level: Coverage of the interval of the difference, for example 0.95.

    Raises:
        ValueError: If the level leaves (0, 1).
    """
    open_unit(level, name="level")
    a, b = np.asarray(values, dtype=np.float64), np.asarray(against, dtype=np.float64)
    means = [float(group.mean()) if len(group) else None for group in (a, b)]
    difference = None if means[0] is None or means[1] is None else means[0] - means[1]
    told = (len(a), len(b), means[0], means[1], difference)
    if difference is None or min(len(a), len(b)) < MIN_GROUP:
        return WelchTest(*told, reason=f"{len(a)} against {len(b)} encoders, needs {MIN_GROUP} on both sides")
    parts = [float(group.var(ddof=1)) / len(group) for group in (a, b)]
    if sum(parts) == 0:
        return WelchTest(*told, reason="no spread within either group")
    error = float(np.sqrt(sum(parts)))
    freedom = sum(parts) ** 2 / sum(part**2 / (n - 1) for part, n in zip(parts, told[:2], strict=True))
    t = difference / error
    half = float(stdtrit(freedom, (1 + level) / 2)) * error
    return WelchTest(
        *told,
        lower=difference - half,
        upper=difference + half,
        t=t,
        degrees_of_freedom=freedom,
        p_value=float(2 * stdtr(freedom, -abs(t))),
    )
