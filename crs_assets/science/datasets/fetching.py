"""Fetching a data set where its licence lets a program: one file of Zenodo, resumed where it was cut, verified."""

import hashlib
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from crs_assets.science.datasets.errors import DatasetError
from crs_assets.science.datasets.options import MedmnistOptions
from crs_assets.science.datasets.spec import DatasetSpec

ARCHIVE = "https://zenodo.org"
TIMEOUT_SECONDS = 60

_BLOCK = 1 << 20
_PARTIAL = 206
_KEPT = "what has come is kept, and the next attempt fetches only the rest"

Progress = Callable[[int, int | None], None]
"""Told of the transfer: bytes that are here, bytes in all (None where the archive does not say)."""


def fetch_dataset(
    spec: DatasetSpec, folder: Path, archive: str = ARCHIVE, progress: Progress = lambda *_: None
) -> Path:
    """Bring a data set's file into a folder; one that is there is left alone.

    The file gets its name only once its MD5 is that of the release.

    Args:
        spec: A data set whose entry names its record (``zenodo``).
        folder: Where the data set is to lie.
        archive: Address of the archive.
        progress: Told after every piece.

    Raises:
        DatasetError: If no program may or can fetch it, the archive refuses, or what came is another file.
    """
    if spec.zenodo is None:
        raise DatasetError(spec.id, [f"no program fetches it: {spec.obtain or 'its entry does not say where it is.'}"])
    options = MedmnistOptions.model_validate(spec.reader_options)
    if not options.md5:
        raise DatasetError(spec.id, ["its entry names no md5 of the release, so nothing could be verified. Add it."])
    final = folder / options.file
    if final.is_file():
        return final
    part = folder / f".{options.file}.part"
    folder.mkdir(parents=True, exist_ok=True)
    if not part.is_file() or _md5(part) != options.md5:
        address = f"{archive}/records/{spec.zenodo}/files/{options.file}?download=1"
        try:
            _transfer(address, part, progress)
        except (OSError, http.client.HTTPException) as error:
            raise DatasetError(spec.id, [f"{options.file}: {_reason(error, archive)}; {_KEPT}."]) from error
    if (seen := _md5(part)) != options.md5:
        part.unlink()
        raise DatasetError(
            spec.id,
            [f"{options.file}: MD5 {seen} came, {options.md5} is the release's; what came is deleted. Fetch it again."],
        )
    part.replace(final)
    return final


def _transfer(address: str, part: Path, progress: Progress) -> None:
    """Append what is missing; an archive that cannot resume sends the whole, which then replaces what was there."""
    here = part.stat().st_size if part.is_file() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={here}-"} if here else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as response:
        resumed = response.status == _PARTIAL
        done = here if resumed else 0
        length = response.headers.get("Content-Length")
        total = done + int(length) if length else None
        with part.open("ab" if resumed else "wb") as file:
            while block := response.read(_BLOCK):
                file.write(block)
                done += len(block)
                progress(done, total)
    if total is not None and done < total:
        raise ConnectionError(f"{done:,} of {total:,} bytes came")


def _reason(error: Exception, archive: str) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{archive} answered {error.code}"
    if isinstance(error, urllib.error.URLError):
        return f"no connection to {archive} ({error.reason})"
    return f"the connection was cut ({error})"


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
