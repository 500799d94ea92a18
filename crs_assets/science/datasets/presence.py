"""Whether the image files that a data set's tables name are there; none is opened."""

from pathlib import Path

import polars as pl

from crs_assets.science.datasets.errors import Problems
from crs_assets.science.images.sources import NPZ

# Above this share of missing files the root is wrong, and an index of what is left would be of another data set.
MAX_MISSING = 0.5


def file_of(reference: str) -> str:
    """The file of a path, which for one image of many is the archive."""
    return reference.removeprefix(NPZ).partition("#")[0] if reference.startswith(NPZ) else reference


def missing_files(paths: pl.Series, root: Path) -> pl.Series:
    """Which of these paths, relative to the root, have no file: ``missing``, Boolean."""
    files = [file_of(reference) for reference in paths.to_list()]
    gone = {file for file in set(files) if not (root / file).is_file()}
    return pl.Series("missing", [file in gone for file in files], dtype=pl.Boolean)


def check_root(missing: pl.Series, problems: Problems) -> bool:
    """Whether the root can be right; if not, that is recorded."""
    count = int(missing.sum())
    if count <= MAX_MISSING * missing.len():
        return True
    problems.add(
        problems.source,
        f"{count} of {missing.len()} image files are missing, though the tables were found",
        "Name the folder in which both lie as the data set's root, with the images unpacked as their source lays them "
        "out.",
    )
    return False
