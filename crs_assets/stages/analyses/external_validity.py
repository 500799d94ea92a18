"""External validity of CRS and of AUROC: at transfer targets, and on data sets held out."""

from typing import Any

import polars as pl

from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.external_validity import (
    GROUP_SCHEMA,
    compare_families,
    leave_one_out,
    no_target,
    predict_transfer,
    transfer_auroc,
)
from crs_assets.science.analyses.verdict import verdict
from crs_assets.stages.analyses.published import Published, read_published
from crs_assets.stages.analyses.suite_analysis import Findings, SuiteAnalysis, encoders, read_all_runs

PREDICTORS = "predictors"
FAMILIES = "families"


class ExternalValidity(SuiteAnalysis):
    """Whether CRS or AUROC tells how encoders fare at a transfer target or a data set held out; CRS is no predictor."""

    name = "external_validity"
    code_version = "2"
    reads = ("scores", "profiles", "runs", "panel")

    def settings(self, bench: Bench) -> dict[str, Any]:
        """Bootstrap, salt, and what encoders and data sets were made for."""
        suite = bench.suite
        specs = {name: suite.encoders[name] for name in encoders(bench)}
        return {
            "statistics": suite.protocol.statistics.model_dump(mode="json"),
            "salt": suite.protocol.salt,
            "families": {name: [spec.family, spec.specialty] for name, spec in specs.items()},
            "targets": {name: [spec.transfer_target, spec.specialty] for name, spec in suite.datasets.items()},
        }

    def analyse(self, bench: Bench) -> Findings:
        """Predict, hold out, compare families, and say what it comes to."""
        suite, published = bench.suite, read_published(bench)
        transfer = transfer_auroc(read_all_runs(bench), full_fraction=suite.protocol.data.fractions[-1])
        predictors = pl.concat(
            _predictors(bench, published, transfer, reading.id).with_columns(reading=pl.lit(reading.id))
            for reading in suite.readings
        )
        families = pl.concat([pl.DataFrame(schema=GROUP_SCHEMA), *_families(bench, transfer)])
        primary = predictors.filter(pl.col("reading") == suite.protocol.id)
        return Findings(
            {PREDICTORS: predictors, FAMILIES: families},
            {
                "verdict": verdict(primary),
                "transfers": families.select("source", "target").n_unique(),
                "held_out": primary.drop_nulls("winner_recovered")
                .filter(pl.col("source").is_null())["target"]
                .n_unique(),
            },
        )


def _predictors(bench: Bench, published: Published, transfer: pl.DataFrame, reading: str) -> pl.DataFrame:
    suite = bench.suite
    cells = published.cells.filter(pl.col("reading") == reading)
    targets = {source: target for source in suite.datasets if (target := suite.target_of(source))}
    tables = [
        predict_transfer(
            cells, transfer, source=source, target=target, common=published.common, protocol=suite.protocol
        )
        for source, target in targets.items()
    ]
    held_out = leave_one_out(cells, datasets=published.rankable, protocol=suite.protocol)
    return pl.concat([*(tables or [no_target()]), held_out])


def _families(bench: Bench, transfer: pl.DataFrame) -> list[pl.DataFrame]:
    suite = bench.suite
    families = {name: suite.encoders[name].family for name in encoders(bench)}
    specialties = {name: suite.encoders[name].specialty for name in encoders(bench)}
    return [
        compare_families(
            transfer,
            families,
            specialties,
            source=source,
            target=target,
            organ=suite.datasets[source].specialty,
            level=suite.protocol.statistics.interval,
        )
        for source in suite.datasets
        if (target := suite.target_of(source))
    ]
