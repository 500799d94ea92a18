import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from crs_assets.science.analyses.delong_intervals import delong_intervals
from crs_assets.science.analyses.replicated_metrics import ResampledRun
from crs_assets.science.evaluation import Scored


def run(groups, seed=0):
    rng = np.random.default_rng(seed)
    labels = (rng.random((300, 3)) < 0.4).astype(np.float32)
    logits = (labels + rng.normal(size=labels.shape)).astype(np.float32)
    labels[200:, 1] = np.nan
    return ResampledRun(Scored(labels, logits, (0, 1)), "multilabel", groups)


def test_intervals_are_symmetric_about_the_auroc_and_as_wide_as_hanley_and_mcneil_say():
    case = run(np.arange(300))
    found = delong_intervals(case, ["a", "b", "c"], level=0.95)
    assert [row["class"] for row in found] == ["a", "b"]
    for row, n, label in zip(found, (300, 200), (0, 1), strict=True):
        truth, score = case.scored.labels[:n, label], case.scored.logits[:n, label]
        auroc = roc_auc_score(truth, score)
        assert row["auroc"] == pytest.approx(auroc, abs=1e-12)
        assert row["high"] - auroc == pytest.approx(1.959964 * row["standard_error"], abs=1e-6)
        assert auroc - row["low"] == pytest.approx(1.959964 * row["standard_error"], abs=1e-6)
        # Hanley and McNeil 1982, which presumes exponential scores: the same size, not the same number.
        positives, negatives = truth.sum(), (1 - truth).sum()
        q1, q2 = auroc / (2 - auroc), 2 * auroc**2 / (1 + auroc)
        variance = auroc * (1 - auroc) + (positives - 1) * (q1 - auroc**2) + (negatives - 1) * (q2 - auroc**2)
        assert row["standard_error"] == pytest.approx(np.sqrt(variance / positives / negatives), rel=0.1)


def test_it_is_left_out_where_a_patient_has_two_observed_images_of_a_label():
    groups = np.arange(300)
    groups[250] = 249
    # Rows 249 and 250 are observed for label a only.
    assert [row["class"] for row in delong_intervals(run(groups), ["a", "b", "c"], level=0.95)] == ["b"]


def test_perfect_order_ends_at_one_and_one_positive_is_too_few():
    labels = np.array([0, 0, 1, 1, 2])
    logits = np.array([[3, 0, 0], [2, 0, 0], [0, 3, 0], [0, 2, 0], [0, 0, 1]], dtype=np.float32)
    case = ResampledRun(Scored(labels, logits, (0, 1, 2)), "multiclass", np.arange(5))
    found = delong_intervals(case, ["a", "b", "c"], level=0.95)
    assert [(row["class"], row["low"], row["high"]) for row in found] == [("a", 1.0, 1.0), ("b", 1.0, 1.0)]
