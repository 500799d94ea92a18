"""Label policies: what a blank, an uncertain and an unobserved cell become."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest

from crs_assets.science.labels import LabelError, evaluation_labels, fit_labels, membership

NAN = float("nan")


@dataclass(frozen=True)
class Space:
    id: str
    task: str
    classes: tuple[str, ...]


CHEST = Space("chest", "multilabel", ("Edema", "Fracture", "Atelectasis"))
SKIN = Space("skin", "multiclass", ("MEL", "NV", "BCC"))


def chest_index(*rows):
    """Rows are cells in the order of CHEST.classes; None is blank."""
    columns = {f"label:{name}": [row[i] for row in rows] for i, name in enumerate(CHEST.classes)}
    return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int8))


ROWS = [(1, 0, None), (-1, -1, -1), (None, None, None), (None, -1, 1)]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("u_ignore", [[1, 0, 0], [NAN, NAN, NAN], [NAN, NAN, NAN], [0, NAN, 1]]),
        ("u_zeros", [[1, 0, 0], [0, 0, 0], [NAN, NAN, NAN], [0, 0, 1]]),
        ("u_ones", [[1, 0, 0], [1, 1, 1], [NAN, NAN, NAN], [0, 1, 1]]),
        ("mixed", [[1, 0, 0], [1, 0, 1], [NAN, NAN, NAN], [0, 0, 1]]),
    ],
)
def test_each_policy_resolves_uncertain_cells_and_leaves_unobserved_images_unobserved(policy, expected):
    labels = fit_labels(chest_index(*ROWS), CHEST, policy)
    assert labels.dtype == np.float32
    np.testing.assert_array_equal(labels, np.array(expected, dtype=np.float32))


def test_evaluation_masks_uncertain_cells():
    np.testing.assert_array_equal(
        evaluation_labels(chest_index(*ROWS), CHEST), [[1, 0, 0], [NAN] * 3, [NAN] * 3, [0, NAN, 1]]
    )


def test_membership_counts_uncertain_and_unobserved_for_neither_sign():
    positive, negative = membership(chest_index(*ROWS), CHEST)
    assert positive.tolist() == [[True, False, False], [False] * 3, [False] * 3, [False, False, True]]
    assert negative.tolist() == [[False, True, True], [False] * 3, [False] * 3, [True, False, False]]


def test_columns_are_found_by_name_whatever_their_order():
    index = chest_index(*ROWS)
    shuffled = index.select(reversed(index.columns))
    np.testing.assert_array_equal(fit_labels(shuffled, CHEST, "u_ones"), fit_labels(index, CHEST, "u_ones"))


def test_multiclass_labels_are_indices_whatever_the_policy():
    index = pl.DataFrame({"label": [2, 0, 1]}, schema={"label": pl.Int16})
    for policy in ("u_ignore", "u_ones", "mixed"):
        labels = fit_labels(index, SKIN, policy)
        assert labels.dtype == np.int64
        assert labels.tolist() == [2, 0, 1]
    positive, negative = membership(index, SKIN)
    assert positive.tolist() == [[False, False, True], [True, False, False], [False, True, False]]
    assert (positive ^ negative).all()


def test_mixed_is_refused_where_its_labels_do_not_exist():
    space = Space("other", "multilabel", ("Edema", "Fracture"))
    with pytest.raises(LabelError, match=r"needs the labels \['Atelectasis'\]"):
        fit_labels(chest_index(*ROWS), space, "mixed")


def test_an_unknown_policy_is_refused():
    with pytest.raises(LabelError, match="unknown policy 'u_guess'"):
        fit_labels(chest_index(*ROWS), CHEST, "u_guess")


@pytest.mark.parametrize(
    ("index", "space", "message"),
    [
        (pl.DataFrame({"label": [0, 3]}), SKIN, r"class indices \[3\] in 1 rows; expected 0 to 2"),
        (pl.DataFrame({"label": [0, None]}), SKIN, "1 of 2 rows have no label"),
        (pl.DataFrame({"diagnosis": [0]}), SKIN, r"lacks the columns \['label'\]"),
        (chest_index((2, 0, 0)), CHEST, r"label cells hold \[2.0\] \(1 cells\)"),
        (chest_index(*ROWS).drop("label:Edema"), CHEST, r"lacks the columns \['label:Edema'\]"),
    ],
)
def test_unusable_labels_are_refused(index, space, message):
    with pytest.raises(LabelError, match=message):
        fit_labels(index, space, "u_ignore")
