"""What happens to encoders outside the clean test set, in words: repair of calibration, degraded images, targets.

Each function reads one table and says no more than it holds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl

from crs_assets.report.names import degradation_name, map_name
from crs_assets.report.numbers import change, counted, decimals, listed
from crs_assets.science.protocol import CLEAN, TRANSFER

BROKEN_RISE = 0.05
"""Rise of ECE above clean from which stated probabilities count as broken."""
SMALL_LOSS = 0.02
"""Loss of AUROC below which the ranking of patients counts as kept."""


def repair(summary: pl.DataFrame) -> tuple[str, ...]:
    """Whether calibration can be repaired: maps fitted on all calibration cases, before and after.

    Args:
        summary: Recalibration over all cells, fitted on all calibration cases: ``method``, ``condition_group``,
            ``metric``, ``before``, ``after``, ``difference``, ``low``, ``high``, ``n``, ``n_meaningful``, ``n_worse``.
    """
    clean = summary.filter((pl.col("condition_group") == CLEAN) & (pl.col("metric") == "ece")).drop_nulls("difference")
    if clean.is_empty():
        return ("No recalibration map could be fitted: nothing is said.",)
    ordered = list(clean.sort("difference", "method").iter_rows(named=True))
    lower = [row for row in ordered if row["high"] is not None and row["high"] < 0]
    higher = [map_name(row["method"]) for row in ordered if row["low"] is not None and row["low"] > 0]
    raised = f" Beyond that interval it rises under {listed(higher)}." if higher else ""
    if not lower:
        best = ordered[0]
        return (
            f"Not shown: no map lowers the mean ECE on clean images beyond its seed interval; the lowest mean change "
            f"is that of {map_name(best['method'])}, {_told(best)}.{raised}",
            _meaning(best),
        )
    told = [f"{map_name(row['method'])}, {_told(row)}; {row['n_worse']} got worse" for row in lower]
    return (
        f"Yes, on images like those of the calibration split. Beyond its seed interval the mean ECE falls under "
        f"{'; under '.join(told)}.{raised}",
        _meaning(lower[0]),
        *_elsewhere(summary, lower[0]["method"]),
    )


def degrades_first(conditions: pl.DataFrame) -> tuple[str, ...]:
    """Which family of degradations costs most, over all severities and at the mildest.

    Args:
        conditions: One row per cell and condition: ``perturbation``, ``severity``, ``auroc_loss``, ``ece_rise``.
    """
    known = conditions.filter(pl.col("condition") != CLEAN).drop_nulls(["auroc_loss", "ece_rise"])
    if known.is_empty():
        return ("No degraded run is estimable: nothing is said.",)
    mildest = known.filter(pl.col("severity") == known["severity"].min())
    cells = known.select("encoder", "dataset").n_unique()
    return (
        f"Over {counted(cells, 'cell')} and all severities, {_worst(known)}.",
        f"At the mildest severity alone, {_worst(mildest)}.",
    )


def confidence_before_ranking(conditions: pl.DataFrame) -> tuple[str, ...]:
    """Where degraded images break stated probabilities while patients are still ranked, by a rule that it states.

    Args:
        conditions: One row per cell and condition: ``perturbation``, ``auroc_loss``, ``ece_rise``, ``ece``,
            ``ece_null``.
    """
    rule = (
        f"Confidence is said to break before ranking where ECE rises by at least {BROKEN_RISE:g} above clean and lies "
        f"above its null band, while AUROC falls by less than {SMALL_LOSS:g}"
    )
    known = conditions.filter(pl.col("condition") != CLEAN).drop_nulls(["auroc_loss", "ece_rise", "ece", "ece_null"])
    if known.is_empty():
        return (f"{rule}; no degraded run is estimable.",)
    broken = (
        (pl.col("ece_rise") >= BROKEN_RISE) & (pl.col("ece") > pl.col("ece_null")) & (pl.col("auroc_loss") < SMALL_LOSS)
    )
    by_family = (
        known.group_by("perturbation", maintain_order=True)
        .agg(broken.sum().alias("broken"), pl.len().alias("all"))
        .filter(pl.col("broken") > 0)
        .sort("broken", "perturbation", descending=[True, False])
    )
    total, every = int(by_family["broken"].sum()), known.height
    if not total:
        return (f"{rule}: in none of {every} combinations of encoder, data set and degradation.",)
    families = listed([f"{degradation_name(row[0])} ({row[1]} of {row[2]})" for row in by_family.iter_rows()])
    return (
        f"{rule}: in {total} of {every} combinations of encoder, data set and degradation, under {families}.",
        "There a falling AUROC gives no warning: image quality itself has to be monitored.",
    )


def transfers(pairs: pl.DataFrame, predictors: pl.DataFrame) -> tuple[str, ...]:
    """What is left at the transfer targets, and whether the order of encoders is.

    Args:
        pairs: Ranked encoders at each target: ``source``, ``target``, ``encoder``, ``auroc_source`` (on the shared
            classes), ``auroc_target``, ``ece_target``, ``ece_null_target``.
        predictors: Rank correlations of the source's AUROC with the target's: ``source``, ``n``, ``rho``, ``lower``,
            ``upper``.
    """
    if pairs.is_empty():
        return ("No data set of the suite has a transfer target: nothing is said of other institutions.",)
    told = [
        _transfer(str(source), str(target), rows, predictors)
        for (source, target), rows in pairs.group_by("source", "target", maintain_order=True)
    ]
    return tuple(told)


def _told(row: Mapping[str, Any]) -> str:
    return (
        f"from {decimals(row['before'])} to {decimals(row['after'])} ({_change(row)}) over {counted(row['n'], 'run')}"
    )


def _meaning(row: Mapping[str, Any]) -> str:
    return (
        f"Of these {counted(row['n'], 'run')}, {row['n_meaningful']} had an ECE beyond its null band; in the others "
        "there was nothing to repair that a test set of that size could show."
    )


def _change(row: Mapping[str, Any]) -> str:
    if row["low"] is None:
        return f"{change(row['difference'])}, without an interval"
    return f"{change(row['difference'])} [{change(row['low'])}, {change(row['high'])}]"


def _elsewhere(summary: pl.DataFrame, method: str) -> Iterator[str]:
    """The same maps under the strongest degradation and at the target."""
    rows = summary.filter((pl.col("method") == method) & (pl.col("metric") == "ece")).drop_nulls("difference")
    groups = {row["condition_group"]: row for row in rows.iter_rows(named=True)}
    degraded = [name for name in groups if name.startswith("severity-")]
    asked = [(max(degraded), f"at {max(degraded).replace('-', ' ')}")] if degraded else []
    asked += [(TRANSFER, "at the transfer target")] if TRANSFER in groups else []
    for name, words in asked:
        row = groups[name]
        holds = row["high"] is not None and row["high"] < 0
        verb = "The same maps also help" if holds else "The same maps are not shown to help"
        yield (
            f"{verb} {words}: {decimals(row['before'])} to {decimals(row['after'])} ({_change(row)}), so an ECE of "
            f"{decimals(row['after'])} is left."
        )


def _worst(known: pl.DataFrame) -> str:
    means = known.group_by("perturbation", maintain_order=True).agg(pl.col("auroc_loss", "ece_rise").mean())
    told = []
    for column, words in (("auroc_loss", "AUROC falls most under"), ("ece_rise", "ECE rises most under")):
        worst = means.sort(column, "perturbation", descending=[True, False]).row(0, named=True)
        if round(worst[column], 3) <= 0:
            told.append(f"{words.split()[0]} gets worse on average under no family")
        else:
            told.append(f"{words} {degradation_name(worst['perturbation'])} (on average by {decimals(worst[column])})")
    return " and ".join(told)


def _transfer(source: str, target: str, rows: pl.DataFrame, predictors: pl.DataFrame) -> str:
    known = rows.drop_nulls(["auroc_source", "auroc_target"])
    if known.is_empty():
        return f"From {source} to {target} no ranked encoder has an AUROC on both sides."
    moved = known.select(moved=pl.col("auroc_target") - pl.col("auroc_source"))["moved"]
    sentence = (
        f"From {source} to {target}, on the classes that both have, the AUROC of "
        f"{counted(known.height, 'ranked encoder')} changes by {_mean(moved)} on average "
        f"({change(_low(moved))} to {change(_high(moved))})"
    )
    stated = known.drop_nulls(["ece_target", "ece_null_target"])
    if stated.height:
        beyond = int((stated["ece_target"] > stated["ece_null_target"]).sum())
        sentence += f"; the ECE there is beyond its null band for {beyond} of {stated.height}"
    return f"{sentence}. {_order(predictors.filter(pl.col('source') == source))}"


def _order(predictors: pl.DataFrame) -> str:
    known = predictors.drop_nulls("rho")
    if known.is_empty():
        return "Whether the order of encoders transfers could not be estimated."
    row = known.row(0, named=True)
    if row["lower"] is None:
        return f"Order by AUROC: Spearman {change(row['rho'])} over {row['n']} encoders, without an interval."
    held = "transfers" if row["lower"] > 0 else "is not shown to transfer"
    return (
        f"The order of encoders by AUROC {held}: Spearman {change(row['rho'])} "
        f"[{change(row['lower'])}, {change(row['upper'])}] over {row['n']} encoders."
    )


def _mean(values: pl.Series) -> str:
    return change(float(values.to_numpy().mean()))


def _low(values: pl.Series) -> float:
    return float(values.to_numpy().min())


def _high(values: pl.Series) -> float:
    return float(values.to_numpy().max())
