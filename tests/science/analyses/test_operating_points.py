"""Operating points and net benefit against confusion matrices counted with scikit-learn."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax
from scipy.stats import binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import confusion_matrix

from crs_assets.science.analyses.operating_cases import SplitPredictions
from crs_assets.science.analyses.operating_points import operating_point_tables
from crs_assets.science.protocol import load_protocol
from crs_assets.science.seeding import generator
from crs_assets.science.statistics import group_bootstrap_counts

ROLES = ("validation", "calibration", "test")
CLASSES = ("naevus", "melanoma", "keratosis")
LABELS = ("effusion", "oedema")


@pytest.fixture
def protocol():
    return with_settings(replicates=80)


def with_settings(**settings):
    protocol = load_protocol("crs-v1")
    points = protocol.analyses.operating_points.model_copy(update=settings)
    return protocol.model_copy(update={"analyses": protocol.analyses.model_copy(update={"operating_points": points})})


def skin(n=150, images_per_patient=1, seed=0):
    rng = np.random.default_rng(seed)
    splits = {}
    for role in ROLES:
        labels = rng.integers(0, 3, n)
        logits = (1.5 * np.eye(3)[labels] + rng.normal(size=(n, 3))).astype(np.float32) * 3
        groups = np.array([f"{role}-{image // images_per_patient}" for image in range(n)])
        splits[role] = SplitPredictions(labels, logits, groups)
    return splits


def chest(n=200, seed=1):
    rng = np.random.default_rng(seed)
    splits = {}
    for role in ROLES:
        labels = (rng.random((n, 2)) < (0.4, 0.25)).astype(np.float32)
        logits = (2 * labels + rng.normal(size=(n, 2)) - 2).astype(np.float32) * 2
        labels[rng.random((n, 2)) < 0.1] = np.nan
        splits[role] = SplitPredictions(labels, logits, np.array([f"{role}-{image}" for image in range(n)]))
    return splits


def row(table, **wanted):
    return table.filter(*(pl.col(name) == value for name, value in wanted.items())).row(0, named=True)


def rates(positive, called):
    tn, fp, fn, tp = confusion_matrix(positive, called, labels=[False, True]).ravel()
    return tp / (tp + fn), tn / (tn + fp)


def chosen(positive, score, target):
    """The highest score whose sensitivity reaches the target, by trying every score."""
    return max(value for value in score if (score[positive] >= value).mean() >= target)


def test_a_class_against_the_rest_at_a_threshold_chosen_on_calibration(protocol):
    splits = skin()
    points = operating_point_tables("multiclass", CLASSES, splits, protocol, "skin").points
    assert points.height == 3 * 2 * 4
    for position, name in enumerate(CLASSES):
        proba = {role: softmax(split.logits.astype(np.float64), axis=1)[:, position] for role, split in splits.items()}
        truth = {role: split.labels == position for role, split in splits.items()}
        found = row(points, label=name, scores="uncalibrated", target_kind="sensitivity", target=0.9)
        assert found["chosen_on"] == "calibration"
        assert found["threshold"] == pytest.approx(chosen(truth["calibration"], proba["calibration"], 0.9), abs=1e-12)
        wanted = rates(truth["test"], proba["test"] >= found["threshold"])
        assert (found["sensitivity"], found["specificity"]) == pytest.approx(wanted, abs=1e-12)
        assert (found["n_positives"], found["n_negatives"]) == (truth["test"].sum(), (~truth["test"]).sum())
        sensitivity, specificity = wanted
        for prevalence, ppv, npv in zip(found["prevalences"], found["ppv"], found["npv"], strict=True):
            ill, well = prevalence, 1 - prevalence
            assert ppv == pytest.approx(ill * sensitivity / (ill * sensitivity + well * (1 - specificity)))
            assert npv == pytest.approx(well * specificity / (well * specificity + ill * (1 - sensitivity)))


def test_recalibrated_thresholds_are_chosen_on_validation_under_the_map_of_calibration(protocol):
    splits = skin()
    fitting = splits["calibration"]

    def loss(log_temperature):
        stated = log_softmax(fitting.logits.astype(np.float64) / np.exp(log_temperature), axis=1)
        return -stated[np.arange(len(stated)), fitting.labels].mean()

    temperature = np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-10}).x)
    assert temperature > 1.5  # the logits were blown up threefold
    proba = softmax(splits["validation"].logits.astype(np.float64) / temperature, axis=1)[:, 1]
    found = row(
        operating_point_tables("multiclass", CLASSES, splits, protocol, "skin").points,
        label="melanoma", scores="recalibrated", target_kind="sensitivity", target=0.95,
    )  # fmt: skip
    assert found["chosen_on"] == "validation"
    wanted = chosen(splits["validation"].labels == 1, proba, 0.95)
    assert found["threshold"] == pytest.approx(wanted, abs=1e-6)


def test_each_label_has_a_sigmoid_of_its_own_and_unobserved_cells_do_not_count(protocol):
    splits = chest()
    tables = operating_point_tables("multilabel", LABELS, splits, protocol, "chest")
    for position, name in enumerate(LABELS):
        fitting, test = splits["calibration"], splits["test"]
        seen = ~np.isnan(fitting.labels[:, position])
        platt = LogisticRegression(C=1e8, tol=1e-10).fit(
            fitting.logits[seen][:, [position]].astype(np.float64), fitting.labels[seen, position]
        )
        observed = ~np.isnan(test.labels[:, position])
        proba = platt.predict_proba(test.logits[:, [position]].astype(np.float64))[observed, 1]
        truth = test.labels[observed, position] == 1
        benefit = row(tables.net_benefit, label=name, scores="recalibrated", threshold=0.2)
        called = proba >= 0.2
        wanted = (called & truth).mean() - (called & ~truth).mean() * 0.2 / 0.8
        assert benefit["net_benefit"] == pytest.approx(wanted, abs=1e-12)
        assert benefit["treat_all"] == pytest.approx(truth.mean() - (1 - truth.mean()) * 0.25, abs=1e-12)
        assert benefit["treat_none"] == 0
        assert benefit["prevalence"] == pytest.approx(truth.mean())
        assert benefit["n"] == observed.sum()
        assert benefit["low"] <= benefit["net_benefit"] <= benefit["high"]
        plain = row(tables.points, label=name, scores="uncalibrated", target_kind="specificity", target=0.95)
        called = expit(test.logits[observed, position].astype(np.float64)) >= plain["threshold"]
        assert (plain["sensitivity"], plain["specificity"]) == pytest.approx(rates(truth, called), abs=1e-12)


def test_wilson_bounds_only_where_every_patient_has_one_image(protocol):
    points = operating_point_tables("multiclass", CLASSES, skin(), protocol, "skin").points
    found = row(points, label="naevus", scores="uncalibrated", target_kind="sensitivity", target=0.9)
    assert set(points["interval"]) == {"wilson"}
    for rate, of in (("sensitivity", "n_positives"), ("specificity", "n_negatives")):
        trials = found[of]
        test = binomtest(round(found[rate] * trials), trials)
        wanted = test.proportion_ci(confidence_level=0.95, method="wilson")
        assert (found[f"{rate}_low"], found[f"{rate}_high"]) == pytest.approx((wanted.low, wanted.high), abs=1e-12)
    repeated = operating_point_tables("multiclass", CLASSES, skin(images_per_patient=2), protocol, "skin").points
    assert set(repeated["interval"]) == {"bootstrap"}
    assert (repeated["sensitivity_low"] <= repeated["sensitivity"]).all()
    assert (repeated["sensitivity"] <= repeated["sensitivity_high"]).all()


def test_bounds_of_predictive_values_are_those_of_resampled_patients(protocol):
    splits = skin(images_per_patient=2)
    test = splits["test"]
    found = row(
        operating_point_tables("multiclass", CLASSES, splits, protocol, "skin").points,
        label="melanoma", scores="uncalibrated", target_kind="specificity", target=0.9,
    )  # fmt: skip
    truth, called = test.labels == 1, softmax(test.logits.astype(np.float64), axis=1)[:, 1] >= found["threshold"]
    rng = generator(protocol.salt, "case_bootstrap", "skin")
    counts = np.concatenate(list(group_bootstrap_counts(test.group_ids, 80, rng)), axis=1)
    drawn = []
    for column in counts.T:
        rows = np.repeat(np.arange(len(truth)), column)
        sensitivity, specificity = rates(truth[rows], called[rows])
        ill, well = 0.1, 0.9
        hit, miss = ill * sensitivity, well * (1 - specificity)
        rest, lost = well * specificity, ill * (1 - sensitivity)
        drawn.append((hit / (hit + miss), rest / (rest + lost)))
    at = found["prevalences"].index(0.1)
    for name, values in zip(("ppv", "npv"), np.transpose(drawn), strict=True):
        ends = (found[f"{name}_low"][at], found[f"{name}_high"][at])
        assert ends == pytest.approx(tuple(np.quantile(values, (0.025, 0.975))), abs=1e-12)
        assert ends[0] < found[name][at] < ends[1]


def test_more_images_of_the_same_patients_are_no_more_evidence():
    protocol = with_settings(replicates=300)
    splits = skin(n=200, images_per_patient=2)

    def repeated(own_patients):
        test, copies = splits["test"], 4
        tags = [f"{group}-{copy}" if own_patients else group for copy in range(copies) for group in test.group_ids]
        tiled = SplitPredictions(np.tile(test.labels, copies), np.tile(test.logits, (copies, 1)), np.array(tags))
        return {**splits, "test": tiled}

    def widths(given):
        tables = operating_point_tables("multiclass", CLASSES, given, protocol, "skin")
        found = row(tables.points, label="naevus", scores="uncalibrated", target_kind="sensitivity", target=0.9)
        benefit = row(tables.net_benefit, label="naevus", scores="uncalibrated", threshold=0.1)
        return [found["specificity_high"] - found["specificity_low"], benefit["high"] - benefit["low"]]

    once, same, more = widths(splits), widths(repeated(own_patients=False)), widths(repeated(own_patients=True))
    np.testing.assert_allclose(same, once, rtol=1e-9)
    # Four times the patients halve the width of an interval.
    assert all(narrow < 0.7 * wide for narrow, wide in zip(more, once, strict=True))


@pytest.mark.parametrize(("positives", "is_given"), [(9, False), (10, True)])
@pytest.mark.parametrize("role", ROLES)
def test_nine_positives_in_a_split_choose_no_threshold(protocol, role, positives, is_given):
    splits = skin()
    labels = np.array([1] * positives + [0, 2] * 70)[:140]
    few = SplitPredictions(labels, splits[role].logits[:140], splits[role].group_ids[:140])
    tables = operating_point_tables("multiclass", CLASSES, {**splits, role: few}, protocol, "skin")
    # Calibration is where plain thresholds come from, validation where recalibrated ones do; test is read by both.
    hit = {"calibration": ["uncalibrated"], "validation": ["recalibrated"], "test": ["uncalibrated", "recalibrated"]}
    for scores in ("uncalibrated", "recalibrated"):
        of_label = (pl.col("label") == "melanoma") & (pl.col("scores") == scores)
        points = tables.points.filter(of_label)
        if scores in hit[role] and not is_given:
            few = "patients with, or without, the label" if role == "test" else "positives or negatives"
            assert set(points["reason"]) == {f"fewer than 10 {few} in {role}"}
            assert points.select("threshold", "sensitivity", "n_positives", "ppv").null_count().row(0) == (4, 4, 4, 4)
        else:
            assert points["reason"].null_count() == 4
            assert points["sensitivity"].null_count() == 0
    benefit = tables.net_benefit.filter(pl.col("label") == "melanoma")
    expected = benefit.height if role == "test" and not is_given else 0
    assert benefit["net_benefit"].null_count() == expected


def test_what_is_fitted_on_counts_images_and_what_is_published_counts_patients(protocol):
    splits = skin()
    test = splits["test"]
    labels = np.where(test.labels == 1, 0, test.labels)
    labels[:10] = 1
    groups = test.group_ids.copy()
    groups[1] = groups[0]
    tables = operating_point_tables(
        "multiclass", CLASSES, {**splits, "test": replace(test, labels=labels, group_ids=groups)}, protocol, "skin"
    )
    assert tables.points.filter(pl.col("label") == "melanoma")["sensitivity"].null_count() == 8
    same_ten = {role: replace(split, group_ids=np.repeat("one", len(split.labels))) for role, split in splits.items()}
    tables = operating_point_tables("multiclass", CLASSES, {**same_ten, "test": test}, protocol, "skin")
    assert tables.points["sensitivity"].null_count() == 0


def test_tied_scores_are_called_together_and_may_put_a_target_out_of_reach(protocol):
    splits = chest()
    levels = np.array([-1.0, 2.0], dtype=np.float32)
    # Two score levels; the higher one is shared by about half of the negatives.
    tied = {
        role: replace(split, logits=levels[(split.logits[:, [0, 0]] > np.median(split.logits[:, 0])).astype(int)])
        for role, split in splits.items()
    }
    points = operating_point_tables("multilabel", LABELS, tied, protocol, "chest").points
    found = row(points, label="oedema", scores="uncalibrated", target_kind="specificity", target=0.95)
    assert (found["threshold"], found["sensitivity"], found["ppv"]) == (None, None, None)
    assert "no score reaches the target" in found["reason"]
    reached = row(points, label="oedema", scores="uncalibrated", target_kind="sensitivity", target=0.95)
    assert reached["threshold"] == pytest.approx(expit(-1.0))
    assert (reached["sensitivity"], reached["specificity"]) == (1, 0)
    assert reached["npv"] == reached["npv_low"] == reached["npv_high"] == [None] * 4


def test_labels_with_a_problem_keep_their_rows(protocol):
    tables = operating_point_tables(
        "multiclass", CLASSES, skin(), protocol, "skin", problems={"keratosis": "the fit did not converge"}
    )
    for table in (tables.points, tables.net_benefit):
        of_label = table.filter(pl.col("label") == "keratosis")
        assert set(of_label["reason"]) == {"the fit did not converge"}
        assert table.filter(pl.col("label") != "keratosis")["reason"].null_count() == table.height - of_label.height


def test_a_label_that_was_not_fitted_has_no_figure(protocol):
    splits = chest()
    for split in splits.values():
        split.logits[:, 1] = np.nan
    points = operating_point_tables("multilabel", LABELS, splits, protocol, "chest").points
    assert set(points.filter(pl.col("label") == "oedema")["reason"]) == {"the probe or its map could not be fitted"}
    assert points.filter(pl.col("label") == "effusion")["reason"].null_count() == 8


def test_the_order_of_images_changes_nothing(protocol):
    for task, names, splits in (("multiclass", CLASSES, skin(images_per_patient=2)), ("multilabel", LABELS, chest())):
        rng = np.random.default_rng(4)
        shuffled = {}
        for role, split in splits.items():
            order = rng.permutation(len(split.labels))
            shuffled[role] = SplitPredictions(split.labels[order], split.logits[order], split.group_ids[order])
        before, after = (operating_point_tables(task, names, each, protocol, "any") for each in (splits, shuffled))
        assert_frame_equal(before.points, after.points, rel_tol=1e-7, abs_tol=1e-9)
        assert_frame_equal(before.net_benefit, after.net_benefit, rel_tol=1e-9, abs_tol=1e-12)
