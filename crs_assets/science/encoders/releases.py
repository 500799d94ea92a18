"""New revisions of published weights: found, compared with what the catalogue pins, and proposed as new entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from crs_assets.science.encoders.errors import WeightsError
from crs_assets.science.encoders.hub import CLIENT
from crs_assets.science.encoders.hub_errors import Hub, HubUnreachableError, Wanted, explained
from crs_assets.science.encoders.spec import EncoderSpec
from crs_assets.science.encoders.weights import INDEX_SUFFIX, SUFFIXES

if TYPE_CHECKING:
    from huggingface_hub import ModelInfo

TIMEOUT_SECONDS = 10.0
REVISION_DIGITS = 8


@dataclass(frozen=True)
class Release:
    """The newest revision of an encoder's repository, beside the one the catalogue pins.

    Attributes:
        encoder: Id of the entry.
        pinned: Its revision; None where it pins none.
        latest: Newest commit of the repository's main branch.
        date: Of that commit, ISO 8601; None where the hub does not say.
        weights_changed: Whether the weight files differ between the two; a commit may touch the description only.
        sha256: Of the main file at the newest commit, where the hub knows it.
        size: Of the weight files at the newest commit, bytes, where the hub says.
    """

    encoder: str
    pinned: str | None
    latest: str
    date: str | None
    weights_changed: bool
    sha256: str | None
    size: int | None


@dataclass(frozen=True)
class Survey:
    """A look at every hub encoder: its newest release, or why the hub would not say."""

    releases: list[Release] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)


def latest_revision(spec: EncoderSpec, hub: Hub) -> Release:
    """Ask the hub for the newest revision of an encoder's repository.

    Raises:
        HubUnreachableError: Without an answer.
        WeightsError: If the hub refuses, or the newest revision no longer has the file.
    """
    weights = spec.weights
    repo, file, pinned = str(weights.repo), str(weights.file), weights.revision
    latest = _facts(spec, hub, None)
    contents = _contents(latest, file)
    if file not in contents:
        raise WeightsError(f"{spec.id}: {repo} has no {file} any more in its newest revision {latest.sha}.")
    before = latest if pinned in (None, latest.sha) else _facts(spec, hub, pinned)
    sibling = next(sibling for sibling in latest.siblings or () if sibling.rfilename == file)
    sizes = [sibling.size for sibling in latest.siblings or () if sibling.rfilename in contents]
    return Release(
        encoder=spec.id,
        pinned=pinned,
        latest=str(latest.sha),
        date=latest.last_modified.date().isoformat() if latest.last_modified else None,
        weights_changed=_contents(before, file) != contents,
        sha256=sibling.lfs.sha256 if sibling.lfs else None,
        size=None if None in sizes else sum(sizes),
    )


def compare(specs: Iterable[EncoderSpec], hub: Hub) -> Survey:
    """Ask for every hub encoder; one that is refused does not keep the others from being looked at.

    Raises:
        HubUnreachableError: Without an answer to the first question; the others would have none either.
    """
    survey = Survey()
    for spec in specs:
        if spec.weights.source != "hub":
            continue
        try:
            survey.releases.append(latest_revision(spec, hub))
        except HubUnreachableError:
            raise
        except WeightsError as error:
            survey.refused[spec.id] = str(error)
    return survey


def new_releases(specs: Mapping[str, EncoderSpec], survey: Survey) -> list[Release]:
    """Releases with other weights than a pinned entry has, and that no entry made from it pins already."""
    known = {(_root(spec), spec.weights.repo, spec.weights.revision) for spec in specs.values()}
    found: dict[tuple[str | None, ...], Release] = {}
    for release in survey.releases:
        spec = specs[release.encoder]
        key = (_root(spec), spec.weights.repo, release.latest)
        if release.pinned and release.weights_changed and key not in known:
            found[key] = release
    return list(found.values())


def propose(spec: EncoderSpec, release: Release) -> EncoderSpec:
    """A new entry for a release: the old one's facts, to be checked by a person before anything is measured.

    Its id ends in the revision; the old entry stays as it is, and so do its results.
    """
    short = release.latest[:REVISION_DIGITS]
    whole = not str(spec.weights.file).endswith(INDEX_SUFFIX)
    weights = {"revision": release.latest, "sha256": release.sha256 if whole else None}
    unchecked = [f"network, key map, preprocessing and tap are those of {spec.id}; unchecked for the new files"]
    if weights["sha256"] is None:
        unchecked.append("weights.sha256 is not known yet; pin it after the first download")
    document = spec.model_dump(mode="json")
    document |= {
        "id": f"{_root(spec)}-{short}",
        "title": f"{spec.title} (proposed: revision {short} of {release.date or 'unknown date'})",
        "weights": {**document["weights"], **weights},
        "unverified": [*spec.unverified, *unchecked],
    }
    return EncoderSpec.model_validate(document)


def encoder_toml(spec: EncoderSpec) -> str:
    """An encoder's TOML file; what has its default value is left out."""
    document = spec.model_dump(mode="json", exclude_defaults=True)
    return "\n".join(_table((), document)).lstrip("\n") + "\n"


def _facts(spec: EncoderSpec, hub: Hub, revision: str | None) -> ModelInfo:
    from huggingface_hub import HfApi

    repo = str(spec.weights.repo)
    with explained(Wanted(spec.id, repo, revision), hub):
        api = HfApi(hub.endpoint, token=hub.token or False, library_name=CLIENT)
        return api.model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT_SECONDS)


def _contents(facts: ModelInfo, file: str) -> dict[str, str | None]:
    """Weight file -> name of its content: the file itself, and for an index whatever weights lie beside it."""
    folder = PurePosixPath(file).parent
    return {
        sibling.rfilename: sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
        for sibling in facts.siblings or ()
        if sibling.rfilename == file or (file.endswith(INDEX_SUFFIX) and _is_shard(sibling.rfilename, folder))
    }


def _is_shard(name: str, folder: PurePosixPath) -> bool:
    path = PurePosixPath(name)
    return path.parent == folder and path.suffix in SUFFIXES


def _root(spec: EncoderSpec) -> str:
    """The id without the revision that an earlier proposal ended it with."""
    return spec.id.removesuffix(f"-{(spec.weights.revision or '')[:REVISION_DIGITS]}")


def _table(path: tuple[str, ...], table: Mapping[str, Any]) -> list[str]:
    heading = ["", f"[{'.'.join(map(_key, path))}]"] if path else []
    values = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    nested = [line for key, value in table.items() if isinstance(value, dict) for line in _table((*path, key), value)]
    return [*heading, *values, *nested]


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _value(name)


def _value(value: Any) -> str:
    """A TOML value; JSON writes strings, numbers, booleans and arrays as TOML does."""
    return json.dumps(value, ensure_ascii=False)
