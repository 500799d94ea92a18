"""What the external validity comes to, in words made from the numbers."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from crs_assets.science.analyses.external_validity import (
    AT_TARGET,
    AUROC_PREDICTORS,
    CRS_PREDICTORS,
    HELD_OUT,
    HELD_OUT_PREDICTORS,
)

CLOSING = (
    "CRS is a comparative summary of one benchmark and no predictor of AUROC elsewhere "
    "(CRS-Bench, arXiv:2608.22059, found Spearman 0.529 for CRS and 0.864 for AUROC at MIMIC-CXR)."
)


def verdict(predictors: pl.DataFrame) -> str:
    """A sentence per transfer target, one on data sets held out, and what follows for the use of CRS.

    Args:
        predictors: Rows of ``predict_transfer`` and ``leave_one_out`` under one reading.
    """
    targets = predictors.filter(pl.col("question") == AT_TARGET)
    sentences = [_at_target(rows) for _, rows in targets.group_by("source", "target", maintain_order=True)]
    held_out = predictors.filter(pl.col("question") == HELD_OUT)
    return " ".join([*sentences, _held_out(held_out), CLOSING])


def _at_target(rows: pl.DataFrame) -> str:
    by_name = {row["predictor"]: row for row in rows.iter_rows(named=True)}
    crs, auroc = by_name[CRS_PREDICTORS[0]], by_name[AUROC_PREDICTORS[0]]
    if crs["target"] is None:
        return f"Transfer was not tested: {crs['reason']}."
    if crs["rho"] is None or auroc["rho"] is None:
        return f"How encoders fare at {crs['target']} was not predicted: {crs['reason'] or auroc['reason']}."
    return (
        f"At {crs['target']} (n = {crs['n']}), CRS of {crs['source']} without its transfer term ranks encoders as "
        f"their AUROC there does with Spearman {_with_interval(crs)}, the AUROC of {auroc['source']} with "
        f"{_with_interval(auroc)}: {_relation(crs, auroc['rho'])}."
    )


def _held_out(rows: pl.DataFrame) -> str:
    told = rows.drop_nulls("winner_recovered")
    if told.is_empty():
        return f"No data set could be held out: {rows['reason'][0]}."
    crs, auroc = (told.filter(pl.col("predictor") == name) for name in HELD_OUT_PREDICTORS)
    return (
        f"With each of {crs.height} data sets held out in turn, the winner there by AUROC was named by the mean CRS of "
        f"the others in {crs['winner_recovered'].sum()} of {crs.height}, by their mean AUROC in "
        f"{auroc['winner_recovered'].sum()} of {auroc.height} "
        f"(Spearman {_list(crs)} against {_list(auroc)})."
    )


def _with_interval(row: Mapping[str, Any]) -> str:
    interval = "" if row["lower"] is None else f" [{row['lower']:z.3f}, {row['upper']:z.3f}]"
    return f"{row['rho']:z.3f}{interval}"


def _relation(crs: Mapping[str, Any], auroc: float) -> str:
    """Which of the two is the better guide, as far as resampled encoders can tell."""
    lower, upper = crs["minus_auroc_lower"], crs["minus_auroc_upper"]
    if lower is not None and not lower <= 0 <= upper:
        return "CRS is the worse guide" if upper < 0 else "CRS is the better guide"
    seen = "CRS is no better a guide" if crs["rho"] <= auroc else "CRS has the higher correlation"
    interval = "has no interval" if lower is None else f"has the interval [{lower:z.3f}, {upper:z.3f}], which holds 0"
    return f"{seen}; the difference {interval}"


def _list(rows: pl.DataFrame) -> str:
    return " / ".join("not estimable" if rho is None else f"{rho:z.3f}" for rho in rows["rho"])
