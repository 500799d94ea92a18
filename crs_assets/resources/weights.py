"""Where pretrained weights lie: the packages that carry them, or a local mirror of a hub, filled from it on request."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
from pydantic import Field

from crs_assets.resources.artifact_store import write_atomic
from crs_assets.science.encoders import EncoderSpec, WeightsError, fingerprint, locate, verify
from crs_assets.science.encoders.hub import Progress, download, silent
from crs_assets.science.encoders.hub_errors import DEFAULT_ENDPOINT, Hub
from crs_assets.science.encoders.weights import sha256_of


@dataclass(frozen=True)
class Fetched:
    """What became of one encoder's weights: the files, or why there are none."""

    encoder: str
    files: tuple[Path, ...] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Weights:
    """Weight files by encoder, hashed once per (size, modification time).

    Looking at weights never downloads: only ``fetch`` does, and ``ensure`` where the site has switched it on.

    Attributes:
        mirror: Folder of mirrored weights.
        cache: File that remembers hashes.
        hub: Where missing files are fetched from.
        download: Whether a run may fetch what is missing.
    """

    mirror: Path
    cache: Path
    hub: Hub = field(default_factory=Hub)
    download: bool = False

    def hashes(self, spec: EncoderSpec) -> dict[str, str]:
        """SHA-256 of each weight file of an encoder, checked against the catalogue's.

        Raises:
            WeightsError: If a file is missing or its hash is not the pinned one.
        """
        return verify(locate(spec, self.mirror), spec, self._sha256)

    def fingerprint(self, spec: EncoderSpec) -> str:
        """What decides an encoder's features: weights, architecture, preprocessing, tap."""
        return fingerprint(spec, self.hashes(spec))

    def ensure(self, spec: EncoderSpec, progress: Progress = silent) -> dict[str, str]:
        """As ``hashes``; what is missing of a hub encoder is fetched first where downloads are switched on.

        Raises:
            WeightsError: If a file is missing and cannot, or may not, be fetched; the encoder is then skipped for the
                reason in the message.
        """
        try:
            locate(spec, self.mirror)
        except WeightsError:
            if not self.download or spec.weights.source != "hub":
                raise
            self.fetch(spec, progress)
        return self.hashes(spec)

    def fetch(self, spec: EncoderSpec, progress: Progress = silent) -> tuple[Path, ...]:
        """Fetch what is missing of a hub encoder's files to the mirror, because somebody asked for it.

        Raises:
            WeightsError: If the hub refuses, or the content is another.
        """
        return download(spec, self.mirror, self.hub, progress)

    def fetch_each(self, specs: Iterable[EncoderSpec], progress: Progress = silent) -> Iterator[Fetched]:
        """Fetch several encoders' files; one that is refused is passed over with the reason, and the others go on."""
        for spec in specs:
            if spec.weights.source != "hub":
                continue
            try:
                yield Fetched(spec.id, self.fetch(spec, progress))
            except WeightsError as error:
                yield Fetched(spec.id, problem=str(error))

    def describe(self) -> dict[str, str]:
        """Facts for a person: the mirror, the hub, whether there is a token, whether runs may download."""
        return {
            "mirror": str(self.mirror),
            "hub": self.hub.endpoint,
            "token": "from HF_TOKEN" if self.hub.token else "none",
            "download": "on" if self.download else "off",
        }

    def _sha256(self, path: Path) -> str:
        stat = path.stat()
        mark = f"{path}|{stat.st_size}|{stat.st_mtime_ns}"
        known: dict[str, str] = json.loads(self.cache.read_text()) if self.cache.exists() else {}
        if mark not in known:
            known[mark] = sha256_of(path)
            self.cache.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.cache, json.dumps(known, indent=1))
        return known[mark]


class WeightStore(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Weights of encoders. The token for gated repositories comes from HF_TOKEN, never from a configuration."""

    mirror: str = Field(description="Folder of mirrored weights; by default `weights` of CRS_HOME.")
    cache: str = Field(description="File that remembers hashes by path, size and modification time.")
    download: bool = Field(default=False, description="Fetch missing hub files during a run; off: a run never does.")
    endpoint: str = Field(default="", description="Address of the hub; by default HF_ENDPOINT, else the public hub.")

    def resolve(self) -> Weights:
        """The plain object that assets use."""
        endpoint = self.endpoint or os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT
        hub = Hub(endpoint.rstrip("/"), os.environ.get("HF_TOKEN") or None)
        return Weights(Path(self.mirror).expanduser(), Path(self.cache), hub, self.download)
