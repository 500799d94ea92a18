"""Weight files from a hub into the mirror: exactly those an encoder needs, at its pinned revision, verified.

The client's own ``hf_hub_download`` throws a broken download away; here what has come stays beside the final place,
and the next attempt asks for the rest only.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from crs_assets.science.encoders.errors import AbsentWeightsError, WeightsError
from crs_assets.science.encoders.hub_errors import Hub, Wanted, explained
from crs_assets.science.encoders.key_maps import KEY_MAPS
from crs_assets.science.encoders.spec import EncoderSpec
from crs_assets.science.encoders.weights import INDEX_SUFFIX, expected_sha256, locate, sha256_of, wanted_shards

if TYPE_CHECKING:
    from huggingface_hub import HfFileMetadata

COMMIT = re.compile(r"^[0-9a-f]{40}$")
SHA256 = re.compile(r"^[0-9a-f]{64}$")
CLIENT = "crs_assets"

Progress = Callable[[str, int, int | None], None]
"""Told of a transfer: file, bytes that are here, bytes in all (None where the hub does not say)."""


def silent(_file: str, _done: int, _total: int | None) -> None:
    """Report no progress."""


def download(spec: EncoderSpec, mirror: Path, hub: Hub, progress: Progress = silent) -> tuple[Path, ...]:
    """Fetch what is missing of an encoder's weights to ``<mirror>/<repo>/<revision>/<file>``.

    Of a set of shards only those with a wanted tensor come. A file gets its name only after its SHA-256 is found to be
    the catalogue's, and where the catalogue has none, the hub's own. The plain HTTP route is taken, which can resume.

    Args:
        spec: An encoder of source ``hub``.
        mirror: Folder of mirrored weights.
        hub: Where from, and with which token.
        progress: Told after every piece.

    Returns:
        As ``weights.locate``.

    Raises:
        WeightsError: If the entry pins no commit or tag, the hub refuses, or the content is another.
    """
    if spec.weights.source != "hub":
        raise WeightsError(f"{spec.id}: its weights come from source {spec.weights.source!r}; only 'hub' is fetched.")
    pin = pinned_commit(spec, hub)
    main = _fetch(spec, str(spec.weights.file), pin, mirror, hub, progress)
    if main.name.endswith(INDEX_SUFFIX):
        folder = PurePosixPath(str(spec.weights.file)).parent
        for shard in wanted_shards(main, KEY_MAPS[spec.architecture.key_map].keep):
            _fetch(spec, str(folder / shard), pin, mirror, hub, progress)
    return locate(spec, mirror)


def pinned_commit(spec: EncoderSpec, hub: Hub) -> str:
    """The commit that an entry pins: its 40 digits themselves, or what its tag stands for.

    Raises:
        AbsentWeightsError: Without a revision, or with one that moves: a branch, or no tag at all.
    """
    repo, revision = str(spec.weights.repo), spec.weights.revision
    cure = (
        "pin a commit (40 hex digits) as weights.revision; with [weights] download = true in config.toml and access to "
        "the hub the doctor shows the current one"
    )
    if revision is None:
        raise AbsentWeightsError(f"{spec.id}: the entry pins no revision of {repo}, so nothing is downloaded; {cure}.")
    if COMMIT.match(revision):
        return revision
    from huggingface_hub import HfApi

    with explained(Wanted(spec.id, repo), hub):
        refs = HfApi(hub.endpoint, token=hub.token or False, library_name=CLIENT).list_repo_refs(repo)
    tags = {tag.name: str(tag.target_commit) for tag in refs.tags}
    if revision not in tags:
        kind = "a branch, which moves" if revision in {b.name for b in refs.branches} else "neither a commit nor a tag"
        raise AbsentWeightsError(f"{spec.id}: revision {revision!r} of {repo} is {kind}; {cure}. Tags: {sorted(tags)}.")
    return tags[revision]


@dataclass(frozen=True)
class _Offer:
    """What the hub says about a file before any of it comes."""

    url: str
    size: int | None
    sha256: str | None


def _fetch(spec: EncoderSpec, file: str, commit: str, mirror: Path, hub: Hub, progress: Progress) -> Path:
    final = mirror / str(spec.weights.repo) / str(spec.weights.revision) / file
    part = final.with_name(f".{final.name}.{commit[:12]}.part")
    wanted = Wanted(spec.id, str(spec.weights.repo), commit, file)
    with explained(wanted, hub):
        final.parent.mkdir(parents=True, exist_ok=True)
        with _locked(part):
            if not final.is_file():
                _bring(spec, wanted, part, final, hub, progress)
    return final


def _bring(spec: EncoderSpec, wanted: Wanted, part: Path, final: Path, hub: Hub, progress: Progress) -> None:
    offer = _offer(wanted, hub)
    catalogued = expected_sha256(spec, final.name)
    if catalogued and offer.sha256 and catalogued != offer.sha256:
        raise WeightsError(
            f"{spec.id}: {wanted}: the hub offers SHA-256 {offer.sha256}, the catalogue expects {catalogued}; "
            "nothing was fetched. Another release of the weights is another encoder, with an id of its own."
        )
    _transfer(wanted, offer, part, hub, progress)
    expected, seen = catalogued or offer.sha256, sha256_of(part)
    if expected and seen != expected:
        part.unlink()
        raise WeightsError(
            f"{spec.id}: {wanted}: SHA-256 {seen} came, {expected} was expected; what came is deleted. Fetch it "
            f"again; if it repeats, {hub.endpoint} or a proxy before it serves another file."
        )
    part.replace(final)


def _offer(wanted: Wanted, hub: Hub) -> _Offer:
    from huggingface_hub import get_hf_file_metadata, hf_hub_url

    url = hf_hub_url(wanted.repo, str(wanted.file), revision=wanted.revision, endpoint=hub.endpoint)
    told: HfFileMetadata = get_hf_file_metadata(
        url, token=hub.token or False, library_name=CLIENT, endpoint=hub.endpoint
    )
    if told.commit_hash != wanted.revision:
        raise WeightsError(
            f"{wanted.encoder}: {wanted}: the hub answered with commit {told.commit_hash}; a pinned revision is "
            f"never left. Is {hub.endpoint} a hub?"
        )
    sha256 = told.etag if told.etag and SHA256.match(told.etag) else None
    return _Offer(url, told.size, sha256)


def _transfer(wanted: Wanted, offer: _Offer, part: Path, hub: Hub, progress: Progress) -> None:
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers, silent_tqdm

    if part.exists() and offer.size is not None and part.stat().st_size > offer.size:
        part.unlink()
    # The client follows the hub's redirect itself and leaves the token behind when it does.
    headers = build_hf_headers(token=hub.token or False, library_name=CLIENT)
    with _Counted(part, lambda done: progress(str(wanted.file), done, offer.size)) as file:
        http_get(
            offer.url,
            file,
            resume_size=file.tell(),
            headers=headers,
            expected_size=offer.size,
            displayed_filename=str(wanted.file),
            tqdm_class=silent_tqdm,
        )


class _Counted(io.BufferedWriter):
    """A file that is appended to, and tells how long it is after every write."""

    def __init__(self, path: Path, tell: Callable[[int], None]) -> None:
        super().__init__(io.FileIO(path, "ab"))
        self._tell = tell

    def write(self, data: Any, /) -> int:
        written = super().write(data)
        self._tell(self.tell())
        return written


@contextmanager
def _locked(part: Path) -> Iterator[None]:
    """One process per file; the lock goes with its process, whatever becomes of it."""
    from huggingface_hub.utils import WeakFileLock

    with WeakFileLock(part.with_suffix(".lock")):
        yield
