"""Whether CRS, or plain AUROC, tells how encoders fare elsewhere: at a transfer target, on a data set held out."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from crs_assets.science.analyses.cells import mean_over
from crs_assets.science.analyses.correlation import (
    MIN_PAIRS,
    Correlation,
    interval,
    pair_draws,
    resampled_spearman,
    spearman,
)
from crs_assets.science.analyses.welch import welch_test
from crs_assets.science.protocol import TRANSFER, Protocol
from crs_assets.science.seeding import generator
from crs_assets.science.validation import IntArray

AT_TARGET = "transfer"
HELD_OUT = "held-out data set"
CRS_PREDICTORS = ("CRS of the source without transfer", "mean CRS without transfer")
AUROC_PREDICTORS = ("AUROC of the source", "mean AUROC")
HELD_OUT_PREDICTORS = ("mean CRS of the others", "mean AUROC of the others")
AUROC_FOR = {
    **dict(zip(CRS_PREDICTORS, AUROC_PREDICTORS, strict=True)),
    HELD_OUT_PREDICTORS[0]: HELD_OUT_PREDICTORS[1],
}
"""Predictor by CRS -> the one by AUROC that it is measured against."""

GENERALIST = "generalist"
MEDICAL = "broad-medical + specialist"
MATCHED = "organ-matched specialist"
UNMATCHED = "medical, not organ-matched"

PREDICTOR_SCHEMA: dict[str, Any] = {
    "question": pl.Utf8,
    "source": pl.Utf8,
    "target": pl.Utf8,
    "predictor": pl.Utf8,
    "n": pl.Int64,
    "rho": pl.Float64,
    "lower": pl.Float64,
    "upper": pl.Float64,
    "replicates": pl.Int64,
    **dict.fromkeys(("minus_auroc_lower", "minus_auroc_upper"), pl.Float64),
    "winner_recovered": pl.Boolean,
    "is_winner_tied": pl.Boolean,
    "reason": pl.Utf8,
}
GROUP_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("source", "target", "group", "against"), pl.Utf8),
    **dict.fromkeys(("n", "n_against"), pl.Int64),
    **dict.fromkeys(
        ("mean", "mean_against", "difference", "lower", "upper", "t", "degrees_of_freedom", "p_value"), pl.Float64
    ),
    "reason": pl.Utf8,
}


def transfer_auroc(runs: pl.DataFrame, *, full_fraction: float) -> pl.DataFrame:
    """Macro-AUROC of each encoder at the target of each source: mean over seeds, all training labels.

    Args:
        runs: Run metrics of every seed: ``encoder``, ``dataset``, ``seed``, ``fraction``, ``condition``, ``auroc``,
            ``converged``.
        full_fraction: The label fraction that stands for all labels.

    Returns:
        ``dataset`` (the source), ``encoder``, ``target_auroc``, sorted; null where a seed is not estimable or did not
        converge. AUROC is over the classes that source and target share.
    """
    at_target = runs.filter((pl.col("condition") == TRANSFER) & (pl.col("fraction") == full_fraction))
    usable = pl.when(pl.col("converged") & pl.col("auroc").is_finite()).then(pl.col("auroc"))
    return (
        at_target.sort("dataset", "encoder", "seed")
        .group_by("dataset", "encoder", maintain_order=True)
        .agg(pl.when(usable.is_not_null().all()).then(usable.mean()).alias("target_auroc"))
    )


def predict_transfer(
    cells: pl.DataFrame,
    transfer: pl.DataFrame,
    *,
    source: str,
    target: str,
    common: Sequence[str],
    protocol: Protocol,
) -> pl.DataFrame:
    """Rank correlation of four predictors with the AUROC at a target, over the same encoders.

    Args:
        cells: Ranked encoders under one reading: ``encoder``, ``dataset``, ``crs``, ``crs_without_transfer``,
            ``discrimination``.
        transfer: From ``transfer_auroc``.
        source: Data set that the probes were fitted on.
        target: Its target.
        common: Data sets that the aggregates are means over.
        protocol: Replicates and level of the interval over encoders, and the salt of their draw.

    Returns:
        One row per predictor (``PREDICTOR_SCHEMA``).
    """
    names = (*CRS_PREDICTORS, *AUROC_PREDICTORS)
    columns = ("crs_without_transfer", "discrimination")
    here = mean_over(cells, [source], columns).select(
        "encoder", pl.col(columns[0]).alias(names[0]), pl.col(columns[1]).alias(names[2])
    )
    everywhere = mean_over(cells, common, columns).select(
        "encoder", pl.col(columns[0]).alias(names[1]), pl.col(columns[1]).alias(names[3])
    )
    outcome = transfer.filter(pl.col("dataset") == source).select("encoder", outcome="target_auroc")
    table = outcome.join(here, on="encoder").join(everywhere, on="encoder")
    return _predictors(table, names, protocol, question=AT_TARGET, source=source, target=target)


def no_target() -> pl.DataFrame:
    """The rows of a suite none of whose data sets has a transfer target: nothing but the reason."""
    names = (*CRS_PREDICTORS, *AUROC_PREDICTORS)
    return _nothing(names, "no data set of the suite has a transfer target", question=AT_TARGET)


def leave_one_out(cells: pl.DataFrame, *, datasets: Sequence[str], protocol: Protocol) -> pl.DataFrame:
    """Rank correlation of the mean CRS, and mean AUROC, of all other data sets with the AUROC of the one held out.

    Args:
        cells: Ranked encoders under one reading: ``encoder``, ``dataset``, ``crs``, ``discrimination``.
        datasets: Data sets that can rank encoders; only encoders that have them all count.
        protocol: Replicates and level of the interval over encoders, and the salt of their draw.

    Returns:
        Two rows per data set (``PREDICTOR_SCHEMA``).
    """
    if len(datasets) < 2:
        reason = f"{len(datasets)} data set(s) can rank encoders, two are needed"
        return _nothing(HELD_OUT_PREDICTORS, reason, question=HELD_OUT, target=next(iter(datasets), None))
    whole = mean_over(cells, datasets, ("crs", "discrimination")).select("encoder")
    tables = [pl.DataFrame(schema=PREDICTOR_SCHEMA)]
    for held_out in datasets:
        others = [name for name in datasets if name != held_out]
        outcome = mean_over(cells, [held_out], ("discrimination",)).select("encoder", outcome="discrimination")
        known = mean_over(cells, others, ("crs", "discrimination")).select(
            "encoder",
            *(pl.col(c).alias(n) for c, n in zip(("crs", "discrimination"), HELD_OUT_PREDICTORS, strict=True)),
        )
        table = whole.join(outcome, on="encoder").join(known, on="encoder")
        tables.append(_predictors(table, HELD_OUT_PREDICTORS, protocol, question=HELD_OUT, target=held_out))
    return pl.concat(tables)


def compare_families(
    transfer: pl.DataFrame,
    families: Mapping[str, str],
    specialties: Mapping[str, str | None],
    *,
    source: str,
    target: str,
    organ: str,
    level: float,
) -> pl.DataFrame:
    """Welch's test of the AUROC at a target, groups of medically trained encoders against the generalists.

    Args:
        transfer: From ``transfer_auroc``: every encoder that has the cell, ranked or not.
        families: Encoder -> ``generalist``, ``broad-medical`` or ``specialist``.
        specialties: Encoder -> specialty of a specialist.
        source: Data set that the probes were fitted on.
        target: Its target.
        organ: Specialty of the source: what an organ-matched specialist was trained for.
        level: Coverage of the interval of the difference.

    Returns:
        One row per group (``GROUP_SCHEMA``).
    """
    known = transfer.filter((pl.col("dataset") == source) & pl.col("target_auroc").is_not_null())
    values = dict(known.select("encoder", "target_auroc").sort("encoder").iter_rows())
    medical = [name for name in values if families[name] != GENERALIST]
    matched = [name for name in medical if specialties[name] == organ]
    groups = {MEDICAL: medical, MATCHED: matched, UNMATCHED: [name for name in medical if name not in matched]}
    generalists = [values[name] for name in values if families[name] == GENERALIST]
    rows = [
        {
            "source": source,
            "target": target,
            "group": group,
            "against": GENERALIST,
            **vars(welch_test([values[name] for name in members], generalists, level=level)),
        }
        for group, members in groups.items()
    ]
    return pl.DataFrame(rows, schema=GROUP_SCHEMA)


def _predictors(
    table: pl.DataFrame, names: Sequence[str], protocol: Protocol, *, target: str, **key: str
) -> pl.DataFrame:
    known = table.drop_nulls().sort("encoder")
    n, statistics = known.height, protocol.statistics
    draws = None
    if n >= MIN_PAIRS:
        draws = pair_draws(n, statistics.replicates, generator(protocol.salt, "encoder_bootstrap", target))
    rows = []
    for name in names:
        found = spearman(known[name], known["outcome"], draws=draws, level=statistics.interval)
        row = {**key, "target": target, "predictor": name, **_fields(found), **_winner(known, name)}
        if name in AUROC_FOR and draws is not None:
            row |= _minus_auroc(known, name, draws, statistics.interval)
        rows.append(row)
    return pl.DataFrame(rows, schema=PREDICTOR_SCHEMA)


def _minus_auroc(known: pl.DataFrame, name: str, draws: IntArray, level: float) -> dict[str, float | None]:
    """Interval of the rho of CRS minus that of AUROC, under the same resamples."""
    crs, auroc = (resampled_spearman(known[x], known["outcome"], draws) for x in (name, AUROC_FOR[name]))
    lower, upper, _ = interval(crs - auroc, level=level)
    return {"minus_auroc_lower": lower, "minus_auroc_upper": upper}


def _nothing(names: Sequence[str], reason: str, **key: str | None) -> pl.DataFrame:
    """A row per predictor that holds nothing but why there is no number."""
    return pl.DataFrame(
        [{**key, "predictor": name, "n": 0, "reason": reason} for name in names], schema=PREDICTOR_SCHEMA
    )


def _fields(found: Correlation) -> dict[str, Any]:
    fields = dict(vars(found))
    return {"rho": fields.pop("value"), **fields}


def _winner(known: pl.DataFrame, name: str) -> dict[str, bool | None]:
    """Whether the first by a predictor is the first by the outcome; ties at the top are broken by id, and flagged."""
    if known.height < MIN_PAIRS:
        return {"winner_recovered": None, "is_winner_tied": None}
    first = [known.sort(column, "encoder", descending=[True, False])["encoder"][0] for column in (name, "outcome")]
    tied = any(known[column].to_list().count(known[column].max()) > 1 for column in (name, "outcome"))
    return {"winner_recovered": first[0] == first[1], "is_winner_tied": tied}
