"""The axes had the penalty been chosen another way: one for all labels and fractions, or on all of validation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science import metrics
from crs_assets.science.analyses.axis_variants import AS_PUBLISHED
from crs_assets.science.analyses.replicated_axes import raw_axes
from crs_assets.science.analyses.replicated_metrics import SeedMetrics
from crs_assets.science.evaluation import Scored, probabilities
from crs_assets.science.labels import fit_labels
from crs_assets.science.probes import LinearPath
from crs_assets.science.probes.path import path_logits
from crs_assets.science.probes.standardisation import row_blocks
from crs_assets.science.probing import ProbeTask, choose_lambda
from crs_assets.science.protocol import AXES, Protocol
from crs_assets.science.scoring import normalize
from crs_assets.science.splits import VALIDATION
from crs_assets.science.validation import BoolArray, IntArray

PUBLISHED = AS_PUBLISHED.name
ALL_VALIDATION = "chosen on all of validation"
PENALTY = "penalty"
"""What was chosen another way, in tables that hold other choices too."""

AXES_SCHEMA: dict[str, Any] = {
    "reading": pl.Utf8,
    "penalty": pl.Utf8,
    "converged": pl.Boolean,
    **dict.fromkeys(AXES, pl.Float64),
}


@dataclass(frozen=True, eq=False)
class PenaltyChoices:
    """Ways to choose the penalty of every problem at every label fraction.

    Attributes:
        names: (V,) ``as published`` (each problem on the validation subset of its fraction), ``chosen on all of
            validation``, then ``lambda ...`` for each of the grid: that one throughout.
        index: int64 (V, S, L), position in the grid.
    """

    names: tuple[str, ...]
    index: IntArray

    def logits(self, path: LinearPath, features: NDArray[np.float32], sample_set: int) -> Iterator[NDArray[np.float32]]:
        """Logits (n, C) float32 of one label fraction's probes under each choice, in order.

        Args:
            path: Fitted probes.
            features: (n, d) as stored.
            sample_set: Position of the label fraction.
        """
        blocks = row_blocks(np.arange(len(features)))
        grid = np.concatenate([path_logits(path, features, rows, sample_set).astype(np.float32) for rows in blocks])
        classes = np.arange(grid.shape[2])
        for index in self.index[:, sample_set]:
            # A softmax has one penalty for all classes.
            yield grid[:, np.broadcast_to(index, classes.shape), classes]

    def converged(self, path: LinearPath, problems: Sequence[int]) -> BoolArray:
        """Whether every fit of these problems met the gap at every label fraction, bool (V,)."""
        chosen = self.index[:, :, problems]
        sets = np.arange(chosen.shape[1])[:, None]
        met: BoolArray = path.converged[sets, chosen, np.asarray(problems)].all(axis=(1, 2))
        return met


def penalty_choices(path: LinearPath, task: ProbeTask, protocol: Protocol) -> PenaltyChoices:
    """Every way to choose; the test split is not looked at.

    Args:
        path: Probes fitted on the task at the protocol's label fractions.
        task: What they were fitted on.
        protocol: Label fractions, penalty grid, label policy.
    """
    labels = fit_labels(task.index, task.space, protocol.data.uncertain_labels)
    fractions = protocol.data.fractions

    def chosen(subsets: Sequence[float]) -> list[IntArray]:
        return [
            choose_lambda(path, task, labels, task.rows(VALIDATION, subset), position, protocol.probe).index
            for position, subset in enumerate(subsets)
        ]

    by_validation = np.stack([chosen(fractions), chosen([fractions[-1]] * len(fractions))])
    sets, penalties, problems = path.objective.shape
    fixed = np.broadcast_to(np.arange(penalties)[:, None, None], (penalties, sets, problems))
    return PenaltyChoices(
        names=(PUBLISHED, ALL_VALIDATION, *(f"lambda {value:.3g}" for value in path.lambdas)),
        index=np.concatenate([by_validation, fixed]),
    )


def calibration_error(run: Scored, task: str, n_bins: int) -> float:
    """Expected calibration error as the axis has it, in [0, 1], lower is better; NaN where no probe was fitted.

    Args:
        run: Predictions of one run.
        task: ``multiclass``, ``ordinal`` or ``multilabel``.
        n_bins: Number of equal-width bins.
    """
    fitted = np.asarray(np.isfinite(run.logits).all(axis=0))
    chosen = [k for k in run.classes if (fitted[k] if task == "multilabel" else fitted.all())]
    if not chosen:
        return float("nan")
    stated = probabilities(run.logits, task)
    if task == "multilabel":
        return metrics.multilabel_expected_calibration_error(run.labels[:, chosen], stated[:, chosen], n_bins=n_bins)
    return metrics.expected_calibration_error(run.labels, stated, n_bins=n_bins)


def choice_axes(
    found: SeedMetrics,
    names: Sequence[str],
    converged: BoolArray,
    readings: Sequence[Protocol],
    *,
    distinct_fractions: bool,
) -> pl.DataFrame:
    """The raw axes of one cell and seed under each choice.

    Args:
        found: Metrics under each choice, one row each.
        names: Names of the choices.
        converged: Whether every fit behind a choice met the gap; one that did not gives no axis value.
        readings: Forms of the axes.
        distinct_fractions: False where two label fractions came to the same images.

    Returns:
        One row per reading and choice (``AXES_SCHEMA``); null where not estimable.
    """
    tables = []
    for reading in readings:
        axes = raw_axes(found, reading, distinct_fractions=distinct_fractions)
        known = np.where(converged[:, None], axes, np.nan)
        columns = {"reading": [reading.id] * len(names), "penalty": list(names), "converged": converged}
        values = dict(zip(AXES, known.T, strict=True))
        tables.append(pl.DataFrame({**columns, **values}, schema=AXES_SCHEMA).with_columns(pl.col(AXES).fill_nan(None)))
    return pl.concat(tables)


def choice_profiles(axes: pl.DataFrame, weights: Mapping[str, str], reading: Protocol) -> dict[str, dict[str, Any]]:
    """Profiles of every encoder under each choice, in the form of a panel's ``encoders``.

    Args:
        axes: Rows of ``choice_axes`` of every seed of whole cells, with ``encoder``, ``dataset`` and ``seed``.
        weights: Encoder -> fingerprint of its weights.
        reading: Whose axes and anchors.

    Returns:
        Choice -> encoder -> ``weights`` and ``datasets``; a cell that lacks an axis on a seed is left out.
    """
    ordered = axes.filter(pl.col("reading") == reading.id).sort("encoder", "dataset", "seed")
    found: dict[str, dict[str, Any]] = {
        name: {encoder: {"weights": mark, "datasets": {}} for encoder, mark in sorted(weights.items())}
        for name in axes["penalty"].unique(maintain_order=True)
    }
    for (name, encoder, dataset), rows in ordered.group_by("penalty", "encoder", "dataset", maintain_order=True):
        if not any(rows.select(AXES).null_count().row(0)):
            cell = _profile(rows.select(AXES).mean().row(0), reading)
            found[str(name)][str(encoder)]["datasets"][str(dataset)] = {reading.id: cell}
    return found


def _profile(raw: Sequence[float], reading: Protocol) -> dict[str, dict[str, float]]:
    z = normalize(raw, reading.axes.anchors, decimals=reading.axes.score_decimals)
    return {"raw": dict(zip(AXES, raw, strict=True)), "z": dict(zip(AXES, z.tolist(), strict=True))}
