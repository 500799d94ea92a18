"""Small counts in tables that may be published: few people are never told how few."""


def shown_count(count: int, minimum: int, *, people: int | None = None) -> str:
    """A count as a published table shows it.

    Args:
        count: What is counted.
        minimum: Smallest number of people whose count is shown.
        people: Patients behind the count; the count itself by default.

    Returns:
        The count, or ``<minimum`` where it is below that, or ``suppressed`` where many images are of too few patients.
    """
    if count < minimum:
        return f"<{minimum}"
    return str(count) if people is None or people >= minimum else "suppressed"
