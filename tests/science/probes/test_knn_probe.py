"""Nearest neighbours against scikit-learn where no distance repeats, and by hand where some do."""

import numpy as np
import pytest
from probe_cases import binary_labels, classes, features
from scipy.special import expit, softmax
from sklearn.metrics import log_loss
from sklearn.neighbors import KNeighborsClassifier

from crs_assets.science.probes import knn, standardisation
from crs_assets.science.probes.knn import fit_neighbours

K = 5


def fit(x, y, rows, k=K, outputs=None, standard=True):
    d = x.shape[1]
    mean, scale = standardisation(x, rows, std_floor=0.25, std_zero=1e-8) if standard else (np.zeros(d), np.ones(d))
    count = outputs or (y.shape[1] if y.ndim == 2 else int(y.max()) + 1)
    return fit_neighbours(x, y, np.asarray(rows), outputs=count, neighbours=k, mean=mean, scale=scale)


def on_a_line(*values):
    return np.array(values, dtype=np.float32)[:, None]


@pytest.mark.parametrize("cells", [8_000_000, 700])
def test_class_shares_are_those_of_scikit_learn(monkeypatch, cells):
    monkeypatch.setattr(knn, "_CELLS_AT_ONCE", cells)
    x = features(400, 12)
    y, train = classes(x, 4), np.arange(0, 400, 2)
    probe = fit(x, y, train)
    z = (x.astype(np.float64) - probe.mean) / probe.scale
    reference = KNeighborsClassifier(K, algorithm="brute").fit(z[train], y[train])
    np.testing.assert_allclose(probe.probabilities(x[1::2]), reference.predict_proba(z[1::2]), atol=1e-15)


def test_label_shares_are_those_of_scikit_learn_on_the_observed_rows():
    x = features(300, 6)
    y, train = binary_labels(x, labels=4, missing=0.4), np.arange(200)
    probe = fit(x, y, train)
    z = (x.astype(np.float64) - probe.mean) / probe.scale
    shares = probe.probabilities(x[200:])
    for label in range(4):
        seen = train[np.isfinite(y[train, label])]
        reference = KNeighborsClassifier(K, algorithm="brute").fit(z[seen], y[seen, label])
        np.testing.assert_allclose(shares[:, label], reference.predict_proba(z[200:])[:, 1], atol=1e-15)


def test_rows_at_equal_distance_vote_in_the_order_of_their_index():
    x = on_a_line(-1, 1, -1, 1, 3, 1, -1)
    y = np.array([0, 0, 0, 1, 1, 1, 2])
    # From 0, six rows are at distance 1: rows 0, 1, 2, 3 and 5 vote; row 6, of class 2, is one too many.
    for order in (range(7), [6, 3, 5, 0, 4, 2, 1]):
        np.testing.assert_allclose(fit(x, y, list(order), standard=False).probabilities(on_a_line(0)), [[0.6, 0.4, 0]])


def test_copies_of_an_image_are_at_equal_distance_wherever_they_stand():
    stream = np.random.default_rng(0)
    originals = stream.standard_normal((3, 97)).astype(np.float32)
    which = stream.integers(0, 3, 301)
    x, y = originals[which], np.arange(301)  # every row is a class of its own, so that votes name rows
    probe = fit(x, y, np.arange(301), standard=False)
    queries = (originals + 0.1 * stream.standard_normal((3, 97))).astype(np.float32)
    for copy, shares in enumerate(probe.probabilities(queries)):
        assert np.flatnonzero(shares).tolist() == np.flatnonzero(which == copy)[:K].tolist()


def test_distances_that_single_precision_cannot_tell_apart_are_told_apart():
    # From 999.5 the squared distances of neighbouring rows differ by 6e-5; the squares and products that float32 would
    # make them of are near 1e6, where it resolves 0.06.
    steps = np.arange(40)[::-1]
    x = (1000 + steps * np.spacing(np.float32(1000))).astype(np.float32)[:, None]
    probe = fit(x, np.arange(40), np.arange(40), standard=False)
    assert np.flatnonzero(probe.probabilities(on_a_line(999.5))[0]).tolist() == [35, 36, 37, 38, 39]


def test_rows_without_the_label_are_passed_over_however_many_there_are():
    x = on_a_line(*range(100))
    y = np.full((100, 2), np.nan)
    y[:, 0] = np.arange(100) < 3
    y[[60, 70, 80, 90, 99, 20], 1] = [1, 0, 1, 0, 0, 1]
    # From -1: rows 0 to 4 for the first label; 20, 60, 70, 80 and 90 for the second, of which three have it.
    np.testing.assert_allclose(fit(x, y, np.arange(100), standard=False).probabilities(on_a_line(-1)), [[0.6, 0.6]])


def test_a_label_that_too_few_rows_have_is_not_fitted_and_disturbs_no_other():
    x = on_a_line(*range(20))
    y = np.zeros((20, 2), dtype=np.float32)
    y[4:, 1] = np.nan
    probe = fit(x, y, np.arange(20), standard=False)
    assert probe.fitted.tolist() == [True, False]
    np.testing.assert_array_equal(probe.probabilities(on_a_line(1)), [[0.0, np.nan]])
    np.testing.assert_array_equal(np.isnan(probe.logits(on_a_line(1))), [[False, True]])
    few = fit(x, np.arange(20) % 2, np.arange(4), standard=False)
    assert np.isnan(few.probabilities(x)).all()


def test_a_feature_that_does_not_vary_measures_no_distance():
    x = np.column_stack([np.arange(12), np.full(12, 7)]).astype(np.float32)
    query = np.array([[0, -1e6]], dtype=np.float32)
    assert np.flatnonzero(fit(x, np.arange(12), np.arange(12)).probabilities(query)[0]).tolist() == [0, 1, 2, 3, 4]


def test_logits_state_the_shares_and_a_certain_wrong_vote_costs_what_it_does_in_scikit_learn():
    x = features(300, 6)
    y, train = classes(x, 4), np.arange(150)
    probe = fit(x, y, train)
    shares, logits = probe.probabilities(x[150:]), probe.logits(x[150:])
    assert {0.0, 1.0} <= set(shares.ravel().tolist())
    np.testing.assert_allclose(softmax(logits.astype(np.float64), axis=1), shares, atol=1e-7)
    mine = -np.log(softmax(logits.astype(np.float64), axis=1))[np.arange(150), y[150:]].mean()
    assert mine == pytest.approx(log_loss(y[150:], shares, labels=range(4)), rel=1e-6)
    labels = fit(x, binary_labels(x, labels=2, missing=0), train)
    shares, logits = labels.probabilities(x[150:]), labels.logits(x[150:])
    assert {0.0, 1.0} <= set(shares.ravel().tolist())
    np.testing.assert_allclose(expit(logits.astype(np.float64)), shares, atol=1e-7)
    assert len(np.unique(logits)) == len(np.unique(shares)) == K + 1


def test_what_cannot_vote_or_ask_is_refused():
    x = features(20, 3)
    with pytest.raises(ValueError, match="at least one row, got none"):
        fit(x, np.arange(20), [], standard=False)
    broken = x.copy()
    broken[3, 1] = np.nan
    with pytest.raises(ValueError, match=r"1 of 20 rows hold NaN or infinity, the first is row 3"):
        fit(broken, np.arange(20), np.arange(20), standard=False)
    with pytest.raises(ValueError, match="hold NaN or infinity"):
        fit(x, np.arange(20), np.arange(20)).probabilities(broken)
