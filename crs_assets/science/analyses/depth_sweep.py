"""Depth sweep: at which depth a linear probe is best, chosen on validation, beside the encoder's own features."""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science.labels import fit_labels
from crs_assets.science.probes import validation_log_loss
from crs_assets.science.probing import FittedProbe, ProbeTask
from crs_assets.science.protocol import Protocol
from crs_assets.science.splits import VALIDATION

FULL = 1.0
"""Share of the encoder's own features."""
_MEASURES = ("validation_log_loss", "auroc", "ece")
_GAIN_COLUMNS = (
    *("encoder", "dataset", "seeds", "auroc_own", "auroc_chosen", "auroc_gain"),
    *("ece_own", "ece_chosen", "ece_change", "shares_chosen"),
)


def chosen_log_loss(probe: FittedProbe, task: ProbeTask, protocol: Protocol) -> NDArray[np.float64]:
    """Validation log loss of each problem of a probe fitted at one label fraction, at the penalty chosen on it.

    Args:
        probe: Fitted at all labels only.
        task: What it was fitted on.
        protocol: Label policy.

    Returns:
        (L,) nats, lower is better: one per label, or the one of the softmax. NaN where a label was not fitted.
    """
    labels = fit_labels(task.index, task.space, protocol.data.uncertain_labels)
    losses = validation_log_loss(probe.path, task.features, labels, task.rows(VALIDATION), 0)
    index = probe.choices[0].index
    return losses[index, np.arange(len(index))]


def choose_depth(validation_log_losses: Sequence[float], converged: Sequence[bool]) -> int | None:
    """Position of the depth of least validation log loss; of equal ones the last, which is the deepest.

    Args:
        validation_log_losses: Nats, per depth; NaN where none can be stated.
        converged: Whether the depth's fits converged; one that did not is not chosen.

    Returns:
        None where no depth can be chosen.
    """
    losses = np.where(np.asarray(converged, dtype=bool), np.asarray(validation_log_losses, dtype=np.float64), np.nan)
    if np.isnan(losses).all():
        return None
    return int(np.flatnonzero(losses == np.nanmin(losses))[-1])


def cell_depths(rows: pl.DataFrame) -> pl.DataFrame:
    """Each depth of each cell: means over seeds, and how often validation chose it.

    Args:
        rows: Rows of the depth sweep, of any number of encoders, data sets and seeds.

    Returns:
        ``encoder``, ``dataset``, ``share``, ``block``, ``dim``, ``seeds``, ``validation_log_loss``, ``auroc``, ``ece``,
        ``times_chosen``; a mean is null where a seed's fit did not converge.
    """
    key = ("encoder", "dataset", "share", "block", "dim")
    return (
        rows.group_by(key, maintain_order=True)
        .agg(
            pl.col("seed").n_unique().cast(pl.Int64).alias("seeds"),
            *(_mean(name, pl.col("converged")).alias(name) for name in _MEASURES),
            pl.col("chosen").sum().cast(pl.Int64).alias("times_chosen"),
        )
        .sort("encoder", "dataset", "share")
    )


def depth_gains(rows: pl.DataFrame) -> pl.DataFrame:
    """What the chosen depth gains over the encoder's own features in each cell, on test.

    Args:
        rows: As for ``cell_depths``.

    Returns:
        ``encoder``, ``dataset``, ``seeds``, ``auroc_own``, ``auroc_chosen``, ``auroc_gain`` (higher is better),
        ``ece_own``, ``ece_chosen``, ``ece_change`` (lower is better), ``shares_chosen`` (one per seed, ascending).
        Means over seeds; null where a seed has no depth to choose, or the fit on its own features did not converge.
    """
    own = rows.filter(pl.col("share") == FULL).select("encoder", "dataset", "seed", "converged", "auroc", "ece")
    chosen = rows.filter("chosen").select("encoder", "dataset", "seed", "share", "auroc", "ece")
    pairs = own.join(chosen, on=("encoder", "dataset", "seed"), how="left", suffix="_chosen")
    complete = pl.col("converged") & pl.col("share").is_not_null()
    sides = {"auroc_own": "auroc", "auroc_chosen": "auroc_chosen", "ece_own": "ece", "ece_chosen": "ece_chosen"}
    return (
        pairs.group_by("encoder", "dataset", maintain_order=True)
        .agg(
            pl.col("seed").n_unique().cast(pl.Int64).alias("seeds"),
            *(_mean(column, complete).alias(name) for name, column in sides.items()),
            pl.col("share").drop_nulls().sort().alias("shares_chosen"),
        )
        .with_columns(
            auroc_gain=pl.col("auroc_chosen") - pl.col("auroc_own"), ece_change=pl.col("ece_chosen") - pl.col("ece_own")
        )
        .select(_GAIN_COLUMNS)
        .sort("encoder", "dataset")
    )


def _mean(column: str, usable: pl.Expr) -> pl.Expr:
    return pl.when(usable.all()).then(pl.col(column).mean())
