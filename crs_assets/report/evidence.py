"""What a report is about: the leaderboard page, the runs behind it, and whatever analyses there are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from crs_assets.report.page import Page
from crs_assets.science.leaderboard import CONTROL, RANKED

# Analyses by the names of their stages, with what a reader calls them.
ANALYSES: Mapping[str, str] = {
    "uncertainty": "intervals and rank probabilities",
    "rank_agreement": "rank agreement",
    "recalibration_summary": "recalibration",
    "label_efficiency_audit": "label efficiency",
    "perturbation_audit": "degraded images",
    "external_validity": "transfer",
    "subgroups": "subgroups",
    "operating_points": "operating points",
    "control_probes": "control probes",
    "depth_sweep": "depth",
    "extra_degradation_metrics": "further degradations",
    "score_sensitivity": "sensitivity of the score",
    "reference_invariance": "reference invariance",
}


@dataclass(frozen=True)
class Analysis:
    """What an analysis found: tidy tables by name, and a few figures or sentences."""

    tables: Mapping[str, pl.DataFrame]
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DatasetCard:
    """What is to be said of an image set, counts of few patients suppressed.

    Attributes:
        id: Its id.
        title: For people.
        facts: Term and text: kind of problem, licence, access, who labelled it, citation.
        counts: ``kind``, ``name``, ``count`` as text.
        left_out: Classes that are not scored.
    """

    id: str
    title: str
    facts: tuple[tuple[str, str], ...]
    counts: pl.DataFrame
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class Evidence:
    """Everything that a report shows.

    Attributes:
        page: The leaderboard.
        runs: Run metrics of every whole cell, controls among them.
        reliability: Reliability bins of the same cells, clean, at all labels: ``encoder``, ``dataset``, ``seed``.
        cards: Every data set, then every target.
        analyses: Name of a stage -> what it found, of those that are there.
        outdated: Names of those that were made from an earlier state than the leaderboard.
        is_board_outdated: Whether the leaderboard itself was made from an earlier state of the suite.
        versions: What -> its version in the store, for the provenance.
    """

    page: Page
    runs: pl.DataFrame
    reliability: pl.DataFrame
    cards: tuple[DatasetCard, ...]
    analyses: Mapping[str, Analysis]
    outdated: tuple[str, ...] = ()
    is_board_outdated: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)

    def has(self, *names: str) -> bool:
        """Whether all these analyses are there."""
        return all(name in self.analyses for name in names)

    def table(self, analysis: str, name: str) -> pl.DataFrame:
        """A table of an analysis that is there."""
        return self.analyses[analysis].tables[name]

    def figure(self, analysis: str, name: str) -> Any:
        """A figure or sentence of an analysis that is there."""
        return self.analyses[analysis].figures[name]

    @property
    def reading(self) -> str:
        """The reading of the headline ranking."""
        return self.page.readings[0]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The headline's rows: ranked by rank, incomplete, controls."""
        return self.page.rows(self.reading)

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """The ranked ones, best first."""
        return [row for row in self.rows if row["section"] == RANKED]

    @property
    def encoders(self) -> list[str]:
        """Encoders in the order of the headline, controls left out."""
        return [row["encoder"] for row in self.rows if row["section"] != CONTROL]

    @property
    def controls(self) -> list[str]:
        """Null controls."""
        return [row["encoder"] for row in self.rows if row["section"] == CONTROL]

    @property
    def cells(self) -> pl.DataFrame:
        """Published cells under the headline's reading."""
        return self.page.board.cells.filter(pl.col("reading") == self.reading)
