"""The leaderboard: published scores side by side, ranked where complete, nothing imputed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from crs_assets.science.protocol import AXES
from crs_assets.science.statistics import RankAgreement, rank_agreement

RANKED = "ranked"
INCOMPLETE = "incomplete"
CONTROL = "control"

ROW_SCHEMA: dict[str, Any] = {
    "reading": pl.Utf8,
    "section": pl.Utf8,
    "rank": pl.Float64,
    "rank_existing": pl.Float64,
    "rank_auroc": pl.Float64,
    "encoder": pl.Utf8,
    "title": pl.Utf8,
    "family": pl.Utf8,
    "crs": pl.Float64,
    "crs_existing": pl.Float64,
    "dominance": pl.Float64,
    "closeness": pl.Float64,
    "worst_axis": pl.Float64,
    **dict.fromkeys(AXES, pl.Float64),
    "covered": pl.Int64,
    "expected": pl.Int64,
    "status": pl.Utf8,
    "weights": pl.Utf8,
}

CELL_SCHEMA: dict[str, Any] = {
    "reading": pl.Utf8,
    "encoder": pl.Utf8,
    "dataset": pl.Utf8,
    "crs": pl.Float64,
    "crs_without_transfer": pl.Float64,
    "dominated": pl.Int64,
    "peers": pl.Int64,
    "closeness": pl.Float64,
    "worst_axis": pl.Float64,
    **dict.fromkeys(AXES, pl.Float64),
    "state": pl.Utf8,
    "at_null": pl.Boolean,
}


@dataclass(frozen=True)
class Entry:
    """What the leaderboard reads of one encoder.

    Attributes:
        encoder: Id.
        title: Name for people.
        family: What the encoder was made for.
        is_control: Controls stand below the line.
        score: The published score, as ``crs`` stores it.
        profile: The axis profile.
        at_null: Data sets on which the encoder is not above all its null controls.
    """

    encoder: str
    title: str
    family: str
    is_control: bool
    score: Mapping[str, Any]
    profile: Mapping[str, Any]
    at_null: frozenset[str]


@dataclass(frozen=True)
class Board:
    """The leaderboard's tables.

    Attributes:
        rows: One row per reading and encoder, ranked first, controls last.
        cells: One row per reading, encoder and data set, absent and missing ones with their reason.
        common: Data sets that every ranked encoder has and that can rank: what the headline rests on.
        unrankable: Data sets on which no panel encoder is above its nulls.
        agreement: (what against what) -> rank agreement over the ranked encoders.
    """

    rows: pl.DataFrame
    cells: pl.DataFrame
    common: tuple[str, ...]
    unrankable: tuple[str, ...]
    agreement: dict[str, RankAgreement]


def build_board(
    entries: Sequence[Entry], datasets: Sequence[str], readings: Sequence[str], rankable: Mapping[str, bool]
) -> Board:
    """Rank complete encoders by their mean score over the data sets that all of them have.

    Args:
        entries: Every encoder and control with a published score.
        datasets: Data sets of the suite, in order.
        readings: Ids of the protocol and its further readings, the protocol first.
        rankable: Data set -> whether any panel encoder is above its nulls there.
    """
    complete = [entry for entry in entries if entry.score["complete"] and not entry.is_control]
    common = tuple(
        name
        for name in datasets
        if rankable.get(name, False) and all(_has(entry, name, readings[0]) for entry in complete)
    )
    cells = [_cell(entry, name, reading) for reading in readings for entry in entries for name in datasets]
    rows = [row for reading in readings for row in _ranked_rows(entries, complete, common, reading)]
    table = pl.DataFrame(rows, schema=ROW_SCHEMA)
    return Board(
        rows=table,
        cells=pl.DataFrame(cells, schema=CELL_SCHEMA),
        common=common,
        unrankable=tuple(name for name in datasets if not rankable.get(name, False)),
        agreement=_agreements(table, readings),
    )


def _ranked_rows(
    entries: Sequence[Entry], complete: Sequence[Entry], common: Sequence[str], reading: str
) -> list[dict[str, Any]]:
    rows = {entry.encoder: _row(entry, common, reading, ranked=entry in complete and bool(common)) for entry in entries}
    ranked = [row for row in rows.values() if row["section"] == RANKED]
    for column, by in (("rank", "crs"), ("rank_existing", "crs_existing"), ("rank_auroc", "discrimination")):
        for row, rank in zip(ranked, _ranks([row[by] for row in ranked]), strict=True):
            row[column] = rank
    order = {RANKED: 0, INCOMPLETE: 1, CONTROL: 2}
    return sorted(
        rows.values(),
        key=lambda row: (order[row["section"]], row.get("rank") or 0.0, -(row["crs"] or 0.0), row["encoder"]),
    )


def _row(entry: Entry, common: Sequence[str], reading: str, *, ranked: bool) -> dict[str, Any]:
    scores = entry.score["readings"][reading]
    cells = scores["datasets"]
    over_common = [cells[name] for name in common if name in cells]
    covers_common = bool(common) and len(over_common) == len(common)
    raw = [entry.profile["datasets"][name][reading]["raw"] for name in common if name in entry.profile["datasets"]]
    section = CONTROL if entry.is_control else RANKED if ranked and covers_common else INCOMPLETE
    shown = covers_common and entry.score["complete"]
    means = {
        term: _mean([cell[term] for cell in over_common]) if shown else None
        for term in ("crs", "dominance", "closeness", "worst_axis")
    }
    aggregate = scores["aggregate"]
    return {
        "reading": reading,
        "section": section,
        "encoder": entry.encoder,
        "title": entry.title,
        "family": entry.family,
        **means,
        "crs_existing": aggregate["crs"] if aggregate else None,
        **{axis: _mean([values[axis] for values in raw]) if len(raw) == len(common) else None for axis in AXES},
        "covered": entry.score["covered"],
        "expected": entry.score["expected"],
        "status": _status(entry, common),
        "weights": entry.score["weights"],
    }


def _cell(entry: Entry, dataset: str, reading: str) -> dict[str, Any]:
    scored = entry.score["readings"][reading]["datasets"].get(dataset)
    profile = entry.profile["datasets"].get(dataset)
    raw = profile[reading]["raw"] if profile else dict.fromkeys(AXES)
    terms = ("crs", "crs_without_transfer", "dominated", "peers", "closeness", "worst_axis")
    return {
        "reading": reading,
        "encoder": entry.encoder,
        "dataset": dataset,
        **{term: scored[term] if scored else None for term in terms},
        **raw,
        "state": entry.score["coverage"].get(dataset, "missing: not run"),
        "at_null": dataset in entry.at_null if profile else None,
    }


def _has(entry: Entry, dataset: str, reading: str) -> bool:
    return dataset in entry.score["readings"][reading]["datasets"]


def _status(entry: Entry, common: Sequence[str]) -> str:
    gaps = [f"{name}: {state}" for name, state in entry.score["coverage"].items() if not state.startswith("complete")]
    nulls = [name for name in common if name in entry.at_null]
    return "; ".join([*gaps, *([f"at null on {', '.join(nulls)}"] if nulls and not entry.is_control else [])])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known and len(known) == len(values) else None


def _ranks(values: Sequence[float | None]) -> list[float | None]:
    """Ranks from 1, the highest first; equal values share the mean of their ranks, an unknown one has none."""
    known = np.array([value for value in values if value is not None], dtype=np.float64)
    return [
        None if value is None else float((known > value).sum() + ((known == value).sum() + 1) / 2) for value in values
    ]


def _agreements(rows: pl.DataFrame, readings: Sequence[str]) -> dict[str, RankAgreement]:
    first = rows.filter((pl.col("reading") == readings[0]) & (pl.col("section") == RANKED)).sort("encoder")
    if first.height < 2:
        return {}
    top = min(3, first.height - 1)
    found = {
        f"AUROC against CRS ({readings[0]})": rank_agreement(
            first["discrimination"].to_numpy(), first["crs"].to_numpy(), k=top
        )
    }
    for reading in readings[1:]:
        other = rows.filter((pl.col("reading") == reading) & (pl.col("section") == RANKED)).sort("encoder")
        if other["encoder"].equals(first["encoder"]) and other["crs"].null_count() == 0:
            found[f"CRS {readings[0]} against {reading}"] = rank_agreement(
                first["crs"].to_numpy(), other["crs"].to_numpy(), k=top
            )
    return found
