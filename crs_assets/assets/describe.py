"""What a person sees of a materialization in the UI: counts, tables, pictures; never an id, a path or an image."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.report.figures import png_markdown, profile_png
from crs_assets.resources.bench import Bench
from crs_assets.science.datasets.counts import WITHHELD, is_small, withheld
from crs_assets.science.protocol import AXES
from crs_assets.science.splits.eligibility import GROUP_SIGNS, SIGNS
from crs_assets.science.suite import parse_task, task_key
from crs_assets.stages import data, leaderboard, probes, scores
from crs_assets.stages.stage import Outcome

Metadata = Mapping[str, Any]


def describe_index(bench: Bench, outcome: Outcome) -> Metadata:
    """Counts, exclusions, and positives per class."""
    summary = outcome.manifest.summary
    counts = pl.read_parquet(bench.store.open(bench.key("dataset_index", *outcome.parts)).file(data.COUNTS_FILE))
    return {
        "dagster/row_count": summary["images_read"],
        "images_used": summary["images_used"],
        "quarantined": summary["quarantined"],
        "groups": summary["groups"],
        "test_images": summary["test_images"],
        "counts": markdown_table(counts),
        "phantoms": bool(summary["phantom"]),
    }


def describe_splits(bench: Bench, outcome: Outcome) -> Metadata:
    """Roles, realised label subsets, scored and left-out classes."""
    summary = outcome.manifest.summary
    artifact = bench.store.open(bench.key("splits", *outcome.parts))
    one_each = bench.suite.datasets[parse_task(outcome.parts[0])[0]].task != "multilabel"
    return {
        **{f"{role}_images": count for role, count in summary["roles"].items()},
        "label_fractions": markdown_table(pl.read_parquet(artifact.file(data.FRACTIONS_FILE))),
        "classes": markdown_table(suppress(pl.read_parquet(artifact.file(data.CLASSES_FILE)), adds_up=one_each)),
        "classes_scored": summary["classes_scored"],
        "classes_left_out": ", ".join(summary["classes_left_out"]) or "none",
    }


def describe_weights(bench: Bench, outcome: Outcome) -> Metadata:
    """Title, licence, dimension."""
    spec = bench.suite.encoders[outcome.parts[0]]
    return {
        **outcome.manifest.summary,
        "absent_cells": dg.MetadataValue.json(spec.absent),
        "unverified": list(spec.unverified),
    }


def describe_features(_: Bench, outcome: Outcome) -> Metadata:
    """Rows and dimension; a transfer target has no degraded images."""
    summary = outcome.manifest.summary
    rows = summary["images"] * max(summary["conditions"], 1)
    return {"dagster/row_count": rows, **summary}


def describe_predictions(_: Bench, outcome: Outcome) -> Metadata:
    """How many fits, and how many did not converge."""
    return outcome.manifest.summary


def describe_runs(bench: Bench, outcome: Outcome) -> Metadata:
    """The clean result at all labels, and every metric of the other runs at all labels."""
    summary = outcome.manifest.summary
    runs = probes.read_runs(bench, *outcome.parts).filter(pl.col("fraction") == 1.0)
    table = runs.select("condition", "n_eval", "auroc", "ece", "ece_null", "log_loss", "brier", "converged")
    numbers = {name: float(value) for name, value in summary.items() if isinstance(value, float)}
    return {
        "dagster/row_count": summary["rows"],
        **numbers,
        "not_converged": summary["not_converged"],
        "classes_scored": summary["classes_scored"],
        "at_all_labels": markdown_table(table),
    }


def describe_nulls(_: Bench, outcome: Outcome) -> Metadata:
    """AUROC of each null control."""
    return {f"auroc {name}": value for name, value in outcome.manifest.summary["auroc"].items() if value is not None}


def describe_profile(bench: Bench, outcome: Outcome) -> Metadata:
    """The four axes per data set, what is missing, and the curves behind them."""
    (encoder,) = outcome.parts
    profile = scores.read_profile(bench, encoder)
    primary = {name: entry[bench.suite.protocol.id] for name, entry in profile["datasets"].items()}
    table = pl.DataFrame(
        [{"data set": name, **entry["raw"]} for name, entry in primary.items()],
        schema_overrides=dict.fromkeys(AXES, pl.Float64),
    )
    runs, reliability = profile_frames(bench, encoder, list(primary))
    return {
        "axes": markdown_table(table),
        "coverage": dg.MetadataValue.json(profile["coverage"]),
        "curves": dg.MetadataValue.md(
            png_markdown(
                profile_png(bench.suite.encoders[encoder].title, runs, reliability, bench.suite.protocol),
                "Reliability, label efficiency and severity curves per data set",
            )
        ),
    }


def describe_panel(_: Bench, outcome: Outcome) -> Metadata:
    """Name, members, and which data sets can rank encoders."""
    summary = outcome.manifest.summary
    return {**summary, "datasets": dg.MetadataValue.json(summary["datasets"])}


def describe_crs(bench: Bench, outcome: Outcome) -> Metadata:
    """The score, its terms per data set, and its coverage."""
    (encoder,) = outcome.parts
    score = scores.read_score(bench, encoder)
    readings = score["readings"]
    rows = [
        {
            "reading": reading,
            "data set": name,
            "CRS": cell["crs"],
            "dominates": f"{cell['dominated']}/{cell['peers']}",
            "closeness": cell["closeness"],
            "worst axis": cell["worst_axis"],
        }
        for reading, entry in readings.items()
        for name, cell in entry["datasets"].items()
    ]
    aggregate = readings[bench.suite.protocol.id]["aggregate"]
    return {
        **({"crs": float(aggregate["crs"])} if aggregate else {}),
        "coverage": outcome.manifest.summary["coverage"],
        "complete": score["complete"],
        "panel": score["panel"],
        "terms": markdown_table(pl.DataFrame(rows)) if rows else "no data set could be scored",
    }


def describe_leaderboard(bench: Bench, outcome: Outcome) -> Metadata:
    """The table and its picture."""
    artifact = bench.store.open(bench.key("leaderboard"))
    rows = pl.read_parquet(artifact.file(leaderboard.ROWS_FILE)).filter(pl.col("reading") == bench.suite.protocol.id)
    columns = ["section", "rank", "encoder", "crs", *AXES, "covered", "expected", "rank_auroc", "status"]
    picture = artifact.file(leaderboard.PNG_FILE).read_bytes()
    return {
        "dagster/row_count": rows.height,
        "leaderboard": markdown_table(rows.select(columns)),
        "picture": dg.MetadataValue.md(png_markdown(picture, "Leaderboard")),
        # Below CRS_HOME: where a site keeps its state is nobody else's business.
        "page": str(artifact.file(leaderboard.HTML_FILE).relative_to(bench.home.path)),
        **{name: value for name, value in outcome.manifest.summary.items() if isinstance(value, int)},
    }


def profile_frames(bench: Bench, encoder: str, datasets: list[str]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Run metrics and reliability bins of an encoder over its data sets and seeds."""
    runs, bins = [], []
    for dataset in datasets:
        for seed in bench.suite.protocol.data.seeds:
            artifact = bench.store.open(bench.key("run_metrics", encoder, task_key(dataset, seed)))
            runs.append(pl.read_parquet(artifact.file(probes.RUNS_FILE)))
            table = pl.read_parquet(artifact.file(probes.RELIABILITY_FILE))
            bins.append(table.with_columns(dataset=pl.lit(dataset), seed=pl.lit(seed)))
    return pl.concat(runs), pl.concat(bins)


def suppress(table: pl.DataFrame, *, adds_up: bool) -> pl.DataFrame:
    """A table of classes that tells no count of under 10 images or people, nor what would give one away.

    The images of a role are told elsewhere, and are its positives and negatives together: a class is hidden by both.
    How many people they are of decides too, and is not told.

    Args:
        table: ``<role>_positives`` and ``<role>_negatives`` of each class, and the groups of both, as
            ``eligible_classes`` makes it.
        adds_up: Whether every image has one class, so that the positives add up to the images of the role.
    """
    shown = []
    for role in (name.removesuffix("positives") for name in table.columns if name.endswith("positives")):
        signs = [table[f"{role}{sign}"].to_list() for sign in SIGNS]
        people = [table[f"{role}{sign}"].to_list() for sign in GROUP_SIGNS]
        small = [any(map(is_small, counts)) for counts in zip(*signs, *people, strict=True)]
        hidden = withheld(signs[0], small, adds_up=adds_up)
        for sign, counts in zip(SIGNS, signs, strict=True):
            texts = [WITHHELD if is_hidden else str(count) for count, is_hidden in zip(counts, hidden, strict=True)]
            shown.append(pl.Series(f"{role}{sign}", texts, dtype=pl.String))
    return table.with_columns(shown).drop("reason", *(name for name in table.columns if name.endswith("_groups")))


def markdown_table(table: pl.DataFrame) -> dg.MarkdownMetadataValue:
    """A frame as a Markdown table, numbers to four decimals."""
    lines = ["| " + " | ".join(table.columns) + " |", "|" + " --- |" * table.width]
    lines.extend("| " + " | ".join(_cell(value) for value in row) + " |" for row in table.iter_rows())
    return dg.MetadataValue.md("\n".join(lines))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value).replace("|", "\\|")
