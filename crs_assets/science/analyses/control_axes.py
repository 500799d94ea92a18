"""The four axes under the control probes: whether encoders rank alike whatever is fitted on their features."""

from collections.abc import Mapping

import numpy as np
import polars as pl

from crs_assets.science.profiles import seed_axes
from crs_assets.science.protocol import AXES, AxisType, Protocol

AXES_SCHEMA = {
    "encoder": pl.Utf8,
    "dataset": pl.Utf8,
    "probe": pl.Utf8,
    "axis": pl.Utf8,
    "value": pl.Float64,
}


def control_axes(runs: pl.DataFrame, protocol: Protocol, *, distinct_fractions: Mapping[int, bool]) -> pl.DataFrame:
    """Raw axes of one encoder on one data set, per probe: means over seeds, as for the linear probe.

    Nearest neighbours have no calibration axis: k votes give k + 1 levels, too few for the bins.

    Args:
        runs: Runs of the encoder on the data set over all seeds, any probes: ``encoder``, ``dataset``, ``probe``,
            ``seed`` and what ``seed_axes`` reads.
        protocol: The reading: which form the axes take.
        distinct_fractions: Per seed, False where two label fractions came to the same images.

    Returns:
        ``encoder``, ``dataset``, ``probe``, ``axis``, ``value``; probes in the order of the runs, axes in the
        protocol's. Null where an axis is not estimable on every seed, or a run that it rests on did not converge.

    Raises:
        ValueError: If the runs are of several encoders or data sets, or lack a run of the grid.
    """
    cells = runs.select("encoder", "dataset").unique()
    if cells.height != 1:
        raise ValueError(f"runs of {cells.height} cells, expected those of one encoder on one data set.")
    encoder, dataset = cells.row(0)
    rows = []
    for (probe,), of_probe in runs.group_by("probe", maintain_order=True):
        per_seed = [
            _seed_values(frame, protocol, distinct_fractions=distinct_fractions[int(str(seed))])
            for (seed,), frame in of_probe.group_by("seed", maintain_order=True)
        ]
        for axis in AXES:
            value = float(np.mean([values[axis] for values in per_seed]))
            finite = value if np.isfinite(value) else None
            rows.append({"encoder": encoder, "dataset": dataset, "probe": str(probe), "axis": axis, "value": finite})
    return pl.DataFrame(rows, schema=AXES_SCHEMA)


def _seed_values(runs: pl.DataFrame, protocol: Protocol, *, distinct_fractions: bool) -> dict[AxisType, float]:
    if not runs["converged"].all():
        return dict.fromkeys(AXES, float("nan"))
    estimable = runs.with_columns(pl.col("ece", "auroc", "auroc_source").fill_null(float("nan")))
    return seed_axes(estimable, protocol, distinct_fractions=distinct_fractions).raw
