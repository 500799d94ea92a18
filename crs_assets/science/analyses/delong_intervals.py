"""DeLong's intervals of single labels, beside the bootstrap, where a test set has one image per patient or lesion."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from crs_assets.science.analyses.replicated_metrics import ResampledRun
from crs_assets.science.analyses.resampling import binary_columns
from crs_assets.science.evaluation import class_scores
from crs_assets.science.statistics import delong_variance

_LEAST_CASES = 2


def delong_intervals(run: ResampledRun, names: Sequence[str], *, level: float) -> list[dict[str, Any]]:
    """AUROC of each scored class with DeLong's standard error and normal interval, cut to [0, 1].

    Only where the method holds: at most one observed image per group, and two cases of either sign.

    Args:
        run: Predictions of one run.
        names: Class names, in the order of the run's classes.
        level: Coverage, for example 0.95.

    Returns:
        Rows ``class``, ``auroc``, ``standard_error``, ``low``, ``high``; none for a class to which it does not apply.
    """
    if run.task != "multilabel" and not np.isfinite(run.scored.logits).all():
        return []
    columns = binary_columns(run.scored.labels, class_scores(run.scored.logits, run.task))
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    rows = []
    for k in run.scored.classes:
        positive, score = columns.column(k)
        groups = run.groups[columns.observed[:, k]]
        cases = min(int(positive.sum()), int((~positive).sum()))
        if cases < _LEAST_CASES or len(np.unique(groups)) < len(groups) or not np.isfinite(score).all():
            continue
        auroc, variance = delong_variance(positive, score)
        error = float(np.sqrt(variance))
        rows.append(
            {
                "class": names[k],
                "auroc": auroc,
                "standard_error": error,
                "low": max(0.0, auroc - quantile * error),
                "high": min(1.0, auroc + quantile * error),
            }
        )
    return rows
