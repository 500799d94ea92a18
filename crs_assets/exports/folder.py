"""Writing an export into a folder: every file whole or not at all, and ``manifest.json`` last.

A folder without a manifest is no export. The manifest names each file with its size, its SHA-256 and what it is.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crs_assets.exports.results import ExportError
from crs_assets.resources.artifact_store import file_sha256, write_atomic

MANIFEST = "manifest.json"
_STAGING = ".partial-"


@dataclass(frozen=True)
class ExportFile:
    """A file to be written.

    Attributes:
        path: Where, below the folder, with forward slashes.
        about: What it is, in a sentence.
        content: Makes its bytes; called once, so that one file at a time is in memory.
    """

    path: str
    about: str
    content: Callable[[], bytes]


@dataclass(frozen=True)
class Written:
    """What happened: whether anything changed, and how many files and bytes the export has."""

    changed: bool
    files: int
    size: int


def write_folder(folder: Path, files: Iterable[ExportFile], facts: Mapping[str, Any], *, force: bool) -> Written:
    """Write an export.

    Files that are no part of an export are never touched.

    Args:
        folder: An empty or new folder, or one with an export.
        files: What to write.
        facts: What the manifest says beside the files.
        force: Replace an export that differs, or write beside files of somebody else.

    Raises:
        ExportError: If the folder cannot be made, or holds another export or other files and ``force`` is not given.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ExportError(f"{folder} is a file; name a folder.") from error
    except OSError as error:
        raise ExportError(f"{folder} cannot be made ({error.strerror}); name a folder that can be written.") from error
    for unfinished in folder.glob(f"{_STAGING}*"):
        shutil.rmtree(unfinished)
    before = _read_manifest(folder)
    if before is None and not force and any(folder.iterdir()):
        raise ExportError(f"{folder} holds files that no export listed; choose an empty folder, or add --force.")
    with tempfile.TemporaryDirectory(dir=folder, prefix=_STAGING) as staging:
        entries = [_stage(Path(staging), file) for file in files]
        manifest = {**facts, "files": sorted(entries, key=lambda entry: str(entry["path"]))}
        written = Written(before != manifest or bool(_altered(folder, entries)), len(entries), _size(entries))
        if not written.changed:
            return written
        if before is not None and not force:
            raise ExportError(f"{folder} holds another export; choose another folder, or replace it with --force.")
        _put_in_place(folder, Path(staging), manifest, [] if before is None else before["files"])
    return written


def _stage(staging: Path, file: ExportFile) -> dict[str, Any]:
    """Write a file beside its place; its entry in the manifest."""
    content = file.content()
    path = staging / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    digest = hashlib.sha256(content).hexdigest()
    return {"path": file.path, "about": file.about, "bytes": len(content), "sha256": digest}


def _put_in_place(folder: Path, staging: Path, manifest: dict[str, Any], old: list[dict[str, Any]]) -> None:
    (folder / MANIFEST).unlink(missing_ok=True)
    for entry in manifest["files"]:
        place = folder / entry["path"]
        place.parent.mkdir(parents=True, exist_ok=True)
        (staging / entry["path"]).replace(place)
    for path in {entry["path"] for entry in old} - {entry["path"] for entry in manifest["files"]}:
        _remove(folder, path)
    write_atomic(folder / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")


def _remove(folder: Path, path: str) -> None:
    """Remove a file of the former export, and the folders that it leaves empty."""
    place = folder / path
    place.unlink(missing_ok=True)
    for parent in place.relative_to(folder).parents:
        if parent != Path() and (folder / parent).is_dir() and not any((folder / parent).iterdir()):
            (folder / parent).rmdir()


def _altered(folder: Path, entries: list[dict[str, Any]]) -> list[str]:
    """Files that are not there as the entries say."""
    return [
        entry["path"]
        for entry in entries
        if not (folder / entry["path"]).is_file() or file_sha256(folder / entry["path"]) != entry["sha256"]
    ]


def _size(entries: list[dict[str, Any]]) -> int:
    return sum(entry["bytes"] for entry in entries)


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        paths = [entry["path"] for entry in manifest["files"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{path} is not a manifest of an export; choose another folder.") from error
    if outside := [path for path in paths if Path(path).is_absolute() or ".." in Path(path).parts]:
        raise ExportError(f"{folder / MANIFEST} names {len(outside)} file(s) outside its folder; choose another.")
    return manifest
