"""Tables and texts for the terminal."""

import json
from typing import Any

import click
import polars as pl
from rich.console import Console

from crs_assets.cli.planning import ImageCounts
from crs_assets.cli.session import open_bench
from crs_assets.report.terminal import FULL_WIDTH, leaderboard_table
from crs_assets.resources.artifact_store import StoreError
from crs_assets.science.plan import Plan
from crs_assets.stages import leaderboard as stage
from crs_assets.stages.panel_in_force import scoring_command

# Columns of the table where nobody's terminal limits it.
TABLE_WIDTH = 110


def show_leaderboard(suite: str, *, as_json: bool = False, as_csv: bool = False) -> None:
    """Print the stored leaderboard of a suite, and where its page is.

    Raises:
        StoreError: If there is none yet.
    """
    bench = open_bench(suite)
    key = bench.key("leaderboard")
    if not bench.store.peek(key):
        raise StoreError(f"suite {bench.suite.id} has no leaderboard yet; make it first: {scoring_command(bench)}")
    artifact = bench.store.open(key)
    rows = pl.read_parquet(artifact.file(stage.ROWS_FILE))
    if as_csv:
        click.echo(rows.write_csv(), nl=False)
        return
    if as_json:
        cells = pl.read_parquet(artifact.file(stage.CELLS_FILE))
        agreement = json.loads(artifact.file(stage.AGREEMENT_FILE).read_text(encoding="utf-8"))
        content = {
            "suite": suite,
            "summary": artifact.manifest.summary,
            "provenance": artifact.manifest.provenance,
            "rows": rows.to_dicts(),
            "cells": cells.to_dicts(),
            "agreement": agreement,
        }
        click.echo(json.dumps(content, indent=1))
        return
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    console.print(leaderboard_table(rows, bench.suite.protocol.id, narrow=console.width < FULL_WIDTH))
    if lacking := [name for name in bench.suite.encoders if name not in rows["encoder"]]:
        text = f"Not scored yet: {', '.join(lacking)}. To score them: {bench.suite.command('run')}"
        console.print(text, soft_wrap=True, highlight=False)
    if left_out := artifact.manifest.summary["unrankable"]:
        names = ", ".join(left_out)
        console.print(f"Not ranked on, no panel encoder being above its nulls there: {names}.", highlight=False)
    if any(spec.phantom for spec in bench.suite.image_sets.values()):
        console.print("Procedural phantoms, not medical images: this ranking says nothing about clinical use.")
    console.print(f"Page: {artifact.file(stage.HTML_FILE)}", soft_wrap=True, highlight=False)
    console.print("UI:   crs ui", highlight=False)


def plan_text(plan: Plan, counts: ImageCounts) -> str:
    """A plan for a person, and where its numbers of images come from."""
    lines = [
        f"suite {plan.suite}, protocol {plan.protocol}",
        f"  cells             {plan.cells:>12,}   ({len(plan.absent_cells)} absent by the catalogue)",
        f"  rows              {plan.rows:>12,}   (seed-aggregated)",
        f"  runs              {plan.runs:>12,}   (and {plan.control_runs:,} of controls)",
        f"  images to encode  {_number(plan.images_to_encode)}",
        f"  disk, features    {_gigabytes(plan.feature_bytes)}",
        f"  disk, predictions {_gigabytes(plan.prediction_bytes)}",
        "  partitions        " + ", ".join(f"{count:,} {name}" for name, count in plan.partitions.items()),
    ]
    lines += [f"  absent: {cell['encoder']} on {cell['dataset']}: {cell['reason']}" for cell in plan.absent_cells]
    lines += [
        f"  counted from its tables: {name}, {plan.images[name]:,} images, damaged files and copies among them"
        for name in counts.from_tables
    ]
    lines += [f"  number of images unknown: {name}: {reason}" for name, reason in counts.unknown.items()]
    return "\n".join(lines)


def panel_text(panel: dict[str, Any]) -> str:
    """A panel for a person."""
    lines = [f"{panel['name']}  protocol {panel['protocol']}  sha256 {panel['sha256']}"]
    for name, facts in panel["datasets"].items():
        note = "" if facts["rankable"] else "  (no member above its null controls: cannot rank)"
        lines.append(f"  data set {name}: {len(facts['classes'])} classes scored{note}")
    for name, scores in panel["scores"].items():
        primary = {dataset: entry.get(panel["protocol"]) for dataset, entry in scores.items()}
        values = ", ".join(f"{dataset} {crs:.3f}" for dataset, crs in primary.items() if crs is not None)
        lines.append(f"  {name}: {values}")
    return "\n".join(lines)


def _number(value: int | None) -> str:
    return f"{'unknown':>12}" if value is None else f"{value:>12,}"


def _gigabytes(value: int | None) -> str:
    return f"{'unknown':>12}" if value is None else f"{value / 1e9:>12.2f} GB"
