"""What the ranking says, in words: who leads, what AUROC alone would have chosen, what must not be concluded.

Each function reads one table and says no more than it holds. A difference is called one only where its interval
excludes 0; everything else is said to be open.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from crs_assets.report.numbers import change, decimals, listed, percent, rank_text

# Quantity of the paired differences -> (name in a sentence, whether more is better).
AXIS_WORDS = {
    "auroc": ("AUROC", True),
    "ece": ("ECE", False),
    "label_efficiency": ("label efficiency", True),
    "robustness": ("AUROC drop", False),
}


@dataclass(frozen=True)
class Finding:
    """One question of the first page, and the sentences that answer it."""

    question: str
    answer: tuple[str, ...]


def leading_tier(verdict: Mapping[str, Any] | None, *, threshold: float, top_k: int) -> tuple[str, ...]:
    """Who is in the leading tier, and whether anyone has won.

    Args:
        verdict: ``top`` (encoder -> probability of the first k), ``tier``, ``leader``, ``winner``, ``inseparable``;
            None where nothing could be resampled.
        threshold: Probability of the first k that the tier's members have to have.
        top_k: The k.
    """
    if verdict is None:
        return ("Fewer than two encoders can be ranked under every resample: there is no leading tier to speak of.",)
    top: Mapping[str, float] = verdict["top"]
    if len(top) <= top_k:
        tier = f"Only {len(top)} encoders are ranked, so each is among the first {top_k}: the tier tells nothing."
    elif verdict["tier"]:
        members = listed([f"{name} ({percent(top[name])})" for name in verdict["tier"]])
        tier = f"Among the first {top_k} with a probability of at least {percent(threshold)}: {members}."
    else:
        best = max(sorted(top), key=lambda name: top[name])
        tier = (
            f"None is among the first {top_k} with a probability of {percent(threshold)}, so there is no leading tier; "
            f"the highest is that of {best} ({percent(top[best])})."
        )
    return tier, _winner(verdict)


def auroc_choice(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """What the ranking by AUROC alone would have put first, beside what CRS puts first.

    Args:
        rows: Ranked encoders: ``encoder``, ``rank``, ``rank_auroc``, ``discrimination``, ``crs``.
    """
    if len(rows) < 2:
        return ("Fewer than two encoders are ranked: there is nothing to choose between.",)
    by_auroc, by_crs = _first(rows, "rank_auroc"), _first(rows, "rank")
    if {row["encoder"] for row in by_auroc} == {row["encoder"] for row in by_crs}:
        return (f"The same as CRS puts first: {listed([row['encoder'] for row in by_crs])}.",)
    told = [
        f"{row['encoder']} (AUROC {decimals(row['discrimination'])}, {_place(row, 'rank')} by CRS)" for row in by_auroc
    ]
    instead = listed([f"{row['encoder']} ({_place(row, 'rank_auroc')} by AUROC)" for row in by_crs])
    return (f"{listed(told)}; CRS puts {instead} first. Both are point estimates.",)


def rivals(rows: Sequence[Mapping[str, Any]]) -> tuple[str, str] | None:
    """The two encoders whose gains and losses are told: first by CRS against first by AUROC, else against the second.

    Args:
        rows: Ranked encoders: ``encoder``, ``rank``, ``rank_auroc``; ties are broken by id.
    """
    if len(rows) < 2:
        return None
    by_crs = [row["encoder"] for row in sorted(rows, key=lambda row: (row["rank"], row["encoder"]))]
    by_auroc = min(rows, key=lambda row: (row["rank_auroc"], row["encoder"]))["encoder"]
    return by_crs[0], by_auroc if by_auroc != by_crs[0] else by_crs[1]


def gains_and_losses(differences: pl.DataFrame, encoder: str, other: str) -> tuple[str, ...]:
    """On which axes one encoder is better than another, worse, or not told apart.

    Args:
        differences: Paired differences over the common data sets, one row per pair and quantity: ``encoder``,
            ``other``, ``quantity``, ``difference``, ``low``, ``high``.
        encoder: Whose gains are told.
        other: Against whom.
    """
    found: dict[str, list[str]] = {"gains": [], "loses": [], "open": []}
    for quantity, (name, more_is_better) in AXIS_WORDS.items():
        entry = paired(differences, encoder, other, quantity)
        if entry is None:
            continue
        value, low, high = entry
        told = f"{name} {change(value)} [{change(low)}, {change(high)}]"
        if low <= 0 <= high or value * (low + high) <= 0:
            found["open"].append(told)
        else:
            found["gains" if (value > 0) == more_is_better else "loses"].append(told)
    if not any(found.values()):
        return (f"{encoder} and {other} have no paired difference.",)
    sentences = [
        f"Against {other}, {encoder} {verb} {listed(found[verb])}." for verb in ("gains", "loses") if found[verb]
    ]
    if found["open"]:
        sentences.append(f"{encoder} minus {other}, not told apart: {listed(found['open'])}.")
    return tuple(sentences)


def paired(differences: pl.DataFrame, encoder: str, other: str, quantity: str) -> tuple[float, float, float] | None:
    """Difference, lower and upper end of one pair, whichever way round it is stored; None where there is none."""
    for first, second, sign in ((encoder, other, 1.0), (other, encoder, -1.0)):
        rows = differences.filter(
            (pl.col("encoder") == first) & (pl.col("other") == second) & (pl.col("quantity") == quantity)
        ).drop_nulls(["difference", "low", "high"])
        if rows.height:
            row = rows.row(0, named=True)
            ends = sorted((sign * row["low"], sign * row["high"]))
            return sign * row["difference"], ends[0], ends[1]
    return None


def not_to_conclude(
    *, verdict: str, unrankable: Sequence[str], at_null: Sequence[str], phantom_warning: str, limits: Sequence[str]
) -> tuple[str, ...]:
    """What must not be read into the page.

    Args:
        verdict: Sentences of the external validity for this panel; empty where it was not analysed.
        unrankable: Data sets on which no encoder of the panel is above its null controls.
        at_null: ``encoder on data set`` of cells that are not above their null controls.
        phantom_warning: What is said where images are procedural phantoms; empty where none is.
        limits: What holds for every page.
    """
    sentences = [phantom_warning] if phantom_warning else []
    if unrankable:
        sentences.append(
            f"{listed(unrankable)} cannot rank encoders: no encoder of the panel is above its null controls there."
        )
    if at_null:
        sentences.append(f"Not above their null controls, so not shown to have learnt anything: {listed(at_null)}.")
    sentences.append(verdict or "Whether CRS tells how encoders fare elsewhere was not analysed for this panel.")
    return (*sentences, *limits)


def _winner(verdict: Mapping[str, Any]) -> str:
    if verdict["winner"]:
        return f"{verdict['winner']} is separable as the winner: its paired interval against every other excludes 0."
    others = listed(verdict["inseparable"])
    return (
        f"No winner is named: {verdict['leader']} has the highest mean CRS over the resamples, but its paired "
        f"interval against {others} holds 0."
    )


def _first(rows: Sequence[Mapping[str, Any]], rank: str) -> list[Mapping[str, Any]]:
    best = min(row[rank] for row in rows)
    return sorted((row for row in rows if row[rank] == best), key=lambda row: str(row["encoder"]))


def _place(row: Mapping[str, Any], rank: str) -> str:
    return f"rank {rank_text(row[rank])}"
