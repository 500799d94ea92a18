"""The artifact store: content-addressed partitions, written whole or not at all.

A partition is a folder ``<root>/<suite>/<asset>/<key parts>/``. Each version of its content is a sub-folder named by
the first 16 digits of its fingerprint; ``current`` names the one in force. A version holds its files and, written
last, ``manifest.json``. A version without a manifest does not exist for a reader.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec

from crs_assets.science.canonical import canonical_json

MANIFEST = "manifest.json"
CURRENT = "current"
_BLOCK = 1 << 20


class StoreError(RuntimeError):
    """A partition that cannot be read or written; the message names it and the cure."""


@dataclass(frozen=True)
class ArtifactKey:
    """Address of a partition: the asset's name and the parts of its partition key."""

    suite: str
    asset: str
    parts: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Path below the store's root, with forward slashes."""
        return "/".join((self.suite, self.asset, *self.parts))

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Manifest:
    """What is known of one version of a partition without opening its files.

    Attributes:
        fingerprint: SHA-256 of the recipe: decides whether work is needed.
        data_version: What downstream recipes depend on; the fingerprint unless the content names itself.
        recipe: Everything the content depends on.
        provenance: Versions, device and protocol that travel with each number.
        summary: Small facts for metadata and checks: counts, never ids.
        files: Name -> SHA-256 and size in bytes.
    """

    fingerprint: str
    data_version: str
    recipe: dict[str, Any]
    provenance: dict[str, Any]
    summary: dict[str, Any]
    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Canonical JSON: the same content gives the same bytes."""
        return canonical_json(self.__dict__)


@dataclass(frozen=True)
class Artifact:
    """A verified version of a partition."""

    key: ArtifactKey
    folder: Path
    manifest: Manifest

    def file(self, name: str) -> Path:
        """Path of a file of this version.

        Raises:
            StoreError: If the version has no such file.
        """
        if name not in self.manifest.files:
            raise StoreError(f"{self.key}: no file {name!r}; it holds {sorted(self.manifest.files)}.")
        return self.folder / name


class ArtifactStore:
    """Partitions below one local folder, mirrored to another file system where one is configured.

    Args:
        root: Local folder.
        remote: Any fsspec URL; partitions are pushed there when committed and pulled when absent here.
    """

    def __init__(self, root: Path, remote: str | None = None) -> None:
        self.root = root
        self._remote = _Remote(remote) if remote else None
        self._verified: set[tuple[str, int, int]] = set()

    def check_writable(self, needed_bytes: int = 0) -> None:
        """Refuse early a folder that cannot be written or a disk that cannot hold what is coming.

        Raises:
            StoreError: Naming the folder, what is free and what is needed.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe = self.root / f".probe-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as error:
            raise StoreError(f"cannot write to {self.root} ({error.strerror}); choose another CRS_HOME.") from error
        free = shutil.disk_usage(self.root).free
        if free < needed_bytes:
            raise StoreError(
                f"{self.root}: {free / 1e9:.1f} GB free, {needed_bytes / 1e9:.1f} GB needed; "
                "free space or move CRS_HOME."
            )

    def peek(self, key: ArtifactKey) -> Manifest | None:
        """The manifest in force, without verifying files; None where there is none."""
        folder = self._current(key)
        return None if folder is None else _read_manifest(folder)

    def is_current(self, key: ArtifactKey, fingerprint: str) -> bool:
        """Whether the partition in force is exactly this version."""
        manifest = self.peek(key)
        return manifest is not None and manifest.fingerprint == fingerprint

    def open(self, key: ArtifactKey, fingerprint: str | None = None) -> Artifact:
        """A verified version: the one in force, or the one of a fingerprint, where it was kept.

        Raises:
            StoreError: If there is none, or a file is missing or altered.
        """
        folder = self._current(key) if fingerprint is None else self._version(key, fingerprint)
        manifest = None if folder is None else _read_manifest(folder)
        if folder is None or manifest is None:
            raise StoreError(f"{key}: not in the store; make it first: crs run --suite {key.suite}.")
        for name, facts in manifest.files.items():
            self._verify(key, folder / name, facts)
        return Artifact(key, folder, manifest)

    def adopt(self, key: ArtifactKey, fingerprint: str) -> bool:
        """Put a whole version that lies there already in force; False where there is none.

        It was in force before, or its mirroring failed after everything else was done. For holders of ``write``.

        Raises:
            StoreError: If one of its files was altered.
        """
        folder = self._version(key, fingerprint)
        if folder is None:
            return False
        self.open(key, fingerprint)
        self._put_in_force(key, folder)
        return True

    def _version(self, key: ArtifactKey, fingerprint: str) -> Path | None:
        folder = self.root / key.path / fingerprint[:16]
        manifest = _read_manifest(folder)
        return folder if manifest is not None and manifest.fingerprint == fingerprint else None

    def _put_in_force(self, key: ArtifactKey, folder: Path) -> None:
        # The mirror first: were it last, a failed push would leave a version in force here that is never pushed again.
        if self._remote:
            self._remote.push(key.path, folder)
        write_atomic(folder.parent / CURRENT, folder.name)

    def keys(self, suite: str, asset: str) -> list[ArtifactKey]:
        """Every partition of an asset that has a version in force, sorted."""
        base = self.root / suite / asset
        found = (path.parent.relative_to(base).parts for path in base.rglob(CURRENT))
        return sorted((ArtifactKey(suite, asset, parts) for parts in found), key=str)

    @contextmanager
    def write(self, key: ArtifactKey, fingerprint: str) -> Iterator["Staging"]:
        """Stage a version: yields a folder that survives a crash, so that work resumes; ``commit`` puts it in force.

        Two writers of one partition take turns.
        """
        partition = self.root / key.path
        partition.mkdir(parents=True, exist_ok=True)
        with (partition / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._discard_other_staging(partition, fingerprint)
            staging = Staging(self, key, partition, fingerprint)
            yield staging

    def prune(self, key: ArtifactKey) -> None:
        """Remove every version of a partition but the one in force (for large, recomputable content)."""
        current = self._current(key)
        for folder in (self.root / key.path).iterdir():
            if folder.is_dir() and folder != current and (folder / MANIFEST).exists():
                shutil.rmtree(folder)

    def _current(self, key: ArtifactKey) -> Path | None:
        partition = self.root / key.path
        pointer = partition / CURRENT
        if self._remote and not pointer.exists():
            self._remote.pull(key.path, partition)
        if not pointer.exists():
            return None
        folder = partition / pointer.read_text().strip()
        return folder if (folder / MANIFEST).exists() else None

    def _verify(self, key: ArtifactKey, path: Path, facts: dict[str, Any]) -> None:
        try:
            stat = path.stat()
        except FileNotFoundError as error:
            raise StoreError(f"{key}: {path.name} is missing; delete the partition's folder and run again.") from error
        mark = (str(path), stat.st_mtime_ns, stat.st_size)
        if mark in self._verified:
            return
        if stat.st_size != facts["bytes"] or file_sha256(path) != facts["sha256"]:
            raise StoreError(
                f"{key}: {path.name} differs from its manifest; it was altered after it was written. "
                "Delete the partition's folder and run again."
            )
        self._verified.add(mark)

    @staticmethod
    def _discard_other_staging(partition: Path, fingerprint: str) -> None:
        for stale in partition.glob(".staging-*"):
            if stale.name != f".staging-{fingerprint[:16]}":
                shutil.rmtree(stale)


class Staging:
    """An open, uncommitted version of a partition."""

    def __init__(self, store: ArtifactStore, key: ArtifactKey, partition: Path, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.folder = partition / f".staging-{fingerprint[:16]}"
        self.folder.mkdir(exist_ok=True)
        self._store = store
        self._key = key
        self._partition = partition

    def path(self, name: str) -> Path:
        """Where to write a file of this version; its name may lie in a folder, with a forward slash."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        return path

    def commit(
        self,
        *,
        recipe: dict[str, Any],
        provenance: dict[str, Any],
        summary: dict[str, Any],
        data_version: str | None = None,
    ) -> Manifest:
        """Write the manifest and put the version in force; either both happen or neither.

        Names that begin with a dot are scratch of an unfinished version and are dropped.
        """
        for scratch in self.folder.glob(".*"):
            scratch.unlink()
        files = {
            name: {"sha256": file_sha256(self.folder / name), "bytes": (self.folder / name).stat().st_size}
            for name in _names(self.folder)
            if name != MANIFEST
        }
        manifest = Manifest(self.fingerprint, data_version or self.fingerprint, recipe, provenance, summary, files)
        write_atomic(self.folder / MANIFEST, manifest.to_json())
        version = self._partition / self.fingerprint[:16]
        if version.exists():
            shutil.rmtree(version)
        self.folder.rename(version)
        self._store._put_in_force(self._key, version)
        return manifest


class _Remote:
    """A mirror on any fsspec file system; the pointer is pushed last, so a reader never sees half a version."""

    def __init__(self, url: str) -> None:
        try:
            self._fs, self._base = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise StoreError(f"[store] remote {url}: {error}; install what this kind of address needs.") from error

    def push(self, path: str, folder: Path) -> None:
        target = f"{self._base}/{path}"
        for name in sorted(_names(folder), key=lambda name: name == MANIFEST):
            place = f"{target}/{folder.name}/{name}"
            self._fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            self._fs.put_file(str(folder / name), place)
        self._fs.pipe_file(f"{target}/{CURRENT}", folder.name.encode())

    def pull(self, path: str, partition: Path) -> None:
        source = f"{self._base}/{path}"
        if not self._fs.exists(f"{source}/{CURRENT}"):
            return
        version = self._fs.cat_file(f"{source}/{CURRENT}").decode().strip()
        folder = partition / version
        found = self._fs.find(f"{source}/{version}")
        names = [name.rpartition(f"/{version}/")[2] for name in found]
        for name in sorted(names, key=lambda name: name == MANIFEST):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            self._fs.get_file(f"{source}/{version}/{name}", str(folder / name))
        write_atomic(partition / CURRENT, version)


def write_atomic(path: Path, text: str) -> None:
    """Write a small text file so that a reader sees the old or the new content, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in blocks."""
    hasher = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            hasher.update(block)
    return hasher.hexdigest()


def _names(folder: Path) -> list[str]:
    """Every file below a folder by its path there, with forward slashes, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _read_manifest(folder: Path) -> Manifest | None:
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        return Manifest(**json.loads(path.read_text(encoding="utf-8")))
    except (json.JSONDecodeError, TypeError) as error:
        raise StoreError(
            f"{path}: not a manifest of this version of crs_assets ({error}); delete the folder."
        ) from error
