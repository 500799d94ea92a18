"""Predictions with subgroup columns for tests, and how their tables are read."""

import numpy as np
import polars as pl
from sklearn.metrics import roc_auc_score

from crs_assets.science.analyses.subgroup_axes import SubgroupRuns
from crs_assets.science.analyses.subgroup_columns import subgroup_columns
from crs_assets.science.evaluation import Scored
from crs_assets.science.protocol import load_protocol

EDGES = (0.0, 40.0, 65.0)


def with_settings(**settings):
    protocol = load_protocol("crs-v1")
    subgroups = protocol.analyses.subgroups.model_copy(update=settings)
    return protocol.model_copy(update={"analyses": protocol.analyses.model_copy(update={"subgroups": subgroups})})


def softmax(logits):
    exponents = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exponents / exponents.sum(axis=1, keepdims=True)


def columns_of(**values):
    return subgroup_columns(pl.DataFrame({f"sub:{name}": cells for name, cells in values.items()}), EDGES)


def skin(n=240, classes=3, seed=0, **columns):
    """A softmax problem: two images per patient, better under more labels, worse under degradation."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, n)
    signal = np.eye(classes)[labels]

    def scored(strength):
        return Scored(labels, (strength * signal + rng.normal(size=(n, classes))).astype(np.float32), range(classes))

    cells = columns or {"sex": rng.choice(["female", "male"], n, p=[0.3, 0.7])}
    return SubgroupRuns(
        task="multiclass",
        group_ids=np.array([f"p{image // 2:03d}" for image in range(n)]),
        columns=columns_of(**cells),
        curve={0.1: scored(0.8), 0.5: scored(1.5), 1.0: scored(2.0)},
        degraded={"jpeg-1": scored(1.8), "jpeg-3": scored(0.9)},
    )


def chest(n=200, seed=1, **columns):
    """A multilabel problem with unobserved cells, one image per patient."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, 2)) < (0.4, 0.2)).astype(np.float32)

    def scored(strength):
        return Scored(labels, (strength * labels + rng.normal(size=(n, 2)) - 1).astype(np.float32), range(2))

    curve = {0.5: scored(1.0), 1.0: scored(2.0)}
    degraded = {"contrast-3": scored(0.5)}
    labels[rng.random((n, 2)) < 0.1] = np.nan
    cells = columns or {"view": rng.choice(["AP", "PA"], n)}
    return SubgroupRuns("multilabel", np.array([f"q{i}" for i in range(n)]), columns_of(**cells), curve, degraded)


def value(tables, group, axis, what="value"):
    return tables.groups.filter((pl.col("group") == group) & (pl.col("axis") == axis))[what].item()


def gap(tables, axis, basis="own"):
    chosen = pl.col("basis").is_null() if axis == "calibration" else pl.col("basis") == basis
    return tables.gaps.filter((pl.col("axis") == axis) & chosen).row(0, named=True)


def reference_auroc(run, rows, classes):
    truth, scores = run.labels[rows], np.log(softmax(run.logits[rows].astype(np.float64)))
    return np.mean([roc_auc_score(truth == k, scores[:, k]) for k in classes])
