"""The operating-point stage on the finished tiny suite."""

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from crs_assets.science.protocol import CLEAN
from crs_assets.stages.analyses.operating_points import OperatingPoints, read_net_benefit, read_operating_points
from crs_assets.stages.analyses.stored_logits import StoredLogits
from crs_assets.stages.data import read_index
from crs_assets.stages.encoders import usable_rows
from crs_assets.stages.probes import read_clean_predictions
from crs_assets.stages.stage import RefusedError

TASK = ("vit-a", "tiny-chest.s0")


@pytest.fixture
def chest(bench):
    OperatingPoints().ensure(bench, *TASK)
    return bench, read_operating_points(bench, *TASK), read_net_benefit(bench, *TASK)


def test_every_label_has_its_rows_and_what_cannot_be_judged_its_reason(chest):
    bench, points, benefit = chest
    settings = bench.suite.protocol.analyses.operating_points
    targets = len(settings.sensitivities) + len(settings.specificities)
    assert points.height == 4 * 2 * targets
    assert benefit.height == 4 * 2 * len(settings.net_benefit_thresholds)
    assert points.select("encoder", "dataset", "seed").unique().rows() == [("vit-a", "tiny-chest", 0)]
    rare = points.filter(pl.col("label") == "rare")
    assert set(rare["reason"]) == {"not scored: too few positives or negatives in a split"}
    assert benefit.filter(pl.col("reason").is_null()).height > 0
    assert (points["reason"].is_null() == points["sensitivity"].is_not_null()).all()


def test_net_benefit_follows_from_the_stored_predictions(chest):
    bench, _, benefit = chest
    frame = usable_rows(read_index(bench, "tiny-chest")).filter("is_test")
    frame = frame.join(read_clean_predictions(bench, *TASK), on="image_id")
    cells = frame["label:effusion"]
    observed = (cells.is_null() | (cells != -1)).to_numpy()
    truth = (cells.fill_null(0) == 1).to_numpy()[observed]
    called = expit(frame["logits"].to_numpy()[observed, 0].astype(float)) >= 0.3
    wanted = (called & truth).mean() - (called & ~truth).mean() * 0.3 / 0.7
    found = benefit.filter(
        (pl.col("label") == "effusion") & (pl.col("scores") == "uncalibrated") & (pl.col("threshold") == 0.3)
    ).row(0, named=True)
    blank_everywhere = frame.select(pl.all_horizontal(pl.col("^label:.*$").is_null())).to_series()
    assert not blank_everywhere.any()
    assert found["net_benefit"] == pytest.approx(wanted)
    assert found["n"] == observed.sum()


def test_a_second_call_makes_nothing(chest):
    bench, _, _ = chest
    assert not OperatingPoints().ensure(bench, *TASK).made


def test_logits_come_in_the_order_asked_for_and_none_may_be_missing(finished):
    stored = StoredLogits.open(finished, *TASK, roles=("test",))
    images = usable_rows(read_index(finished, "tiny-chest")).filter("is_test")["image_id"]
    np.testing.assert_array_equal(stored.of(images.reverse(), "test", CLEAN), stored.of(images, "test", CLEAN)[::-1])
    with pytest.raises(RefusedError, match=r"0 of \d+ images have a prediction"):
        stored.of(images, "test", "fog-1")
