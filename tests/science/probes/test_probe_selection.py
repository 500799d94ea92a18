import numpy as np
import pytest
from sklearn.metrics import log_loss

from crs_assets.science.probes import LinearPath, select_lambda, validation_log_loss

LAMBDAS = [0.1, 1.0, 10.0]


def path(weights, intercepts, problems):
    grid = (*weights.shape[:2], problems)
    numbers = np.zeros(grid)
    return LinearPath(
        weights.astype(np.float32),
        intercepts,
        np.array(LAMBDAS),
        numbers,
        numbers,
        numbers,
        numbers.astype(int),
        numbers == 0,
    )


def test_softmax_log_loss_agrees_with_scikit_learn():
    stream = np.random.default_rng(0)
    x = stream.standard_normal((5000, 6)).astype(np.float32)
    y = stream.integers(0, 3, 5000)
    fitted = path(stream.standard_normal((2, 3, 3, 6)), stream.standard_normal((2, 3, 3)), 1)
    rows = np.arange(100, 5000)
    losses = validation_log_loss(fitted, x, y, rows, 1)
    for penalty in range(3):
        logits = fitted.logits(x[rows], 1, penalty).astype(np.float64)
        p = np.exp(logits - logits.max(1, keepdims=True))
        assert losses[penalty, 0] == pytest.approx(log_loss(y[rows], p / p.sum(1, keepdims=True)), rel=1e-5)


def test_multilabel_log_loss_is_over_observed_rows():
    x = np.array([[0.0], [1.0], [2.0]], np.float32)
    y = np.array([[1, np.nan], [0, np.nan], [np.nan, np.nan]])
    fitted = path(np.zeros((1, 3, 2, 1)), np.zeros((1, 3, 2)), 2)
    losses = validation_log_loss(fitted, x, y, np.arange(3), 0)
    np.testing.assert_allclose(losses[:, 0], np.log(2))  # zero logits: probability one half
    assert np.isnan(losses[:, 1]).all()


def test_each_label_takes_its_minimum_and_ties_go_to_the_larger_penalty():
    choice = select_lambda([[3, 1, 5], [1, 1, 4], [1, 1, 3]], [9, 9, 9], LAMBDAS, min_validation=5)
    assert choice.index.tolist() == [2, 2, 2]
    choice = select_lambda([[3, 1, 1], [1, 2, 4], [2, 2, 3]], [9, 9, 9], LAMBDAS, min_validation=5)
    assert choice.index.tolist() == [1, 0, 0]
    assert choice.edge_low.tolist() == [False, True, True]
    assert not choice.edge_high.any()
    assert choice.at_edge.tolist() == [False, True, True]
    assert not choice.borrowed.any()


def test_a_label_with_few_cases_borrows_the_common_choice():
    # Means of the first two: 2.0, 1.5, 3.0. The third would choose the first penalty on its two cases.
    choice = select_lambda([[1, 3, 0], [2, 1, 1], [3, 3, 2]], [8, 5, 2], LAMBDAS, min_validation=5)
    assert choice.index.tolist() == [0, 1, 1]
    assert choice.borrowed.tolist() == [False, False, True]


def test_where_none_can_choose_all_choose_together():
    choice = select_lambda([[1, 9], [2, 2], [3, 3]], [1, 2], LAMBDAS, min_validation=5)
    assert choice.index.tolist() == [1, 1]  # means 5, 2, 3
    assert choice.borrowed.all()


def test_a_softmax_always_chooses_for_itself():
    choice = select_lambda([[2], [3], [1]], None, LAMBDAS, min_validation=5)
    assert choice.index.tolist() == [2]
    assert choice.edge_high.tolist() == [True]
    assert not choice.borrowed.any()


def test_a_label_without_fit_borrows():
    choice = select_lambda([[np.nan, 2], [np.nan, 1], [np.nan, 3]], [9, 9], LAMBDAS, min_validation=5)
    assert choice.index.tolist() == [1, 1]
    assert choice.borrowed.tolist() == [True, False]


@pytest.mark.parametrize(
    ("losses", "counts", "lambdas", "message"),
    [
        ([[1.0], [2.0]], None, LAMBDAS, r"shape \(2, 1\), expected \(3, problems\)"),
        ([[np.nan]] * 3, None, LAMBDAS, "no problem has a finite"),
        ([[1.0]] * 3, [1, 2], LAMBDAS, r"counts have shape \(2,\)"),
        ([[1.0]] * 3, None, LAMBDAS[::-1], "must ascend"),
    ],
)
def test_refusals(losses, counts, lambdas, message):
    with pytest.raises(ValueError, match=message):
        select_lambda(losses, counts, lambdas, min_validation=5)
