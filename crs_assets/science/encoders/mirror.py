"""What a mirror of the hub has to hold: which files, where, how large, and under which terms."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from crs_assets.science.encoders.errors import WeightsError
from crs_assets.science.encoders.key_maps import KEY_MAPS
from crs_assets.science.encoders.releases import Release, Survey
from crs_assets.science.encoders.spec import EncoderSpec
from crs_assets.science.encoders.weights import INDEX_SUFFIX, locate, wanted_shards


@dataclass(frozen=True)
class MirrorEntry:
    """One hub encoder's part of the mirror.

    Attributes:
        encoder: Id.
        repo: Hub repository.
        revision: Pinned commit or tag; None where the entry pins none, and nothing is downloaded.
        files: Paths in the repository; of a set of shards the index alone until it is there to be read.
        folder: Where they are copied to, under the same paths.
        present: Whether all of them are there.
        size: Bytes: of the files, or as the hub says; None where neither is known.
        gated: Whether terms have to be accepted first.
        licence: Of the weights.
        latest: Newest commit, where the hub was asked.
    """

    encoder: str
    repo: str
    revision: str | None
    files: tuple[str, ...]
    folder: Path
    present: bool
    size: int | None
    gated: bool
    licence: str
    latest: str | None = None

    def line(self) -> str:
        """What to copy where, in one sentence for a person."""
        pin = f"@{self.revision}" if self.revision else " (no revision pinned)"
        shards = " and the shards it lists" if self.files[-1].endswith(INDEX_SUFFIX) else ""
        size = f", {self.size / 1e6:.1f} MB" if self.size is not None else ""
        gate = ", gated: accept the terms first" if self.gated else ""
        newest = f"; its current commit is {self.latest}" if self.latest and self.latest != self.revision else ""
        verb, preposition = ("has", "in") if self.present else ("copy", "to")
        return (
            f"{verb} {', '.join(self.files)}{shards} of {self.repo}{pin} {preposition} {self.folder}{size}; "
            f"licence {self.licence}{gate}{newest}"
        )


def mirror_listing(specs: Iterable[EncoderSpec], mirror: Path, survey: Survey | None = None) -> list[MirrorEntry]:
    """List the files of every hub encoder; nothing is asked of the hub.

    Args:
        specs: Encoders; those of other sources are left out.
        mirror: Folder of mirrored weights.
        survey: What the hub said about the encoders, for sizes and current commits.
    """
    releases = {release.encoder: release for release in survey.releases} if survey else {}
    return [_entry(spec, mirror, releases.get(spec.id)) for spec in specs if spec.weights.source == "hub"]


def _entry(spec: EncoderSpec, mirror: Path, release: Release | None) -> MirrorEntry:
    weights = spec.weights
    try:
        found = locate(spec, mirror)
    except WeightsError:
        found = ()
    folder = mirror / str(weights.repo) / (weights.revision or "")
    on_disk = sum(path.stat().st_size for path in found)
    return MirrorEntry(
        encoder=spec.id,
        repo=str(weights.repo),
        revision=weights.revision,
        files=_files(spec, folder),
        folder=folder,
        present=bool(found),
        size=on_disk if found else release.size if release else None,
        gated=spec.gated,
        licence=spec.licence,
        latest=release.latest if release else None,
    )


def _files(spec: EncoderSpec, folder: Path) -> tuple[str, ...]:
    main = PurePosixPath(str(spec.weights.file))
    if not main.name.endswith(INDEX_SUFFIX):
        return (str(main),)
    try:
        shards = wanted_shards(folder / main, KEY_MAPS[spec.architecture.key_map].keep)
    except (OSError, WeightsError):
        return (str(main),)
    return (str(main), *(str(main.parent / shard) for shard in shards))
