"""The gate before a split is recorded: nothing may lie on two sides."""

import polars as pl

from crs_assets.science.splits.assignment import Splits


class LeakError(ValueError):
    """A split that must not be recorded. The message counts and never names: group ids may belong to patients."""


def check_no_leak(index: pl.DataFrame, splits: Splits) -> None:
    """Refuse a split in which a group, or an image with the same pixels, lies on two sides.

    Args:
        index: The index that was split: ``image_id``, ``group_id``, ``quarantine`` and ``pixel_digest``.
        splits: The roles to check.

    Raises:
        LeakError: Listing every problem: groups and pixel digests on two sides, usable rows without exactly one role,
            quarantined or unknown rows with one.
    """
    roles = splits.frame.select("image_id", "role")
    known = roles.join(index, on="image_id", how="inner")
    usable = index.filter(pl.col("quarantine").is_null())
    counts = {
        "groups are on two sides": _on_two_sides(known, "group_id"),
        "groups of identical images are on two sides": _on_two_sides(known, "pixel_digest"),
        "rows have more than one role": roles.height - roles["image_id"].n_unique(),
        "usable rows have no role": usable.join(roles, on="image_id", how="anti").height,
        "quarantined rows have a role": known.filter(pl.col("quarantine").is_not_null()).height,
        "rows are not in the index": roles.join(index, on="image_id", how="anti").height,
    }
    if problems := [f"{count} {text}" for text, count in counts.items() if count]:
        raise LeakError(
            f"{splits.dataset}, seed {splits.seed}: {'; '.join(problems)}. The split is refused; check the index's "
            "group_id (exact duplicates belong in one group) and build the splits again from it."
        )


def _on_two_sides(rows: pl.DataFrame, key: str) -> int:
    sides = rows.filter(pl.col(key).is_not_null()).group_by(key).agg(pl.col("role").n_unique())
    return sides.filter(pl.col("role") > 1).height
