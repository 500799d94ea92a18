"""The leaderboard stage: every published score, ranked where complete; a table, a page, a picture."""

from collections.abc import Iterator
from math import isnan
from typing import Any

import polars as pl

from crs_assets.report.leaderboard import Page, leaderboard_png, render_html
from crs_assets.resources.artifact_store import Staging, write_atomic
from crs_assets.resources.bench import Bench
from crs_assets.science.canonical import canonical_json
from crs_assets.science.leaderboard import Board, Entry, build_board
from crs_assets.stages.nulls import NullComparison, null_comparisons
from crs_assets.stages.panel_in_force import active_panel, require_panel
from crs_assets.stages.probes import NullControls, ProbePredictions
from crs_assets.stages.scores import AxisProfile, Crs, read_profile, read_score
from crs_assets.stages.stage import Built, Stage, provenance

ROWS_FILE = "leaderboard.parquet"
CELLS_FILE = "cells.parquet"
NULLS_FILE = "nulls.parquet"
AGREEMENT_FILE = "agreement.json"
HTML_FILE = "leaderboard.html"
PNG_FILE = "leaderboard.png"


class Leaderboard(Stage):
    """Scores and axes of every encoder, ranked over the data sets that all ranked ones have; controls below a line."""

    name = "leaderboard"
    code_version = "1"
    libraries = ("matplotlib", "numpy", "polars")

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:  # noqa: ARG002  (one partition in every suite)
        """One."""
        return iter([()])

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:  # noqa: ARG002
        """Scores, profiles, and the predictions that cells are compared with their nulls by."""
        scores = {name: Crs().version(bench, name) for name in bench.suite.encoders}
        scored = {name: version for name, version in scores.items() if version}
        if not scored:
            return None
        tasks = bench.suite.tasks
        return {
            "scores": scored,
            "profiles": {name: AxisProfile().version(bench, name) for name in scored},
            "nulls": {task: NullControls().version(bench, task) for task in tasks},
            "predictions": {name: [ProbePredictions().version(bench, name, task) for task in tasks] for name in scored},
            "statistics": bench.suite.protocol.statistics.model_dump(mode="json"),
        }

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:  # noqa: ARG002
        """Compare with the nulls, rank, and write table, page and picture."""
        comparisons = [
            comparison
            for dataset in bench.suite.datasets
            for comparison in null_comparisons(bench, dataset, list(bench.suite.encoders))
        ]
        board = make_board(bench, comparisons)
        board.rows.write_parquet(staging.path(ROWS_FILE))
        board.cells.write_parquet(staging.path(CELLS_FILE))
        nulls = pl.DataFrame([{**item.__dict__, "above": item.above} for item in comparisons])
        nulls.write_parquet(staging.path(NULLS_FILE))
        agreement = {name: _without_nan(vars(value)) for name, value in board.agreement.items()}
        write_atomic(staging.path(AGREEMENT_FILE), canonical_json(agreement))
        page = make_page(bench, board)
        write_atomic(staging.path(HTML_FILE), render_html(page))
        staging.path(PNG_FILE).write_bytes(leaderboard_png(page))
        first = board.rows.filter(pl.col("reading") == bench.suite.protocol.id)
        ranked = first.filter(pl.col("section") == "ranked")
        return Built(
            {
                "ranked": ranked.height,
                "incomplete": first.filter(pl.col("section") == "incomplete").height,
                "controls": first.filter(pl.col("section") == "control").height,
                "first": ranked["encoder"].to_list()[:1],
                "common_datasets": list(board.common),
                "unrankable": list(board.unrankable),
                "at_null": board.cells.filter(pl.col("at_null") & (pl.col("reading") == bench.suite.protocol.id))
                .select(pl.concat_str("encoder", "dataset", separator=" on "))
                .to_series()
                .to_list(),
            }
        )


def _without_nan(facts: dict[str, Any]) -> dict[str, Any]:
    """A coefficient that a single tie leaves undefined is null."""
    return {name: None if isinstance(value, float) and isnan(value) else value for name, value in facts.items()}


def make_board(bench: Bench, comparisons: list[NullComparison]) -> Board:
    """The tables, from what is published.

    Raises:
        RefusedError: If there is no panel yet.
    """
    panel = require_panel(bench)
    below: dict[str, set[str]] = {}
    for comparison in comparisons:
        if not comparison.above:
            below.setdefault(comparison.encoder, set()).add(comparison.dataset)
    entries = [
        Entry(
            encoder=name,
            title=spec.title,
            family=spec.family,
            is_control=spec.role == "control",
            score=read_score(bench, name),
            profile=read_profile(bench, name),
            at_null=frozenset(below.get(name, set())),
        )
        for name, spec in bench.suite.encoders.items()
        if Crs().version(bench, name)
    ]
    rankable = {name: bool(facts["rankable"]) for name, facts in panel["datasets"].items()}
    readings = [reading.id for reading in bench.suite.readings]
    return build_board(entries, list(bench.suite.datasets), readings, rankable)


def make_page(bench: Bench, board: Board) -> Page:
    """What the page and the picture show."""
    panel = active_panel(bench) or {}
    suite = bench.suite
    return Page(
        suite=suite.id,
        title=suite.spec.title,
        protocol=suite.protocol,
        readings=tuple(reading.id for reading in suite.readings),
        panel=str(panel.get("name", "")),
        panel_members=tuple(panel.get("encoders", ())),
        phantoms=any(spec.phantom for spec in suite.image_sets.values()),
        datasets={name: spec.title for name, spec in suite.image_sets.items()},
        board=board,
        provenance={
            **provenance(bench),
            "labels": {name: spec.label_source for name, spec in suite.image_sets.items()},
        },
    )


__all__ = ["Leaderboard", "make_board", "make_page"]
