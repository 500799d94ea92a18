"""Axes under the control probes, from rows of runs that are written in the test."""

import numpy as np
import polars as pl
import pytest
from scipy.special import softmax
from sklearn import metrics as sk

from crs_assets.science.analyses.control_axes import control_axes
from crs_assets.science.evaluation import Scored, score
from crs_assets.science.probes.knn import SMALLEST_PROBABILITY
from crs_assets.science.protocol import load_protocol

RAW, SKILL = load_protocol("demo-v1"), load_protocol("demo-v1-skill")
CONDITIONS = [condition.name for condition in RAW.degradations()]
DISTINCT = {0: True, 1: True}


def runs(probe, seed=0, clean=(0.7, 0.8, 0.9), degraded=0.85, ece=0.05, converged=True):
    rows = [
        {
            "encoder": "e",
            "dataset": "d",
            "probe": probe,
            "seed": seed,
            "fraction": fraction,
            "condition": condition,
            "auroc": auroc if condition == "clean" else degraded,
            "ece": ece,
            "auroc_source": float("nan"),
            "converged": converged,
        }
        for fraction, auroc in zip(RAW.data.fractions, clean, strict=True)
        for condition in ("clean", *CONDITIONS)
    ]
    return pl.DataFrame(rows, schema_overrides={"ece": pl.Float64})


def values(table, probe):
    return dict(table.filter(pl.col("probe") == probe).select("axis", "value").iter_rows())


def test_axes_are_means_over_seeds_and_nearest_neighbours_have_no_calibration():
    table = control_axes(
        pl.concat(
            [
                runs("mlp", seed=1, clean=(0.6, 0.7, 0.8), degraded=0.7, ece=0.15),
                runs("mlp"),
                runs("knn", ece=None),
                runs("knn", seed=1, ece=None),
            ]
        ),
        RAW,
        distinct_fractions=DISTINCT,
    )
    assert table.schema == {
        "encoder": pl.Utf8,
        "dataset": pl.Utf8,
        "probe": pl.Utf8,
        "axis": pl.Utf8,
        "value": pl.Float64,
    }
    assert table.select("encoder", "dataset").unique().rows() == [("e", "d")]
    assert table["probe"].unique(maintain_order=True).to_list() == ["mlp", "knn"]
    # Ten equal drops: mean and worst are both 0.05 for one seed and 0.1 for the other.
    efficiency = ((7 / 9 + 8 / 9) / 2 + (6 / 8 + 7 / 8) / 2) / 2
    assert values(table, "mlp") == pytest.approx(
        {"discrimination": 0.85, "calibration": 0.10, "label_efficiency": efficiency, "robustness": 0.075}
    )
    of_votes = values(table, "knn")
    assert of_votes.pop("calibration") is None
    assert of_votes == pytest.approx(
        {"discrimination": 0.9, "label_efficiency": (7 / 9 + 8 / 9) / 2, "robustness": 0.05}
    )


def test_what_is_not_estimable_on_one_seed_is_null():
    table = control_axes(runs("mlp"), RAW, distinct_fractions={0: False})
    assert [axis for axis, value in values(table, "mlp").items() if value is None] == ["label_efficiency"]
    both = pl.concat([runs("knn"), runs("knn", seed=1, converged=False)])
    assert set(values(control_axes(both, RAW, distinct_fractions=DISTINCT), "knn").values()) == {None}
    weak = control_axes(runs("mlp", clean=(0.5, 0.52, 0.54), degraded=0.5), SKILL, distinct_fractions=DISTINCT)
    assert [axis for axis, value in values(weak, "mlp").items() if value is None] == ["label_efficiency", "robustness"]


def test_runs_of_two_cells_are_refused():
    other = runs("mlp").with_columns(dataset=pl.lit("another"))
    with pytest.raises(ValueError, match="runs of 2 cells, expected those of one encoder on one data set"):
        control_axes(pl.concat([runs("mlp"), other]), RAW, distinct_fractions=DISTINCT)


def test_equal_votes_are_tied_in_every_metric_that_ranks():
    stream = np.random.default_rng(0)
    truth = stream.integers(0, 4, 400)
    weights = softmax(1.5 * stream.standard_normal((400, 4)) + 2 * np.eye(4)[truth], axis=1)
    shares = np.array([stream.multinomial(5, row) for row in weights]) / 5
    logits = np.log(np.maximum(shares, SMALLEST_PROBABILITY)).astype(np.float32)
    row = score(Scored(truth, logits, [0, 1, 2, 3], votes=5), "multiclass", RAW, "set", 0)
    one_hot = np.eye(4)[truth]
    assert row["auroc"] == pytest.approx(sk.roc_auc_score(one_hot, shares, average="macro"), abs=1e-14)
    assert row["auprc"] == pytest.approx(sk.average_precision_score(one_hot, shares, average="macro"), abs=1e-14)
    assert row["accuracy"] == sk.accuracy_score(truth, shares.argmax(axis=1))
    assert row["brier"] == pytest.approx(np.mean(((shares - one_hot) ** 2).sum(axis=1)), abs=1e-14)
    assert row["log_loss"] == pytest.approx(sk.log_loss(truth, shares, labels=range(4)), rel=1e-6)
