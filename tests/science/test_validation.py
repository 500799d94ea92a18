import numpy as np
import pytest

from crs_assets.science import validation


def test_object_dtype_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"y_true has dtype object, expected integer class indices; cast it"):
        validation.multiclass_scores(np.array([0, 1], dtype=object), np.eye(2))
    with pytest.raises(ValueError, match="y_score has dtype object, expected numbers"):
        validation.label_columns([0, 1], np.array([0.1, None], dtype=object))


def test_float_class_indices_are_refused():
    with pytest.raises(ValueError, match="dtype float64, expected integer class indices"):
        validation.multiclass_scores(np.array([0.0, 1.0]), np.eye(2))


def test_shapes_that_disagree_are_named():
    with pytest.raises(ValueError, match=r"y_true has 3 rows and the scores have 2"):
        validation.multiclass_scores([0, 1, 1], np.eye(2))
    with pytest.raises(ValueError, match=r"y_true has shape \(3, 2\) and y_score \(3, 4\)"):
        validation.label_columns(np.zeros((3, 2)), np.zeros((3, 4)))


def test_one_score_column_is_told_to_be_one_dimensional():
    with pytest.raises(ValueError, match="pass binary scores as 1-D"):
        validation.multiclass_scores([0, 1], np.zeros((2, 1)))


def test_labels_out_of_range_state_both_ranges():
    with pytest.raises(ValueError, match=r"y_true spans -1\.\.2, expected class indices 0\.\.1"):
        validation.multiclass_scores([-1, 2], np.eye(2))


def test_several_problems_are_reported_at_once():
    with pytest.raises(ValueError, match=r"3 rows and the scores have 2.*spans 0\.\.5"):
        validation.multiclass_scores([0, 1, 5], np.eye(2))


def test_empty_input_is_refused():
    with pytest.raises(ValueError, match="is empty"):
        validation.multiclass_scores(np.zeros(0, dtype=int), np.zeros((0, 3)))


def test_nan_scores_are_counted():
    with pytest.raises(ValueError, match="1 of 4 values are NaN or infinite"):
        validation.multiclass_scores([0, 1], [[0.0, np.nan], [1.0, 2.0]])


def test_rows_that_do_not_sum_to_one_are_refused_with_the_deviation():
    with pytest.raises(ValueError, match=r"must sum to 1 \(worst deviation 0\.5"):
        validation.probability_rows([[0.5, 0.5], [0.75, 0.75]])


def test_float32_softmax_rows_pass_and_float16_rows_do_not():
    logits = np.random.default_rng(0).normal(size=(500, 14)) * 4
    exact = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert validation.probability_rows(exact.astype(np.float32)).dtype == np.float64
    with pytest.raises(ValueError, match="must sum to 1"):
        validation.probability_rows(exact.astype(np.float16))


def test_logits_in_place_of_probabilities_are_refused():
    with pytest.raises(ValueError, match=r"spans -2\.\.3, expected \[0, 1\]; pass probabilities, not logits"):
        validation.probability_rows([[-2.0, 3.0], [0.5, 0.5]])
    with pytest.raises(ValueError, match="pass probabilities, not logits"):
        validation.label_probabilities([0, 1], [0.2, 1.7])


def test_uncertain_labels_must_be_masked():
    with pytest.raises(ValueError, match=r"y_true holds \[-1.0\], expected 0 or 1; mask uncertain"):
        validation.label_columns([0, 1, -1], [0.1, 0.2, 0.3])
    kept = validation.label_columns([0, 1, -1], [0.1, 0.2, 0.3], np.array([True, True, False]))
    assert kept.observed[:, 0].tolist() == [True, True, False]


def test_what_lies_in_an_unobserved_cell_never_matters():
    columns = validation.label_columns([0.0, 1.0, np.nan], [0.1, 0.2, np.nan])
    outcome, score = columns.column(0)
    assert outcome.tolist() == [False, True]
    assert score.tolist() == [0.1, 0.2]


def test_nan_labels_and_the_mask_combine():
    columns = validation.label_columns([0.0, np.nan, 1.0], [0.1, 0.2, 0.3], np.array([True, True, False]))
    assert columns.observed[:, 0].tolist() == [True, False, False]


def test_a_mask_must_be_bool_and_shaped_as_the_labels():
    with pytest.raises(ValueError, match=r"observed is int64 of shape \(2,\), expected bool"):
        validation.label_columns([0, 1], [0.1, 0.2], np.array([1, 0]))
    with pytest.raises(ValueError, match="`observed` masks cells of binary and multilabel input"):
        validation.one_vs_rest([0, 1], np.eye(2), np.ones((2, 2), dtype=bool))


def test_class_subset_refuses_repeats_and_strangers():
    assert validation.class_subset(None, 3).tolist() == [0, 1, 2]
    for wrong in ([0, 0], [3], [-1]):
        with pytest.raises(ValueError, match="expected distinct column positions within"):
            validation.class_subset(wrong, 3)


@pytest.mark.parametrize("value", [0, -1, 1.5, True])
def test_counts_are_positive_integers(value):
    with pytest.raises(ValueError, match="expected an integer of at least 1"):
        validation.positive_int(value, name="draws")
