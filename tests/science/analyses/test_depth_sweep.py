"""Choice of the depth by hand, and the tables of cells."""

import math

import numpy as np
import polars as pl
import pytest
from sklearn.metrics import log_loss

from crs_assets.science.analyses.depth_sweep import cell_depths, choose_depth, chosen_log_loss, depth_gains
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.probing import ProbeTask, fit_probe
from crs_assets.science.protocol import load_protocol

NAN = float("nan")


@pytest.mark.parametrize(
    ("losses", "converged", "expected"),
    [
        ([0.50, 0.40, 0.45, 0.48], [True] * 4, 1),
        # Of equal ones the deepest.
        ([0.50, 0.40, 0.45, 0.40], [True] * 4, 3),
        # A fit that did not converge is not chosen, however good it looks.
        ([0.50, 0.10, 0.45, 0.48], [True, False, True, True], 2),
        ([0.50, NAN, 0.45, 0.48], [True] * 4, 2),
        ([None, 0.60], [True] * 2, 1),
        ([0.5, 0.4], [False, False], None),
        ([NAN, NAN], [True, True], None),
    ],
)
def test_the_least_validation_log_loss_decides(losses, converged, expected):
    assert choose_depth(losses, converged) == expected


def rows(**changes):
    """One cell at two seeds: validation is for 0.5 at seed 0 and for the encoder's own at seed 1."""
    table = {
        "encoder": ["a"] * 4,
        "dataset": ["d"] * 4,
        "seed": [0, 0, 1, 1],
        "share": [0.5, 1.0, 0.5, 1.0],
        "block": [6, 12, 6, 12],
        "dim": [8] * 4,
        "converged": [True] * 4,
        "validation_log_loss": [0.4, 0.5, 0.7, 0.6],
        "auroc": [0.70, 0.80, 0.90, 0.86],
        "ece": [0.10, 0.20, 0.30, 0.40],
        "chosen": [True, False, False, True],
    }
    return pl.DataFrame(table | changes)


def test_gains_are_those_of_the_depth_that_validation_chose_even_where_test_would_choose_another():
    # Chosen: 0.70 at seed 0 (though 0.80 is better on test), 0.86 at seed 1 (though 0.90 is). Own: 0.80, 0.86.
    (row,) = depth_gains(rows()).to_dicts()
    assert row["auroc_own"] == pytest.approx(0.83)
    assert row["auroc_chosen"] == pytest.approx(0.78)
    assert row["auroc_gain"] == pytest.approx(-0.05)
    assert row["ece_own"] == pytest.approx(0.30)
    assert row["ece_chosen"] == pytest.approx(0.25)
    assert row["ece_change"] == pytest.approx(-0.05)
    assert row["shares_chosen"] == [0.5, 1.0]
    assert row["seeds"] == 2


def test_a_seed_without_a_value_leaves_the_cell_without_one():
    lost = rows(converged=[True, False, True, True])
    (row,) = depth_gains(lost).to_dicts()
    assert row["auroc_own"] is row["auroc_gain"] is row["auroc_chosen"] is None
    halves = cell_depths(lost).to_dicts()
    assert halves[0]["auroc"] == pytest.approx(0.80)
    assert halves[1]["auroc"] is None
    nothing = depth_gains(rows(chosen=[False, False, False, True]))
    assert nothing["auroc_gain"].to_list() == [None]


def test_each_depth_of_a_cell_is_the_mean_over_seeds():
    table = cell_depths(rows())
    assert table["share"].to_list() == [0.5, 1.0]
    assert table["auroc"].to_list() == pytest.approx([0.80, 0.83])
    assert table["validation_log_loss"].to_list() == pytest.approx([0.55, 0.55])
    assert table["times_chosen"].to_list() == [1, 1]
    assert table["seeds"].to_list() == [2, 2]


@pytest.fixture
def protocol():
    whole = load_protocol("crs-v1")
    probe = whole.probe.model_copy(update={"lambda_count": 5, "lambda_min": 1e-2, "lambda_max": 1e2})
    return whole.model_copy(update={"probe": probe})


def split_frame(roles):
    images = [f"i{number}" for number in range(len(roles))]
    index = pl.DataFrame({"image_id": images})
    enters = [0.0 if role in ("train", "validation") else None for role in roles]
    return index, pl.DataFrame({"image_id": images, "role": roles, "enters_at": pl.Series(enters, dtype=pl.Float64)})


def test_the_log_loss_of_the_choice_is_that_of_scikit_learn_on_validation_alone(protocol):
    rng = np.random.default_rng(0)
    roles = ["train"] * 80 + ["validation"] * 40 + ["test"] * 30
    labels = rng.integers(0, 3, len(roles))
    features = (rng.standard_normal((len(roles), 6)) + labels[:, None] * [1, 0.5, 0, 0, 0, 0]).astype(np.float32)
    index, splits = split_frame(roles)
    index = index.with_columns(label=pl.Series(labels))
    words = dict.fromkeys(("title", "label_source", "licence", "citation"), "made")
    space = DatasetSpec(
        id="made",
        task="multiclass",
        classes=("a", "b", "c"),
        reader="manifest",
        group="image",
        specialty="other",
        access="open",
        **words,
    )
    task = ProbeTask(features, index, splits, space)
    probe = fit_probe(task, protocol, fractions=[1.0])
    (found,) = chosen_log_loss(probe, task, protocol)
    logits = probe.logits(0, features[80:120]).astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert found == pytest.approx(log_loss(labels[80:120], shares, labels=[0, 1, 2]), rel=1e-5)
    # The test images' features and labels are nobody's business.
    other = features.copy()
    other[120:] = 1e3
    shuffled = index.with_columns(label=pl.Series([*labels[:120], *(labels[120:] + 1) % 3]))
    again = ProbeTask(other, shuffled, splits, space)
    assert chosen_log_loss(fit_probe(again, protocol, fractions=[1.0]), again, protocol)[0] == found
    assert not math.isnan(found)
