"""The tables of the uncertainty analysis: one set per reading, kind of replicates and treatment of the panel."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from crs_assets.science.analyses.uncertainty import (
    AGGREGATE,
    JOINT,
    Draws,
    Verdict,
    aggregate,
    depends_on_panel,
    difference_rows,
    dominance_rows,
    interval_rows,
    rank_rows,
    verdict,
)
from crs_assets.science.analysis_protocol import RankingProtocol

_SETTING = {"reading": pl.Utf8, "kind": pl.Utf8, "peers": pl.Utf8}
_INTERVAL = {"low": pl.Float64, "high": pl.Float64, "replicates": pl.Int64}
SCHEMAS: dict[str, dict[str, Any]] = {
    "intervals": {
        **_SETTING,
        "encoder": pl.Utf8,
        "dataset": pl.Utf8,
        "quantity": pl.Utf8,
        "value": pl.Float64,
        **_INTERVAL,
        "bias": pl.Float64,
        "n_degenerate": pl.Int64,
        "n_undefined": pl.Int64,
    },
    "differences": {
        **_SETTING,
        "encoder": pl.Utf8,
        "other": pl.Utf8,
        "dataset": pl.Utf8,
        "quantity": pl.Utf8,
        "difference": pl.Float64,
        **_INTERVAL,
        "n_undefined": pl.Int64,
    },
    "dominance": {
        **_SETTING,
        "encoder": pl.Utf8,
        "dataset": pl.Utf8,
        "dominance": pl.Float64,
        "probability": pl.Float64,
    },
    "ranks": {**_SETTING, "encoder": pl.Utf8, "rank": pl.Int64, "probability": pl.Float64},
}
"""Columns of each table. ``peers`` is null for what does not depend on the panel; ``dataset`` may be ``aggregate``."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Every cell's draws under one reading, kind of replicates and treatment of the panel.

    Attributes:
        reading: Id of the protocol or of a further reading.
        kind: ``seed``, ``case`` or ``case-centred``.
        peers: ``panel-fixed`` or ``joint``.
        cells: Data set -> encoder -> draws.
        ranked: Encoders with a rank.
        common: Data sets that all of them have: what aggregates rest on.
    """

    reading: str
    kind: str
    peers: str
    cells: Mapping[str, Mapping[str, Draws]]
    ranked: Sequence[str]
    common: Sequence[str]

    def aggregates(self) -> dict[str, Draws]:
        """Means over the common data sets, of every encoder and control that has them all."""
        if not self.common:
            return {}
        complete = [name for name in self.cells[self.common[0]] if all(name in self.cells[on] for on in self.common)]
        return {name: aggregate([self.cells[dataset][name] for dataset in self.common]) for name in complete}


def uncertainty_tables(
    setting: Setting, *, level: float, ranking: RankingProtocol
) -> tuple[dict[str, pl.DataFrame], Verdict | None]:
    """Intervals, differences, distribution of dominance and rank probabilities, and who leads.

    Args:
        setting: The draws.
        level: Coverage of the intervals.
        ranking: How far up is the top, and how sure its members have to be.

    Returns:
        The tables by name, columns as in ``SCHEMAS``, and the verdict over the ranked encoders.
    """
    aggregates = setting.aggregates()
    places = {**setting.cells, AGGREGATE: aggregates}
    ranked = {name: aggregates[name] for name in setting.ranked if name in aggregates}
    rows = {
        "intervals": list(_interval_rows(setting, places, level)),
        "differences": list(_difference_rows(setting, places, level)),
        "dominance": [
            {**_columns(setting), "encoder": encoder, "dataset": dataset, **row}
            for dataset, draws in places.items()
            for encoder, each in draws.items()
            for row in dominance_rows(each)
        ],
        "ranks": [{**_columns(setting), **row} for row in rank_rows(ranked)],
    }
    tables = {name: pl.DataFrame(rows[name], schema=schema) for name, schema in SCHEMAS.items()}
    return tables, verdict(ranked, level=level, top_k=ranking.top_k, threshold=ranking.leading_tier)


def _interval_rows(
    setting: Setting, places: Mapping[str, Mapping[str, Draws]], level: float
) -> Iterator[dict[str, Any]]:
    for dataset, draws in places.items():
        for encoder, each in draws.items():
            for row in interval_rows(each, level=level):
                if _is_new(setting, row["quantity"]):
                    yield {**_columns(setting, row["quantity"]), "encoder": encoder, "dataset": dataset, **row}


def _difference_rows(
    setting: Setting, places: Mapping[str, Mapping[str, Draws]], level: float
) -> Iterator[dict[str, Any]]:
    for dataset, draws in places.items():
        for row in difference_rows(draws, level=level):
            if _is_new(setting, row["quantity"]):
                yield {**_columns(setting, row["quantity"]), "dataset": dataset, **row}


def _columns(setting: Setting, quantity: str = "crs") -> dict[str, str | None]:
    peers = setting.peers if depends_on_panel(quantity) else None
    return {"reading": setting.reading, "kind": setting.kind, "peers": peers}


def _is_new(setting: Setting, quantity: str) -> bool:
    """What no peer enters is told once, not again for each treatment of the panel."""
    return setting.peers != JOINT or depends_on_panel(quantity)
