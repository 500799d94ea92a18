"""The published ranking against rankings under other choices of the protocol, each a row of agreement."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.agreement import COMPARISON_SCHEMA, as_pair, compare
from crs_assets.science.analyses.axis_variants import VARIANTS, variant_profiles
from crs_assets.science.analyses.cells import mean_over, oriented
from crs_assets.science.analyses.dominance_margin import margin_dominance, score_with_dominance
from crs_assets.science.analyses.penalty_choices import ALL_VALIDATION, PENALTY, choice_profiles
from crs_assets.science.analyses.rescoring import Profiles, chosen, mean_scores
from crs_assets.science.analyses.sensitivity import moved_anchors, scores_with_anchors
from crs_assets.science.analyses.uncertainty import CENTRED, panel_peers
from crs_assets.science.panel import PanelError
from crs_assets.science.protocol import AXES, AxisType, Protocol
from crs_assets.stages.analyses.penalty_axes import PenaltyAxes, read_penalty_axes
from crs_assets.stages.analyses.published import Published, read_profiles
from crs_assets.stages.analyses.replicated_cells import ReplicatedCells
from crs_assets.stages.analyses.suite_analysis import read_all_runs, whole_cells
from crs_assets.stages.scores import AxisProfile

CRS = "crs"
READING, DOMINANCE, AXIS, ANCHOR = "reading", "dominance", "axis", "anchor"
MARGIN = "better or worse beyond the paired case interval"
NAMED = 5
"""Cells that a reason names; the others are counted."""
# Above chance, discrimination and calibration are what they are.
_OF_TWO_FORMS: tuple[AxisType, ...] = ("label_efficiency", "robustness")

VARIANT_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("kind", "variant", "quantity"), pl.Utf8),
    "max_change": pl.Float64,
    **COMPARISON_SCHEMA,
}
Row = dict[str, Any]


def score_variants(bench: Bench, published: Published) -> pl.DataFrame:
    """Every comparison with the published ranking over the common data sets.

    Returns:
        Rows of ``VARIANT_SCHEMA``: ``kind`` of choice, ``variant``, the ``quantity`` that ranks (``crs`` or an axis),
        the largest change of any encoder's value, and the agreement, or the ``reason`` why there is none.
    """
    return pl.DataFrame(list(_Variants(bench, published).rows()), schema=VARIANT_SCHEMA)


class _Variants:
    def __init__(self, bench: Bench, published: Published) -> None:
        self._bench, self._published = bench, published
        self._reading = bench.suite.protocol
        self._ranked = published.ranked(self._reading.id)
        self._members: Profiles = published.panel["encoders"]

    def rows(self) -> Iterator[Row]:
        yield from self._readings()
        yield self._margin()
        yield from self._axes()
        yield from self._anchors()
        yield from self._penalties()

    def _readings(self) -> Iterator[Row]:
        """Each further reading: the score, and the axes that it takes in another form."""
        for other in self._bench.suite.readings[1:]:
            yield self._score_row(READING, other.id, self._published.scores(other.id))
            cells = self._cells(other)
            for axis in _OF_TWO_FORMS:
                yield self._axis_row(READING, other.id, axis, self._axis_means(cells, axis, other))

    def _margin(self) -> Row:
        """Dominance by what test patients can tell apart."""
        needed = {*self._ranked, *self._members}
        cells = ReplicatedCells(self._bench, sorted(needed))
        if lacking := self._without_replicates(cells):
            what = "resampled axes, or other ones than the panel was frozen with, of"
            return self._reason_row(
                DOMINANCE, MARGIN, f"no {what} {_named(lacking)}; make them: {self._command('report')}"
            )
        terms = {
            (row["encoder"], row["dataset"]): (row["closeness"], row["worst_axis"])
            for row in self._cells(self._reading).iter_rows(named=True)
        }
        scores = {}
        for encoder in self._ranked:
            shares = [self._margin_share(cells, encoder, dataset) for dataset in self._published.common]
            known = [share for share in shares if share is not None]
            if len(known) == len(shares):
                own = [terms[encoder, dataset] for dataset in self._published.common]
                over = zip(known, own, strict=True)
                scores[encoder] = float(
                    np.mean([score_with_dominance(share, *rest, self._reading.score) for share, rest in over])
                )
        return self._score_row(DOMINANCE, MARGIN, scores)

    def _margin_share(self, cells: ReplicatedCells, encoder: str, dataset: str) -> float | None:
        mine, *peers = (
            cells.normalized_replicates(name, dataset, self._reading, CENTRED)
            for name in (encoder, *self._peers(cells, encoder, dataset))
        )
        return margin_dominance(mine, peers, level=self._reading.statistics.interval)

    def _peers(self, cells: ReplicatedCells, encoder: str, dataset: str) -> Mapping[str, Any]:
        weights = cells.profiles[encoder]["weights"]
        return panel_peers(self._published.panel, self._reading.id, encoder=encoder, weights=weights, dataset=dataset)

    def _without_replicates(self, cells: ReplicatedCells) -> list[str]:
        """Cells whose resampled axes are needed for the margin and are not there, or not those of the panel."""
        lacking = set()
        for encoder in self._ranked:
            for dataset in self._published.common:
                if not cells.has_replicates(encoder, dataset):
                    lacking.add(f"{encoder}/{dataset}")
                for peer, z in self._peers(cells, encoder, dataset).items():
                    weights = self._members[peer]["weights"]
                    is_same = cells.is_published(peer, dataset, self._reading, z, weights)
                    if not is_same or not cells.has_replicates(peer, dataset):
                        lacking.add(f"{peer}/{dataset}")
        return sorted(lacking)

    def _axes(self) -> Iterator[Row]:
        """One axis measured another way, in the encoders and the panel alike."""
        cells = self._profiled(whole_cells(self._bench))
        if missing := self._missing(cells):
            reason = f"the store lacks runs of panel members: {_named(missing)}; run them: {self._command('run')}"
            for variant in VARIANTS:
                yield self._reason_row(AXIS, variant.name, reason)
            return
        weights = self._weights(cells)
        runs = read_all_runs(self._bench).filter(pl.col("encoder").is_in(list(weights)))
        for variant in VARIANTS:
            profiles = variant_profiles(runs, weights, self._reading, variant)
            yield from self._under(AXIS, variant.name, profiles, (variant.axis,) if variant.axis else ())

    def _penalties(self) -> Iterator[Row]:
        """The penalty chosen another way, in the encoders and the panel alike."""
        cells = self._profiled(whole_cells(self._bench, PenaltyAxes()))
        if missing := self._missing(cells):
            reason = f"the store lacks penalty_axes of panel members: {_named(missing)}"
            yield self._reason_row(PENALTY, ALL_VALIDATION, f"{reason}; make them: {self._command('report')}")
            return
        axes = pl.concat(
            read_penalty_axes(self._bench, encoder, task)
            for encoder, datasets in cells.items()
            for tasks in datasets.values()
            for task in tasks
        )
        for name, profiles in choice_profiles(axes, self._weights(cells), self._reading).items():
            yield from self._under(PENALTY, name, profiles, AXES)

    def _anchors(self) -> Iterator[Row]:
        """One anchor moved, for the encoders and the panel alike."""
        change = self._reading.analyses.sensitivity.anchor_change
        profiles = read_profiles(self._bench, self._ranked)
        for name, axis, anchors in moved_anchors(self._reading.axes.anchors, change):
            scores = scores_with_anchors(profiles, self._members, self._reading, anchors, self._published.common)
            yield self._score_row(ANCHOR, f"{axis}: {name}", scores)

    def _under(self, kind: str, variant: str, profiles: Profiles, axes: Sequence[AxisType]) -> Iterator[Row]:
        """The score under other profiles, and the rankings by some of their axes."""
        own = chosen(profiles, [name for name in self._ranked if name in profiles])
        try:
            scores = mean_scores(own, chosen(profiles, self._members), self._reading, self._published.common)
        except PanelError:
            yield self._reason_row(kind, variant, "an encoder has no peer left that has all four axes")
        else:
            yield self._score_row(kind, variant, scores)
        cells = _raw_cells(own, self._reading)
        for axis in axes:
            yield self._axis_row(kind, variant, axis, self._axis_means(cells, axis, self._reading))

    def _profiled(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """Those of encoders that have a profile, and with it a fingerprint of their weights."""
        return {name: entry for name, entry in cells.items() if AxisProfile().version(self._bench, name)}

    def _missing(self, cells: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Cells of the panel that are not among these."""
        return sorted(
            f"{name}/{dataset}"
            for name, entry in self._members.items()
            for dataset in entry["datasets"]
            if dataset not in cells.get(name, {})
        )

    def _weights(self, cells: Mapping[str, Any]) -> dict[str, str]:
        profiles = read_profiles(self._bench, list(cells))
        return {name: entry["weights"] for name, entry in profiles.items()}

    def _cells(self, reading: Protocol) -> pl.DataFrame:
        return self._published.cells.filter(pl.col("reading") == reading.id)

    def _axis_means(self, cells: pl.DataFrame, axis: AxisType, reading: Protocol) -> dict[str, float]:
        """Encoder -> mean of an axis over the common data sets, higher is better."""
        means = mean_over(cells, self._published.common, (axis,))
        return dict(means.select("encoder", oriented(axis, reading)).iter_rows())

    def _axis_row(self, kind: str, variant: str, axis: AxisType, after: Mapping[str, float]) -> Row:
        before = self._axis_means(self._cells(self._reading), axis, self._reading)
        return {"kind": kind, "variant": variant, "quantity": axis, **self._compared(before, after)}

    def _score_row(self, kind: str, variant: str, scores: Mapping[str, float]) -> Row:
        compared = self._compared(self._published.scores(self._reading.id), scores)
        return {"kind": kind, "variant": variant, "quantity": CRS, **compared}

    def _reason_row(self, kind: str, variant: str, reason: str) -> Row:
        return {"kind": kind, "variant": variant, "quantity": CRS, "n": 0, "reason": reason}

    def _command(self, name: str) -> str:
        """The cure; it is published with the table, so under the suite's id, wherever its file lies."""
        return f"crs {name} --suite {self._bench.suite.id}"

    def _compared(self, before: Mapping[str, float], after: Mapping[str, float]) -> Row:
        pair = as_pair(before, after)
        change = pair.select((pl.col("a") - pl.col("b")).abs().max()).item()
        return {"max_change": change, **compare(pair, top_k=self._reading.analyses.ranking.top_k)}


def _raw_cells(profiles: Profiles, reading: Protocol) -> pl.DataFrame:
    """Raw axes of each cell."""
    rows = [
        {"encoder": encoder, "dataset": dataset, **cell[reading.id]["raw"]}
        for encoder, entry in profiles.items()
        for dataset, cell in entry["datasets"].items()
    ]
    return pl.DataFrame(rows, schema={"encoder": pl.Utf8, "dataset": pl.Utf8, **dict.fromkeys(AXES, pl.Float64)})


def _named(cells: Sequence[str]) -> str:
    more = len(cells) - NAMED
    return ", ".join([*cells[:NAMED], *([f"and {more} more"] if more > 0 else [])])


__all__ = ["VARIANT_SCHEMA", "score_variants"]
