"""The uncertainty stage: intervals, rank probabilities, paired differences and the leading tier of a suite."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from itertools import product
from typing import Any

import numpy as np
import polars as pl

from crs_assets.resources.artifact_store import Staging, write_atomic
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.uncertainty import (
    CENTRED,
    JOINT,
    KINDS,
    PANEL_FIXED,
    Draws,
    panel_peers,
    quantities,
)
from crs_assets.science.analyses.uncertainty_tables import SCHEMAS, Setting, uncertainty_tables
from crs_assets.science.canonical import canonical_json
from crs_assets.science.leaderboard import RANKED
from crs_assets.science.protocol import AXES, Protocol, protocol_part
from crs_assets.science.validation import FloatArray
from crs_assets.stages.analyses.axis_replicates import (
    DEGENERATE_FILE,
    DELONG_FILE,
    AxisReplicates,
)
from crs_assets.stages.analyses.replicated_cells import ReplicatedCells
from crs_assets.stages.leaderboard import make_board
from crs_assets.stages.panel_in_force import active_panel, require_panel
from crs_assets.stages.scores import AxisProfile, Crs
from crs_assets.stages.stage import Built, Stage

LEADING_TIER_FILE = "leading_tier.json"


class Uncertainty(Stage):
    """How sure scores and ranks are: intervals over seeds and patients, P(rank), paired differences, leading tier."""

    name = "uncertainty"
    code_version = "2"
    libraries = ("numpy", "polars")

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:  # noqa: ARG002  (one partition in every suite)
        """One."""
        return iter([()])

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:  # noqa: ARG002
        """Scores, profiles, the panel, and the replicates of every cell of a scored encoder."""
        panel, protocol = active_panel(bench), bench.suite.protocol
        scores = {name: version for name in bench.suite.encoders if (version := Crs().version(bench, name))}
        replicates = {name: _replicate_versions(bench, name) for name in scores}
        if panel is None or not scores or any(versions is None for versions in replicates.values()):
            return None
        return {
            "panel": panel["sha256"],
            "scores": scores,
            "profiles": {name: AxisProfile().version(bench, name) for name in scores},
            "replicates": replicates,
            "readings": {reading.id: protocol_part(reading, "axes", "score") for reading in bench.suite.readings},
            "statistics": protocol.statistics.model_dump(mode="json"),
            "ranking": protocol.analyses.ranking.model_dump(mode="json"),
        }

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:  # noqa: ARG002
        """Score every replicate against the panel, and say what follows."""
        protocol = bench.suite.protocol
        level, ranking = protocol.statistics.interval, protocol.analyses.ranking
        found: dict[str, list[pl.DataFrame]] = {name: [] for name in SCHEMAS}
        verdicts = []
        for setting in _settings(bench):
            tables, verdict = uncertainty_tables(setting, level=level, ranking=ranking)
            for name, table in tables.items():
                found[name].append(table)
            if verdict:
                key = {"reading": setting.reading, "kind": setting.kind, "peers": setting.peers}
                verdicts.append({**key, **asdict(verdict)})
        for name, frames in found.items():
            pl.concat(frames).write_parquet(staging.path(f"{name}.parquet"))
        for name in (DEGENERATE_FILE, DELONG_FILE):
            _gathered(bench, name).write_parquet(staging.path(name))
        primary = next((entry for entry in verdicts if _is_primary(bench, entry)), None)
        summary = {
            "tier": list(primary["tier"]) if primary else [],
            "winner": primary["winner"] if primary else None,
            "threshold": ranking.leading_tier,
            "top_k": ranking.top_k,
            "replicates": primary["replicates"] if primary else 0,
        }
        document = {**summary, "interval": level, "verdicts": verdicts}
        write_atomic(staging.path(LEADING_TIER_FILE), canonical_json(document))
        leader = {"leader": primary["leader"], "inseparable": list(primary["inseparable"])} if primary else {}
        return Built({**summary, **leader})


def _settings(bench: Bench) -> Iterator[Setting]:
    """Every reading, kind of replicates and treatment of the panel, one at a time."""
    panel = require_panel(bench)
    scored = [name for name in bench.suite.encoders if Crs().version(bench, name)]
    cells, board = ReplicatedCells(bench, scored), make_board(bench, [])
    for reading, kind, peers in product(bench.suite.readings, KINDS, (PANEL_FIXED, JOINT)):
        ranked = board.rows.filter((pl.col("reading") == reading.id) & (pl.col("section") == RANKED))
        yield Setting(
            reading=reading.id,
            kind=kind,
            peers=peers,
            cells={
                dataset: {
                    name: _draws(cells, panel, reading, kind, peers, name, dataset)
                    for name in cells.of(dataset, reading)
                }
                for dataset in bench.suite.datasets
                if dataset in panel["datasets"]
            },
            ranked=ranked["encoder"].to_list(),
            common=board.common,
        )


def _draws(
    cells: ReplicatedCells,
    panel: Mapping[str, Any],
    reading: Protocol,
    kind: str,
    peers: str,
    encoder: str,
    dataset: str,
) -> Draws:
    weights = cells.profiles[encoder]["weights"]
    fixed = panel_peers(panel, reading.id, encoder=encoder, weights=weights, dataset=dataset)
    table = cells.replicates(encoder, dataset, reading, kind)
    raw = table.select(AXES).to_numpy()
    against = np.stack(list(fixed.values()))
    published = quantities(cells.published(encoder, dataset, reading), against, reading)
    if peers == JOINT:
        against = np.stack(
            [_under_draws(cells, panel, reading, kind, name, dataset, z, len(raw)) for name, z in fixed.items()], axis=1
        )
    return Draws(published[0], quantities(raw, against, reading), table["lacking"].to_numpy())


def _under_draws(
    cells: ReplicatedCells,
    panel: Mapping[str, Any],
    reading: Protocol,
    kind: str,
    peer: str,
    dataset: str,
    z: FloatArray,
    replicates: int,
) -> FloatArray:
    """A peer's z under each replicate (R, 4), or as published where its predictions are not stored."""
    if not cells.is_published(peer, dataset, reading, z, panel["encoders"][peer]["weights"]):
        return np.broadcast_to(z, (replicates, len(z)))
    return cells.normalized_replicates(peer, dataset, reading, kind)


def _replicate_versions(bench: Bench, encoder: str) -> dict[str, str | None] | None:
    """Data set -> version of the replicates; None while some that can be made are missing."""
    stage = AxisReplicates()
    versions = {dataset: stage.version(bench, encoder, dataset) for dataset in bench.suite.existing_datasets(encoder)}
    missing = [dataset for dataset, version in versions.items() if version is None]
    return None if any(stage.inputs(bench, encoder, dataset) for dataset in missing) else versions


def _gathered(bench: Bench, file: str) -> pl.DataFrame:
    """A table of every cell, with the cell's names in front."""
    frames = []
    for encoder, dataset in AxisReplicates().partitions(bench):
        key = bench.key(AxisReplicates.name, encoder, dataset)
        if bench.store.peek(key) is not None:
            table = pl.read_parquet(bench.store.open(key).file(file))
            frames.append(table.select(pl.lit(encoder).alias("encoder"), pl.lit(dataset).alias("dataset"), pl.all()))
    return pl.concat(frames)


def _is_primary(bench: Bench, entry: Mapping[str, Any]) -> bool:
    expected = (bench.suite.protocol.id, CENTRED, PANEL_FIXED)
    return (entry["reading"], entry["kind"], entry["peers"]) == expected
