"""Label efficiency looked at closely: learning curves, what the two measures of them measure, who reaches whom."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from crs_assets.science.analyses.cells import mean_over
from crs_assets.science.analyses.correlation import spearman
from crs_assets.science.analyses.replicated_axes import seed_draws
from crs_assets.science.protocol import CLEAN, Protocol
from crs_assets.science.statistics import percentile_interval, seed_bootstrap_means
from crs_assets.science.validation import IntArray

CELLS = "cells"
ENCODERS = "encoders"

CURVE_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("encoder", "dataset"), pl.Utf8),
    **dict.fromkeys(("fraction", "auroc", "lower", "upper", "retention", "n_fit"), pl.Float64),
    "seeds": pl.Int64,
    "floor": pl.Boolean,
}
CORRELATION_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("scope", "measure"), pl.Utf8),
    "n": pl.Int64,
    "rho": pl.Float64,
    "reason": pl.Utf8,
}
REACH_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("dataset", "encoder", "reference"), pl.Utf8),
    **dict.fromkeys(("reference_auroc", "fraction", "fraction_lower_bound"), pl.Float64),
    "reason": pl.Utf8,
}


def learning_curves(runs: pl.DataFrame, protocol: Protocol) -> pl.DataFrame:
    """AUROC of each cell at each label fraction, with its seed interval.

    Args:
        runs: Run metrics of every seed: ``encoder``, ``dataset``, ``seed``, ``fraction``, ``condition``, ``auroc``,
            ``converged``, ``n_fit``, ``floor``.
        protocol: Fractions, replicates, level and salt; the draw of seeds is the same for all cells.

    Returns:
        One row per cell and fraction (``CURVE_SCHEMA``): mean AUROC over seeds, the seed interval (none with one seed),
        retention (AUROC over the AUROC of all labels), mean number of images fitted on, and whether any seed's subset
        was the floor. AUROC is null where a seed is not estimable or did not converge.
    """
    clean = runs.filter(pl.col("condition") == CLEAN).sort("encoder", "dataset", "fraction", "seed")
    usable = pl.when(pl.col("converged") & pl.col("auroc").is_finite()).then(pl.col("auroc"))
    draws: dict[int, IntArray] = {}
    rows = []
    for (encoder, dataset, fraction), frame in clean.group_by("encoder", "dataset", "fraction", maintain_order=True):
        values = frame.select(usable.alias("auroc"))["auroc"]
        n = frame.height
        if n not in draws:
            draws[n] = seed_draws(n, protocol.statistics.replicates, protocol.salt)
        rows.append(
            {
                "encoder": encoder,
                "dataset": dataset,
                "fraction": fraction,
                **_mean_and_interval(values, draws[n], protocol.statistics.interval),
                "n_fit": frame["n_fit"].mean(),
                "seeds": n,
                "floor": bool(frame["floor"].any()),
            }
        )
    table = pl.DataFrame(rows, schema={name: kind for name, kind in CURVE_SCHEMA.items() if name != "retention"})
    full = table.filter(pl.col("fraction") == protocol.data.fractions[-1])
    joined = table.join(full.select("encoder", "dataset", full="auroc"), on=("encoder", "dataset"), how="left")
    return joined.with_columns(retention=pl.col("auroc") / pl.col("full")).select(*CURVE_SCHEMA)


def measure_correlations(
    cells: pl.DataFrame, measures: Sequence[str], *, ranked: Sequence[str], common: Sequence[str]
) -> pl.DataFrame:
    """Spearman's rho of each measure of label efficiency with the AUROC of all labels.

    A measure that repeats the AUROC of all labels tells nothing of label efficiency.

    Args:
        cells: ``encoder``, ``dataset``, ``discrimination`` and the measures; null where not estimable.
        measures: Columns of ``cells``.
        ranked: Encoders that the means are taken of.
        common: Data sets that the means are over.

    Returns:
        Two rows per measure (``CORRELATION_SCHEMA``): over cells, and over encoders' means.
    """
    rows = []
    for measure in measures:
        columns = ("discrimination", measure)
        means = mean_over(cells.filter(pl.col("encoder").is_in(list(ranked))), common, columns)
        for scope, table in ((CELLS, cells.drop_nulls(columns)), (ENCODERS, means)):
            found = spearman(table[measure], table["discrimination"])
            rows.append({"scope": scope, "measure": measure, "n": found.n, "rho": found.value, "reason": found.reason})
    return pl.DataFrame(rows, schema=CORRELATION_SCHEMA)


def reach(curves: pl.DataFrame) -> pl.DataFrame:
    """The smallest label fraction at which one encoder reaches what another has with all labels.

    Args:
        curves: From ``learning_curves``.

    Returns:
        One row per data set and ordered pair of encoders (``REACH_SCHEMA``): ``fraction`` by the mean over seeds,
        ``fraction_lower_bound`` by the lower end of the seed interval; null where never reached or not estimable.
    """
    rows = [row for (dataset,), frame in _by_dataset(curves) for row in _reach_on(str(dataset), frame)]
    return pl.DataFrame(rows, schema=REACH_SCHEMA)


def levels(curves: pl.DataFrame, *, top_k: int) -> dict[str, dict[str, float]]:
    """The highest AUROCs at the smallest label fraction: data set -> encoder -> AUROC, best first."""
    smallest = curves.filter(pl.col("fraction") == curves["fraction"].min()).drop_nulls("auroc")
    return {
        str(dataset): dict(
            frame.sort("auroc", "encoder", descending=[True, False]).head(top_k).select("encoder", "auroc").iter_rows()
        )
        for (dataset,), frame in _by_dataset(smallest)
    }


def _by_dataset(table: pl.DataFrame) -> Iterator[tuple[tuple[object, ...], pl.DataFrame]]:
    return iter(table.sort("dataset", "encoder", "fraction").group_by("dataset", maintain_order=True))


def _mean_and_interval(values: pl.Series, draws: IntArray, level: float) -> dict[str, float | None]:
    if values.null_count():
        return {"auroc": None, "lower": None, "upper": None}
    array = values.to_numpy()
    if len(array) == 1:
        return {"auroc": float(array[0]), "lower": None, "upper": None}
    lower, upper = percentile_interval(seed_bootstrap_means(array, draws), level=level)
    return {"auroc": float(np.mean(array)), "lower": float(lower), "upper": float(upper)}


def _reach_on(dataset: str, frame: pl.DataFrame) -> Iterator[dict[str, Any]]:
    curves = {
        str(name): list(rows.iter_rows(named=True)) for (name,), rows in frame.group_by("encoder", maintain_order=True)
    }
    for encoder, curve in curves.items():
        for reference, other in curves.items():
            if encoder != reference:
                key = {"dataset": dataset, "encoder": encoder, "reference": reference}
                yield {**key, **_reaching(curve, other[-1]["auroc"])}


def _reaching(curve: Sequence[Mapping[str, Any]], level: float | None) -> dict[str, Any]:
    if level is None:
        return {"reference_auroc": None, "reason": "the reference's AUROC is not estimable"}
    found = {
        name: next((row["fraction"] for row in curve if row[value] is not None and row[value] >= level), None)
        for name, value in (("fraction", "auroc"), ("fraction_lower_bound", "lower"))
    }
    reason = "not reached with all labels" if found["fraction"] is None else None
    return {"reference_auroc": level, **found, "reason": reason}
