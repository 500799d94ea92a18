"""Pictures of the suite's analyses in the UI: the report's drawings, of what has just been stored.

What a picture shows is in the tables as well; where there is nothing to draw there is none.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dagster as dg
import polars as pl

from crs_assets.report.canvas import Drawing
from crs_assets.report.drawings import arrivals, curves, elsewhere, ranking, recalibration
from crs_assets.report.drawings.looks import looks
from crs_assets.report.figures import png_markdown
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.cells import mean_over
from crs_assets.science.analyses.external_validity import AUROC_PREDICTORS, CRS_PREDICTORS, transfer_auroc
from crs_assets.science.analyses.invariance import COHORT, FROZEN
from crs_assets.science.analyses.recalibration_summary import ALL_CASES, OVERALL, condition_groups
from crs_assets.science.analyses.uncertainty import AGGREGATE, CENTRED, PANEL_FIXED
from crs_assets.science.leaderboard import CONTROL, RANKED
from crs_assets.science.protocol import CLEAN
from crs_assets.science.splits import CALIBRATION
from crs_assets.stages.analyses import external_validity as validity
from crs_assets.stages.analyses import reference_invariance as invariance
from crs_assets.stages.analyses import run_audits
from crs_assets.stages.analyses import score_sensitivity as sensitivity
from crs_assets.stages.analyses.published import read_published
from crs_assets.stages.analyses.recalibration import read_recalibration_summary
from crs_assets.stages.analyses.suite_analysis import read_all_runs, read_table
from crs_assets.stages.analyses.uncertainty import Uncertainty
from crs_assets.stages.leaderboard import make_board

Pictures = Callable[[Bench], Mapping[str, Any]]
TARGET = "target"


def inline(drawing: Drawing, alt: str) -> dg.MarkdownMetadataValue:
    """A drawing as metadata that the UI shows as it is.

    Args:
        drawing: The picture.
        alt: What it shows, in words.
    """
    return dg.MetadataValue.md(png_markdown(drawing.png, alt))


def of_agreement(bench: Bench) -> Mapping[str, Any]:
    """From the ranking by AUROC to the ranking by CRS."""
    return {"picture": inline(ranking.bump(_ranked(bench)), "Ranks by AUROC and by CRS")}


def of_uncertainty(bench: Bench) -> Mapping[str, Any]:
    """Scores with their intervals, and how often each rank comes up."""
    board = make_board(bench, []).rows.filter(pl.col("reading") == bench.suite.protocol.id)
    artifact = bench.store.open(bench.key(Uncertainty.name))
    shown = (pl.col("reading") == bench.suite.protocol.id) & (pl.col("peers") == PANEL_FIXED)
    scores = pl.read_parquet(artifact.file("intervals.parquet")).filter(
        shown & (pl.col("dataset") == AGGREGATE) & (pl.col("quantity") == "crs")
    )
    ranks = pl.read_parquet(artifact.file("ranks.parquet")).filter(shown & (pl.col("kind") == CENTRED))
    ranked, controls = (
        [name for name in board.filter(pl.col("section") == section)["encoder"] if name in scores["encoder"].to_list()]
        for section in (RANKED, CONTROL)
    )
    if not ranked:
        return {}
    drawing = ranking.score_intervals(ranked, controls, scores, ranks)
    return {"picture": inline(drawing, "CRS with intervals, and the probability of each rank")}


def of_sensitivity(bench: Bench) -> Mapping[str, Any]:
    """Ranks over the simplex of weights."""
    table = read_table(bench, sensitivity.ScoreSensitivity.name, sensitivity.WEIGHTINGS)
    own = table.filter(pl.col("reading") == bench.suite.protocol.id)
    return {"picture": inline(elsewhere.rank_ranges(own), "Best and worst rank over all weightings of the score")}


def of_invariance(bench: Bench) -> Mapping[str, Any]:
    """How far scores move under either rule."""
    trials = read_table(bench, invariance.ReferenceInvariance.name, invariance.TRIALS)
    own = trials.filter(pl.col("reading") == bench.suite.protocol.id)
    drawing = arrivals.displacements(own, (COHORT, FROZEN))
    return {"picture": inline(drawing, "Displacement of published scores when encoders arrive")}


def of_label_efficiency(bench: Bench) -> Mapping[str, Any]:
    """Learning curves of AUROC and ECE."""
    table = read_table(bench, run_audits.LabelEfficiencyAudit.name, run_audits.CURVES)
    clean = read_all_runs(bench).filter(pl.col("condition") == CLEAN)
    errors = clean.group_by("encoder", "dataset", "fraction").agg(pl.col("ece").fill_nan(None).mean())
    whole = table.join(errors, on=("encoder", "dataset", "fraction"), how="left", maintain_order="left")
    shown = [name for name in bench.suite.datasets if name in whole["dataset"].to_list()]
    drawing = curves.label_curves(whole, shown, looks(_ranked(bench)))
    return {"picture": inline(drawing, "AUROC and ECE by share of training labels")}


def of_perturbations(bench: Bench) -> Mapping[str, Any]:
    """AUROC and ECE by severity, over the data sets that all encoders have."""
    table = read_table(bench, run_audits.PerturbationAudit.name, run_audits.CONDITIONS)
    encoders = table["encoder"].unique()
    had = table.group_by("dataset").agg(pl.col("encoder").n_unique())
    common = sorted(had.filter(pl.col("encoder") == len(encoders))["dataset"])
    means = [
        mean_over(rows, common, ("auroc", "ece")).with_columns(condition=pl.lit(str(condition)))
        for (condition,), rows in table.group_by("condition", maintain_order=True)
    ]
    points = pl.concat(means)
    if points.is_empty():
        return {}
    clean = points.filter(pl.col("condition") == CLEAN).sort("auroc", "encoder", descending=[True, False])
    by_auroc = [{"encoder": name, "rank_auroc": rank} for rank, name in enumerate(clean["encoder"])]
    drawing = curves.severity_curves(points, bench.suite.protocol, looks(by_auroc))
    return {"picture": inline(drawing, "AUROC and ECE by family and severity of the degradation")}


def of_transfer(bench: Bench) -> Mapping[str, Any]:
    """AUROC at each target against what is known at the source."""
    panels = list(_transfer_panels(bench))
    if not panels:
        return {}
    return {"picture": inline(elsewhere.transfer_scatter(panels), "AUROC at the target against AUROC and CRS before")}


def of_recalibration(bench: Bench) -> Mapping[str, Any]:
    """ECE before and after each map, and against the number of cases."""
    summary = read_recalibration_summary(bench).filter((pl.col("dataset") == OVERALL) & (pl.col("metric") == "ece"))
    on_all = summary.filter((pl.col("kind") == CALIBRATION) & (pl.col("cases") == ALL_CASES)).drop_nulls("difference")
    if on_all.is_empty():
        return {}
    known = set(on_all["condition_group"])
    names = dict.fromkeys(condition_groups(bench.suite.protocol).values())
    groups = {name: name.replace("-", " ") for name in names if name in known}
    found = {"picture": inline(recalibration.before_and_after(on_all, groups), "ECE before and after recalibration")}
    by_cases = {
        "calibration cases, clean": summary.filter(
            (pl.col("kind") == CALIBRATION) & (pl.col("condition_group") == CLEAN)
        ),
        "cases of the target": summary.filter(pl.col("kind") == TARGET),
    }
    panels = {title: table for title, table in by_cases.items() if table.drop_nulls("difference").height}
    if panels:
        found["picture_over_cases"] = inline(recalibration.against_cases(panels), "Change of ECE by number of cases")
    return found


def _ranked(bench: Bench) -> list[dict[str, Any]]:
    """Rows of the ranked encoders, best first."""
    rows = read_published(bench).rows.filter(pl.col("reading") == bench.suite.protocol.id)
    return rows.sort("rank", "encoder").to_dicts()


def _transfer_panels(bench: Bench) -> Iterator[Mapping[str, Any]]:
    protocol, published = bench.suite.protocol, read_published(bench)
    cells = published.cells.filter(pl.col("reading") == protocol.id)
    ranks = {row["encoder"]: row["rank"] for row in _ranked(bench)}
    at_target = transfer_auroc(read_all_runs(bench), full_fraction=protocol.data.fractions[-1])
    predictors = read_table(bench, validity.ExternalValidity.name, validity.PREDICTORS).filter(
        pl.col("reading") == protocol.id
    )
    for source in bench.suite.datasets:
        target = bench.suite.target_of(source)
        known = cells.filter(pl.col("dataset") == source).join(
            at_target.filter(pl.col("dataset") == source).drop_nulls("target_auroc"), on="encoder"
        )
        if target is None or known.is_empty():
            continue
        for column, predictor, across in (
            ("discrimination", AUROC_PREDICTORS[0], f"AUROC at {source}"),
            ("crs_without_transfer", CRS_PREDICTORS[0], f"CRS at {source} without its transfer term"),
        ):
            found = predictors.filter((pl.col("source") == source) & (pl.col("predictor") == predictor))
            points = known.drop_nulls(column).select("encoder", column, "target_auroc").iter_rows()
            yield {
                "title": _correlation(found.row(0, named=True)),
                "across": across,
                "up": f"AUROC at {target}",
                "points": [(ranks[name], x, y) for name, x, y in points],
            }


def _correlation(row: Mapping[str, Any]) -> str:
    rho, n = row["rho"], row["n"]
    return f"no rank correlation, n = {n}" if rho is None else f"Spearman {rho:z.3f}, n = {n}"
