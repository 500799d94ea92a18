"""Where pretrained weights lie: the packages that carry them, or a local mirror of a hub."""

import json
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from pydantic import Field

from crs_assets.resources.artifact_store import write_atomic
from crs_assets.science.encoders import EncoderSpec, fingerprint, locate, verify
from crs_assets.science.encoders.weights import sha256_of


@dataclass(frozen=True)
class Weights:
    """Weight files by encoder, hashed once per (size, modification time)."""

    mirror: Path
    cache: Path

    def hashes(self, spec: EncoderSpec) -> dict[str, str]:
        """SHA-256 of each weight file of an encoder, checked against the catalogue's.

        Raises:
            WeightsError: If a file is missing or its hash is not the pinned one.
        """
        return verify(locate(spec, self.mirror), spec, self._sha256)

    def fingerprint(self, spec: EncoderSpec) -> str:
        """What decides an encoder's features: weights, architecture, preprocessing, tap."""
        return fingerprint(spec, self.hashes(spec))

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
    """Weights of encoders; nothing is downloaded."""

    mirror: str = Field(description="Folder laid out as <repository>/<revision>/<file>.")
    cache: str = Field(description="File that remembers hashes by path, size and modification time.")

    def resolve(self) -> Weights:
        """The plain object that assets use."""
        return Weights(Path(self.mirror), Path(self.cache))
