"""Everything a stage needs, in one place: the suite, the store, the device, the data, the weights."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from crs_assets.resources.artifact_store import ArtifactKey, ArtifactStore, write_atomic
from crs_assets.resources.compute import Compute, ComputeDevice
from crs_assets.resources.configuration import ArtifactStoreResource, read_configuration
from crs_assets.resources.data_roots import DataRoots, Roots
from crs_assets.resources.home import Home, home_path
from crs_assets.resources.prepared_images import PreparedImages
from crs_assets.resources.weights import Weights, WeightStore
from crs_assets.science.encoders import FrozenEncoder, RunMode, load_encoder
from crs_assets.science.suite import Suite


@dataclass(frozen=True)
class Bench:
    """What a stage works with; no Dagster in it."""

    suite: Suite
    home: Home
    store: ArtifactStore
    compute: Compute
    roots: Roots
    weights: Weights
    _loaded: dict[str, FrozenEncoder] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        # Another process loads a network of its own if it needs one.
        return {**self.__dict__, "_loaded": {}}

    def key(self, asset: str, *parts: str) -> ArtifactKey:
        """Address of a partition of this suite."""
        return ArtifactKey(self.suite.id, asset, parts)

    @property
    def prepared_images(self) -> PreparedImages:
        """Images kept between encoders that take them alike."""
        return PreparedImages(self.home.path / "cache" / "images", self.compute.image_cache_bytes)

    def load_encoder(self, name: str) -> FrozenEncoder:
        """An encoder ready to encode in float32; kept while its partitions follow one another.

        Raises:
            WeightsError: If weights are missing, changed, or do not fill the network exactly.
        """
        spec = self.suite.encoders[name]
        fingerprint = self.weights.fingerprint(spec)
        if fingerprint not in self._loaded:
            # The last one goes first: two large networks need not fit into memory together.
            self._loaded.clear()
            self._loaded[fingerprint] = load_encoder(spec, self.weights.mirror, self.compute.device)
        return self._loaded[fingerprint]

    def run_mode(self, encoder: str) -> RunMode:
        """How an encoder runs here: as a trial or a full memory once decided, else as the device is configured."""
        remembered = self._run_mode_file(encoder)
        if not remembered.exists():
            return RunMode(self.compute.batch_size)
        return RunMode(**json.loads(remembered.read_text()))

    def wants_trial(self, encoder: str) -> bool:
        """Whether an encoder has to be tried out before its first features on this kind of device."""
        return self.compute.needs_trial and not self._run_mode_file(encoder).exists()

    def remember_run_mode(self, encoder: str, mode: RunMode) -> None:
        """Keep how an encoder runs on this kind of device; it is part of the fingerprint of its features."""
        path = self._run_mode_file(encoder)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, json.dumps(asdict(mode)))

    def _run_mode_file(self, encoder: str) -> Path:
        compute = self.compute
        asked = f"{compute.kind}.{'trial' if compute.finds_batch else compute.batch_size}.{compute.precision}"
        return self.home.path / "run-modes" / f"{encoder}.{asked}.json"


class BenchResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """The four outside things of a suite, handed out together."""

    suite: str = Field(description="Suite id, or path of a suite's TOML file.")
    home: str = Field(description="CRS_HOME.")
    store: dg.ResourceDependency[ArtifactStoreResource]
    compute: dg.ResourceDependency[ComputeDevice]
    roots: dg.ResourceDependency[DataRoots]
    weights: dg.ResourceDependency[WeightStore]

    def resolve(self) -> Bench:
        """The plain object that assets use; the suite is read anew, so that added encoders are in it."""
        home = Home(Path(self.home))
        return Bench(
            suite=home.load_suite(self.suite),
            home=home,
            store=self.store.resolve(),
            compute=self.compute.resolve(),
            roots=self.roots.resolve(),
            weights=self.weights.resolve(),
        )


def default_resources(suite: str | Path, home: Home | None = None) -> dict[str, object]:
    """Resources of a suite as CRS_HOME and its ``config.toml`` configure them, by resource key.

    Raises:
        CatalogError: As ``read_configuration``.
    """
    home = home or Home(home_path())
    config = read_configuration(home)
    store = ArtifactStoreResource(root=str(home.artifacts), **config.get("store", {}))
    compute = ComputeDevice(**config.get("compute", {}))
    roots = DataRoots(default=str(home.data), configured=config.get("data_roots", {}))
    weights = WeightStore(
        **{"mirror": str(home.mirror), **config.get("weights", {})},
        cache=str(home.path / "cache" / "weight-hashes.json"),
    )
    bench = BenchResource(
        suite=str(suite), home=str(home.path), store=store, compute=compute, roots=roots, weights=weights
    )
    return {"store": store, "compute": compute, "roots": roots, "weights": weights, "bench": bench}
