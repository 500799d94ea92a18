"""Finding tables and images among the variants of a layout: nested copies, other extensions, stray files."""

import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from crs_assets.science.datasets.errors import Problems, refusal
from crs_assets.science.identifiers import IMAGE_EXTENSIONS

KEY = "key"
PATH = "path"


def find_base(root: Path, names: Sequence[str], nested: Sequence[str] = ()) -> Path:
    """The folder nearest to the root that holds one of the tables.

    Args:
        root: The data set's folder.
        names: File names, any of which marks the folder.
        nested: Patterns of folders below the root to look into, nearest first, where the root itself has none.

    Raises:
        DatasetError: If no folder, or more than one of the same pattern, holds one.
    """
    looked_in = ["the folder itself", *(f"{pattern}/" for pattern in nested)]
    for pattern in (None, *nested):
        folders = [root] if pattern is None else sorted(root.glob(pattern))
        found = [folder for folder in folders if any((folder / name).is_file() for name in names)]
        if len(found) > 1:
            raise refusal(
                names[0],
                f"{len(found)} copies below the data set's folder ({pattern}/)",
                "Name the folder of one release as the data set's root.",
            )
        if found:
            return found[0]
    raise refusal(
        names[0],
        f"not found in {', '.join(looked_in)}",
        "Name the folder that holds the table as the data set's root, or fetch the table.",
    )


def require_files(base: Path, names: Sequence[str], source: str) -> list[Path]:
    """The tables of that name in a folder; ``<name>.gz`` is preferred where it exists as well or instead.

    Raises:
        DatasetError: Naming every table that is missing.
    """
    problems = Problems(source)
    paths = []
    for name in names:
        candidates = [base / f"{name}.gz", base / name]
        path = next((candidate for candidate in candidates if candidate.is_file()), None)
        if path is None:
            problems.add(name, "the table is missing", "Put it beside the others; nothing is read without it.")
        else:
            paths.append(path)
    problems.raise_any()
    return paths


def relative(folder: Path, root: Path) -> str:
    """A folder below the root as the beginning of a path: empty, or ending in ``/``."""
    path = folder.relative_to(root).as_posix()
    return "" if path == "." else f"{path}/"


def undouble(folder: Path) -> Path:
    """The folder of the same name inside a folder, as some archives unpack, else the folder."""
    inner = folder / folder.name
    return inner if inner.is_dir() else folder


def image_paths(keys: pl.Series, folder: Path | Sequence[Path], root: Path, extension: str) -> pl.Series:
    """Where the image of each key lies.

    Copies of a data set store the same images under other extensions, so a key is looked up among the files of the
    folder; a key without a file gets the layout's own extension and is reported as missing when images are read.

    Args:
        keys: Canonical image keys: file names without extension.
        folder: The folder of images, or several, the first of which is preferred; none need exist.
        root: The data set's folder.
        extension: The layout's own extension, preferred where two files have one key.

    Returns:
        ``path``: relative to the root, with ``/``.
    """
    folders = [folder] if isinstance(folder, Path) else list(folder)
    files: dict[str, str] = {}
    for place in reversed(folders):
        if place.is_dir():
            prefix = relative(place, root)
            files |= {key: f"{prefix}{name}" for key, name in _files_by_key(place, extension).items()}
    default = relative(folders[0], root) if folders else ""
    paths = [files.get(key, f"{default}{key}.{extension}") for key in keys.fill_null("").to_list()]
    return pl.Series(PATH, paths, dtype=pl.String)


def first_of(base: Path, names: Sequence[str]) -> str:
    """The first of these names that is a file of the folder, plain or compressed; the first name where none is."""
    present = (name for name in names if (base / name).is_file() or (base / f"{name}.gz").is_file())
    return next(present, names[0])


def folders_named(base: Path, patterns: Sequence[str]) -> list[Path]:
    """Folders below a base by pattern, in the order of the patterns, then of their names, undoubled."""
    found = (undouble(folder) for pattern in patterns for folder in sorted(base.glob(pattern)) if folder.is_dir())
    return list(dict.fromkeys(found))


def _files_by_key(folder: Path, extension: str) -> dict[str, str]:
    found: dict[str, str] = {}
    with os.scandir(folder) as entries:
        names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    # The layout's own extension is written last, so that it wins.
    for name in sorted(names, key=lambda name: name.rpartition(".")[2] == extension):
        stem, _, suffix = name.rpartition(".")
        if suffix.lower() in IMAGE_EXTENSIONS:
            found[unicodedata.normalize("NFC", stem)] = name
    return found
