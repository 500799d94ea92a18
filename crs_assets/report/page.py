"""What a leaderboard page is about."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from crs_assets.science.leaderboard import Board
from crs_assets.science.protocol import Protocol

PHANTOM_WARNING = "Procedural phantoms, not medical images: these numbers say nothing about any encoder's clinical use."


@dataclass(frozen=True)
class Page:
    """Everything that the page and its picture show.

    Attributes:
        suite: Id of the suite.
        title: Its name for people.
        protocol: The protocol of the headline ranking.
        readings: Ids of the protocol and its further readings, the protocol first.
        panel: Name of the frozen reference panel.
        panel_members: Ids of its encoders.
        phantoms: Whether any image is a procedural phantom.
        datasets: Id -> title of every data set and transfer target.
        board: The tables.
        provenance: Library versions, device and whatever else travels with the numbers; mappings may nest.
    """

    suite: str
    title: str
    protocol: Protocol
    readings: tuple[str, ...]
    panel: str
    panel_members: tuple[str, ...]
    phantoms: bool
    datasets: Mapping[str, str]
    board: Board
    provenance: Mapping[str, Any]

    def rows(self, reading: str) -> list[dict[str, Any]]:
        """The board's rows under one reading, ranked first, controls last."""
        return self.board.rows.filter(pl.col("reading") == reading).to_dicts()

    @property
    def scored_datasets(self) -> tuple[str, ...]:
        """Data sets that encoders are scored on, in the suite's order."""
        return tuple(self.board.cells["dataset"].unique(maintain_order=True))

    @property
    def targets(self) -> tuple[str, ...]:
        """Image sets that only serve as transfer targets."""
        return tuple(name for name in self.datasets if name not in self.scored_datasets)

    def short_reading(self, reading: str) -> str:
        """A further reading's id without the part that it shares with the protocol's."""
        return reading.removeprefix(f"{self.protocol.id}-")

    def dataset_title(self, name: str) -> str:
        """A data set's name for people, or its id where the suite gives none."""
        return self.datasets.get(name, name)
