"""What is published of the cells of some encoders, and their axes under every replicate."""

from collections.abc import Iterable

import numpy as np
import polars as pl

from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.uncertainty import CASE, CENTRED, centred, normalized
from crs_assets.science.protocol import AXES, Protocol
from crs_assets.science.validation import FloatArray
from crs_assets.stages.analyses.axis_replicates import REPLICATES_FILE, AxisReplicates
from crs_assets.stages.scores import AxisProfile, read_profile


class ReplicatedCells:
    """Profiles and replicates, each file read once.

    Args:
        bench: The suite and its store.
        encoders: Encoders and controls; one without a profile has no cell.
    """

    def __init__(self, bench: Bench, encoders: Iterable[str]) -> None:
        self._bench = bench
        names = [name for name in encoders if AxisProfile().version(bench, name)]
        self.profiles = {name: read_profile(bench, name) for name in names}
        self._tables: dict[tuple[str, str], pl.DataFrame] = {}

    def of(self, dataset: str, reading: Protocol) -> list[str]:
        """Encoders and controls with four axes on a data set."""
        entries = {name: profile["datasets"].get(dataset) for name, profile in self.profiles.items()}
        return [name for name, entry in entries.items() if entry and entry[reading.id]["z"] is not None]

    def published(self, encoder: str, dataset: str, reading: Protocol) -> FloatArray:
        """Raw axes (1, 4)."""
        raw = self.profiles[encoder]["datasets"][dataset][reading.id]["raw"]
        return np.array([[raw[axis] for axis in AXES]])

    def replicates(self, encoder: str, dataset: str, reading: Protocol, kind: str) -> pl.DataFrame:
        """Raw axes under each replicate, in order."""
        stored = CASE if kind == CENTRED else kind
        chosen = (pl.col("reading") == reading.id) & (pl.col("kind") == stored)
        table = self._table(encoder, dataset).filter(chosen).sort("replicate")
        if kind != CENTRED:
            return table
        raw = centred(table.select(AXES).to_numpy(), self.published(encoder, dataset, reading)[0])
        return table.with_columns(pl.Series(axis, column) for axis, column in zip(AXES, raw.T, strict=True))

    def normalized_replicates(self, encoder: str, dataset: str, reading: Protocol, kind: str) -> FloatArray:
        """Normalised axes under each replicate (R, 4); NaN where not estimable."""
        return normalized(self.replicates(encoder, dataset, reading, kind).select(AXES).to_numpy(), reading)

    def has_replicates(self, encoder: str, dataset: str) -> bool:
        """Whether a cell's axes have been resampled."""
        return AxisReplicates().version(self._bench, encoder, dataset) is not None

    def is_published(self, encoder: str, dataset: str, reading: Protocol, z: FloatArray, weights: str) -> bool:
        """Whether what is stored of an encoder is what a panel holds of it."""
        profile = self.profiles.get(encoder)
        if profile is None or profile["weights"] != weights or encoder not in self.of(dataset, reading):
            return False
        return bool((normalized(self.published(encoder, dataset, reading), reading)[0] == z).all())

    def _table(self, encoder: str, dataset: str) -> pl.DataFrame:
        if (encoder, dataset) not in self._tables:
            artifact = self._bench.store.open(self._bench.key(AxisReplicates.name, encoder, dataset))
            self._tables[encoder, dataset] = pl.read_parquet(artifact.file(REPLICATES_FILE))
        return self._tables[encoder, dataset]


__all__ = ["ReplicatedCells"]
