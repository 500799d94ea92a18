"""What is published of a suite, in the form that analyses read: ranked encoders, their cells, the panel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from crs_assets.resources.bench import Bench
from crs_assets.science.leaderboard import RANKED
from crs_assets.stages.leaderboard import make_board
from crs_assets.stages.panel_in_force import require_panel
from crs_assets.stages.scores import read_profile
from crs_assets.stages.stage import RefusedError

MIN_RANKED = 2


@dataclass(frozen=True)
class Published:
    """The published scores of the encoders that are ranked.

    Attributes:
        rows: One row per reading and ranked encoder, as the leaderboard has them.
        cells: One row per reading, ranked encoder and data set; null where there is no score.
        common: Data sets that every ranked encoder has: what the headline rests on.
        rankable: Data sets that can rank encoders.
        panel: The panel that the scores were taken against.
    """

    rows: pl.DataFrame
    cells: pl.DataFrame
    common: tuple[str, ...]
    rankable: tuple[str, ...]
    panel: Mapping[str, Any]

    def ranked(self, reading: str) -> list[str]:
        """Encoders that are ranked under a reading, sorted."""
        return sorted(self.rows.filter(pl.col("reading") == reading)["encoder"])

    def scores(self, reading: str) -> dict[str, float]:
        """Ranked encoder -> CRS over the common data sets."""
        return dict(self.rows.filter(pl.col("reading") == reading).select("encoder", "crs").iter_rows())


def read_published(bench: Bench) -> Published:
    """Put the published scores side by side.

    Raises:
        RefusedError: If there is no panel, or fewer than two encoders are ranked.
    """
    panel = require_panel(bench)
    # Which cells are at their nulls is marked on the leaderboard and moves no rank.
    board = make_board(bench, [])
    rows = board.rows.filter(pl.col("section") == RANKED).drop("section")
    ranked = rows.filter(pl.col("reading") == bench.suite.protocol.id).height
    if ranked < MIN_RANKED:
        raise RefusedError(
            f"{ranked} encoder(s) of suite {bench.suite.id} are ranked, {MIN_RANKED} are needed. An encoder is ranked "
            "once every cell of its own is there and a data set can rank encoders; run the missing ones: "
            f"{bench.suite.command('run')}"
        )
    cells = board.cells.drop("at_null").join(rows.select("reading", "encoder"), on=("reading", "encoder"), how="semi")
    rankable = tuple(name for name in bench.suite.datasets if name not in board.unrankable)
    return Published(rows, cells, board.common, rankable, panel)


def read_profiles(bench: Bench, encoders: list[str]) -> dict[str, Any]:
    """Profiles of encoders in the form of a panel's ``encoders``."""
    profiles = {name: read_profile(bench, name) for name in sorted(encoders)}
    return {name: {"weights": entry["weights"], "datasets": entry["datasets"]} for name, entry in profiles.items()}
