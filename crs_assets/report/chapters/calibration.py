"""Chapters on calibration: reliability of stated probabilities, and what recalibration does to them."""

from collections.abc import Iterator, Sequence

import polars as pl

from crs_assets.report.chapters.ranking import ENCODER
from crs_assets.report.chapters.selections import clean_ece, overall_recalibration
from crs_assets.report.content import Block, Figure, Folded, Text, count, number, plain_table, word
from crs_assets.report.drawings.recalibration import against_cases, before_and_after, case_order
from crs_assets.report.evidence import Evidence
from crs_assets.report.figures import profile_drawing
from crs_assets.report.names import map_name
from crs_assets.report.numbers import change, change_interval
from crs_assets.report.tables import SECTION_TITLES, Cell, Column, Section, Table
from crs_assets.science.analyses.recalibration_summary import ALL_CASES, OVERALL
from crs_assets.science.protocol import CLEAN, TRANSFER, Protocol
from crs_assets.science.splits import CALIBRATION

TARGET = "target"


def reliability(evidence: Evidence) -> Sequence[Block]:
    """ECE beside its null band, then the diagrams of each encoder."""
    return [
        Text(
            "A perfectly calibrated predictor does not have ECE 0 on a finite test set. Beside each ECE stands the "
            "upper end of its null band: what such a predictor would reach by chance. An ECE within the band says "
            "nothing against the encoder."
        ),
        _ece_table(evidence),
        *_diagrams(evidence),
    ]


def recalibration(evidence: Evidence) -> Sequence[Block]:
    """Maps fitted on calibration cases, judged on test images, degraded images and targets."""
    summary, protocol = overall_recalibration(evidence), evidence.page.protocol
    errors = summary.filter(pl.col("metric") == "ece")
    groups = {name: title for name, title in _groups(protocol).items() if name in errors["condition_group"].to_list()}
    if errors.drop_nulls("difference").is_empty():
        return [Text("No map could be fitted: no data set has enough calibration cases.")]
    cases = {title: table for title, table in _cases(evidence) if table.drop_nulls("difference").height}
    blocks: list[Block] = [
        Text(
            "Maps are fitted on the calibration split alone and judged on images that they never saw. Differences are "
            "after minus before, so below 0 is better for ECE, log loss and Brier score, and above 0 for AUROC."
        ),
        Figure(
            "recalibration",
            "Mean ECE before and after each map, on clean and degraded images and at the target.",
            "Lines from the mean ECE before to the mean ECE after each recalibration map. The same numbers stand in "
            "the table below.",
            before_and_after(errors, groups),
        ),
        _change_table(summary, groups),
    ]
    if cases:
        blocks += [
            Figure(
                "recalibration-cases",
                "Change of ECE against the number of cases that a map was fitted on.",
                "Lines of the mean change of ECE against the number of cases. The same numbers stand in the table.",
                against_cases(cases),
            ),
            Folded("The same as a table", tuple(_case_table(title, table) for title, table in cases.items())),
        ]
    return blocks


def _ece_table(evidence: Evidence) -> Table:
    means = clean_ece(evidence)
    columns = (
        ENCODER,
        Column("Data set", is_number=False),
        Column("ECE", "Expected calibration error, 15 bins, mean over seeds; lower is better"),
        Column("Null band to", "95 % of the ECE of a perfectly calibrated predictor lie below"),
        Column("Beyond", "Whether the mean ECE lies above the mean null band", is_number=False),
        Column("n", "Test images"),
    )
    sections = []
    for section, title in SECTION_TITLES.items():
        names = [row["encoder"] for row in evidence.rows if row["section"] == section]
        rows = [
            (
                word(name),
                word(row["dataset"]),
                number(row["ece"]),
                number(row["ece_null"]),
                word(_beyond(row["ece"], row["ece_null"])),
                count(row["n_eval"]),
            )
            for name in names
            for row in means.filter(pl.col("encoder") == name).iter_rows(named=True)
        ]
        if rows:
            sections.append(Section(section, title, tuple(rows)))
    return Table("Calibration error on clean images, with its null band", columns, tuple(sections), row_header=0)


def _beyond(ece: float | None, null: float | None) -> str | None:
    return None if ece is None or null is None else "yes" if ece > null else "no"


def _diagrams(evidence: Evidence) -> Iterator[Block]:
    titles = {row["encoder"]: row["title"] for row in evidence.rows}
    for name in (*evidence.encoders, *evidence.controls):
        runs = evidence.runs.filter(pl.col("encoder") == name)
        if runs.is_empty():
            continue
        bins = evidence.reliability.filter(pl.col("encoder") == name)
        picture = Figure(
            f"encoder-{name}",
            f"{titles[name]}: reliability diagram, label-efficiency curve, and severity curves, a row per data set.",
            f"Curves of {titles[name]}: observed against stated probabilities with the share of predictions per bin "
            "and the null band; AUROC by share of labels; AUROC and ECE by severity. ECE and null band stand in the "
            "table above.",
            profile_drawing(titles[name], runs, bins, evidence.page.protocol),
            as_png=True,
        )
        yield Folded(f"Diagrams of {titles[name]}", (picture,))


def _groups(protocol: Protocol) -> dict[str, str]:
    severities = sorted({severity for item in protocol.perturbations for severity in item.severities})
    return {
        CLEAN: "clean",
        **{f"severity-{severity}": f"severity {severity}" for severity in severities},
        TRANSFER: "transfer target",
    }


def _change_table(summary: pl.DataFrame, groups: dict[str, str]) -> Table:
    columns = (
        Column("Map", is_number=False),
        Column("Images", is_number=False),
        Column("ECE before"),
        Column("ECE after"),
        Column("Change of ECE", "After minus before"),
        Column("Seed interval"),
        Column("Change of log loss", "After minus before; lower is better"),
        Column("Change of Brier", "After minus before; lower is better"),
        Column("Change of AUROC", "After minus before; higher is better"),
        Column("Runs", "Encoders, data sets, seeds and conditions that the means are over"),
        Column("Got worse", "Runs whose ECE rose"),
        Column("Beyond null band", "Runs whose ECE before lay beyond its null band"),
    )
    rows = []
    for group, title in groups.items():
        here = summary.filter(pl.col("condition_group") == group)
        for method in here["method"].unique().sort():
            own = {row["metric"]: row for row in here.filter(pl.col("method") == method).iter_rows(named=True)}
            ece = own["ece"]
            rows.append(
                (
                    word(map_name(method)),
                    word(title),
                    number(ece["before"]),
                    number(ece["after"]),
                    Cell(change(ece["difference"]), ece["difference"]),
                    Cell(change_interval(ece["low"], ece["high"]), ece["low"]),
                    *(
                        Cell(change(own[metric]["difference"]), own[metric]["difference"])
                        for metric in ("log_loss", "brier", "auroc")
                    ),
                    count(ece["n"]),
                    count(ece["n_worse"]),
                    count(ece["n_meaningful"]),
                )
            )
    return plain_table("Recalibration with all calibration cases", columns, rows)


def _cases(evidence: Evidence) -> Iterator[tuple[str, pl.DataFrame]]:
    summary = evidence.table("recalibration_summary", "summary")
    errors = summary.filter((pl.col("dataset") == OVERALL) & (pl.col("metric") == "ece"))
    for fitted_on, group, title in (
        (CALIBRATION, CLEAN, "Fitted on calibration cases, judged on clean test images"),
        (TARGET, TRANSFER, "Fitted on target cases, judged on the target's other half"),
    ):
        yield title, errors.filter((pl.col("kind") == fitted_on) & (pl.col("condition_group") == group))


def _case_table(title: str, table: pl.DataFrame) -> Table:
    order = case_order(table["cases"].to_list())
    columns = (
        Column("Map", is_number=False),
        Column("Cases"),
        Column("Change of ECE", "After minus before; lower is better"),
        Column("Seed interval"),
        Column("Runs"),
        Column("Runs without a map", "Runs that had too few cases"),
    )
    rows = [
        (
            word(map_name(row["method"])),
            Cell("all" if row["cases"] == ALL_CASES else row["cases"], order.index(row["cases"])),
            Cell(change(row["difference"]), row["difference"]),
            Cell(change_interval(row["low"], row["high"]), row["low"]),
            count(row["n"]),
            count(row["n_without_map"]),
        )
        for row in sorted(table.iter_rows(named=True), key=lambda row: (row["method"], order.index(row["cases"])))
    ]
    return plain_table(title, columns, rows)
