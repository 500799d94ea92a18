"""Small counts in tables that may be published: few people are never told how few."""

COARSE = 10


def shown_count(count: int, minimum: int, *, people: int | None = None, coarse: bool = False) -> str:
    """A count as a published table shows it.

    Args:
        count: What is counted.
        minimum: Smallest number of people whose count is shown.
        people: Patients behind the count; the count itself by default.
        coarse: Whether a count beside it is not shown: an exact one would give that away by subtraction.

    Returns:
        The count, or ``<minimum`` where it is below that, or ``suppressed`` where many images are of too few patients,
        or ``40 or more`` where it is coarse.
    """
    if count < minimum:
        return f"<{minimum}"
    if people is not None and people < minimum:
        return "suppressed"
    return f"{count // COARSE * COARSE} or more" if coarse else str(count)
