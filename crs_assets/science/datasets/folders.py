"""Folders named after classes, as many public copies come: quick to try, without patients unless file names tell."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import polars as pl

from crs_assets.science.datasets.columns import SUBGROUP
from crs_assets.science.datasets.errors import Problems, refusal
from crs_assets.science.datasets.locations import undouble
from crs_assets.science.datasets.options import FoldersOptions
from crs_assets.science.datasets.raw_table import EXCLUDED, GROUP, KEY, TABLE, finish_table
from crs_assets.science.datasets.spec import DatasetSpec, normalise_name
from crs_assets.science.datasets.tables import RawTable
from crs_assets.science.datasets.text_tables import ROW
from crs_assets.science.identifiers import IMAGE_EXTENSIONS
from crs_assets.science.labels import LABEL

_LISTING = "(folders)"
# What macOS and Windows leave in archives; hidden files, among them macOS's ``._`` twins, are told by their dot.
_STRAY_FOLDERS = ("__MACOSX",)
_SHOWN = 10


def read(root: Path, spec: DatasetSpec) -> RawTable:
    """Read a tree in which the class of an image is the name of the nearest folder around it that is a class.

    Case, spaces and underscores of folder names make no difference. An image's key is its path below the folder,
    without extension: moving a file changes its id. Hidden files and what is no image by its extension are passed over.

    Raises:
        DatasetError: If there are no images, or some lie in no class's folder.
    """
    if spec.task == "multilabel":
        raise refusal(spec.id, "a folder says one class, the entry's task is multilabel", "Write a manifest instead.")
    options = FoldersOptions.model_validate(spec.reader_options)
    base = root / options.folder if options.folder else root
    if not base.is_dir():
        raise refusal(_LISTING, f"there is no folder {options.folder!r}", "Correct reader_options.folder.")
    base = undouble(base)
    files = sorted(_images(base, base))
    if not files:
        raise refusal(_LISTING, f"no file ends in one of {list(IMAGE_EXTENSIONS)}", "Name the folder with the images.")
    problems = Problems(spec.id)
    labels = _labels(files, spec, options, problems)
    pattern = re.compile(options.group_pattern)
    prefix = base.relative_to(root)
    rows = pl.DataFrame(
        {
            ROW: range(1, len(files) + 1),
            TABLE: [_LISTING] * len(files),
            KEY: [str(file) for file in files],
            GROUP: pl.Series([_group(pattern, file.name) for file in files], dtype=pl.String),
            EXCLUDED: pl.Series([None] * len(files), dtype=pl.String),
            "path": [(prefix / file).as_posix() for file in files],
            LABEL: pl.Series(labels, dtype=pl.Int16),
            **{f"{SUBGROUP}:{name}": pl.Series([None] * len(files), dtype=pl.String) for name in spec.subgroups},
        }
    )
    return finish_table(rows, spec, root, [], problems)


def _images(folder: Path, base: Path) -> Iterator[PurePosixPath]:
    for entry in folder.iterdir():
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if entry.name not in _STRAY_FOLDERS:
                yield from _images(entry, base)
        elif entry.suffix.lower().lstrip(".") in IMAGE_EXTENSIONS:
            yield PurePosixPath(entry.relative_to(base).as_posix())


def _labels(
    files: list[PurePosixPath], spec: DatasetSpec, options: FoldersOptions, problems: Problems
) -> list[int | None]:
    position = {normalise_name(name): index for index, name in enumerate(spec.classes)}
    for folder, name in options.names.items():
        if name not in spec.classes:
            problems.add(spec.id, f"reader_options.names leads to {name!r}, which is no class", "Correct the entry.")
        else:
            position[normalise_name(folder)] = spec.classes.index(name)
    labels: list[int | None] = []
    astray: Counter[str] = Counter()
    for file in files:
        around = (position.get(normalise_name(parent.name)) for parent in file.parents)
        labels.append(next((index for index in around if index is not None), None))
        if labels[-1] is None:
            astray[str(file.parent)] += 1
    if astray:
        seen = ", ".join(f"{folder} ({count})" for folder, count in sorted(astray.items())[:_SHOWN])
        problems.add(
            _LISTING,
            f"{astray.total()} images lie in no folder of a class: {seen}; the classes are {list(spec.classes)}",
            "Map the folders in reader_options.names, or move them out.",
        )
    return labels


def _group(pattern: re.Pattern[str], name: str) -> str | None:
    match = pattern.search(name) if pattern.pattern else None
    return match[1] if match else None
