"""Transfer by label map: what is compared, in whose names, and that no position ever decides."""

import numpy as np
import polars as pl
import pytest
from scipy.special import logsumexp, softmax
from sklearn.metrics import roc_auc_score

from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.evaluation import Scored, align_target_labels, class_rows, macro, per_class, score
from crs_assets.science.labels import evaluation_labels
from crs_assets.science.protocol import load_protocol
from crs_assets.science.splits import eligible_target_classes
from crs_assets.science.suite import load_suite
from crs_assets.science.transfer import (
    TransferError,
    derived_labels,
    fitted_labels,
    mapped_labels,
    source_transfer_labels,
    target_in_source_names,
    transfer_labels,
    transfer_logits,
)

PROTOCOL = load_protocol("demo-v1")
FACTS = {
    "title": "x", "specialty": "other", "reader": "manifest", "group": "image", "label_source": "x", "licence": "x",
    "access": "open", "citation": "x",
}  # fmt: skip


def dataset(name, task, classes, **changes):
    return DatasetSpec.model_validate({"id": name, "task": task, "classes": classes} | FACTS | changes)


CHEST = dataset("chest", "multilabel", ["Edema", "Mass", "Hernia"], derived={"finding": ["Edema", "Mass"]})
SKIN = dataset("skin", "multiclass", ["MEL", "NV", "BCC"])
EYE = dataset("eye", "ordinal", ["0", "1", "2", "3"], derived={"referable": ["2", "3"]})


def target(task, classes, **label_map):
    return dataset("other", task, classes, role="target", label_map=label_map)


def index(**columns):
    n = len(next(iter(columns.values())))
    keys = {"image_id": [f"x/{i:03}" for i in range(n)], "group_id": [f"x::{i}" for i in range(n)]}
    labels = {f"label:{name}" if name != "label" else name: cells for name, cells in columns.items()}
    return pl.DataFrame(keys | labels).with_columns(pl.lit(None, dtype=pl.String).alias("quarantine"))


def at_target(source, other, frame, logits):
    """Labels, logits and view as the stage puts them together."""
    view = transfer_labels(source, other)
    renamed, known = target_in_source_names(frame, source, other)
    labels = align_target_labels(evaluation_labels(renamed, known), known, view)
    eligible = eligible_target_classes(renamed, known, [*source.classes, *source.derived], PROTOCOL)
    scored = [view.classes.index(name) for name in eligible.filter("eligible")["class"]]
    return Scored(labels, transfer_logits(logits, source, view), scored), view, eligible


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_derived_labels_are_fitted_behind_the_classes_and_are_no_classes():
    assert fitted_labels(CHEST).classes == ("Edema", "Mass", "Hernia", "finding")
    assert CHEST.classes == ("Edema", "Mass", "Hernia")
    assert derived_labels(CHEST).classes == ("finding",)
    # A softmax fits its classes; a derived label is a sum of theirs.
    assert fitted_labels(EYE).classes == EYE.classes


def test_labels_are_matched_by_name_and_map():
    other = target("multiclass", ["normal", "pneumonia"], pneumonia="finding")
    assert mapped_labels(CHEST, other) == {"pneumonia": "finding"}
    assert mapped_labels(CHEST, target("multilabel", ["Mass", "finding", "Nodule"])) == {
        "Mass": "Mass",
        "finding": "finding",
    }
    with pytest.raises(TransferError, match=r"leads to \['Nodule'\]"):
        mapped_labels(CHEST, target("multilabel", ["a"], a="Nodule"))
    with pytest.raises(TransferError, match="none in common"):
        mapped_labels(CHEST, target("multilabel", ["edema"]))


def test_any_finding_of_a_multilabel_source(rng):
    n = 60
    frame = index(label=rng.integers(0, 2, n))
    logits = rng.normal(size=(n, 4)).astype(np.float32)
    other = target("multiclass", ["normal", "pneumonia"], pneumonia="finding")
    run, view, eligible = at_target(CHEST, other, frame, logits)
    truth = frame["label"].to_numpy()
    assert run.classes == [3]
    assert macro(run, view.task) == pytest.approx(roc_auc_score(truth, logits[:, 3]), abs=1e-12)
    # What the target lacks has no AUROC and is listed; it is not scored.
    rows = {row["class"]: row for row in class_rows(run, view)}
    assert list(rows) == ["Edema", "Mass", "Hernia", "finding"]
    assert all(np.isnan(rows[name]["auroc"]) and not rows[name]["scored"] for name in CHEST.classes)
    assert rows["finding"]["scored"]
    reasons = dict(eligible.select("class", "reason").iter_rows())
    assert reasons["Hernia"] == "not a label of the target"


def test_one_class_of_a_softmax_against_the_rest(rng):
    n = 80
    frame = index(melanoma=rng.integers(0, 2, n))
    logits = rng.normal(size=(n, 3)).astype(np.float32)
    run, view, _ = at_target(SKIN, target("multilabel", ["melanoma"], melanoma="MEL"), frame, logits)
    truth, probability = frame["label:melanoma"].to_numpy(), softmax(logits.astype(float), axis=1)[:, 0]
    assert (view.task, run.classes) == ("multilabel", [0])
    assert macro(run, view.task) == pytest.approx(roc_auc_score(truth, np.log(probability)), abs=1e-12)
    # Calibration is the binary ECE of the mapped probability: 15 bins, by hand.
    bins = np.minimum(np.floor(15 * probability), 14)
    gaps = [(np.mean(bins == b), probability[bins == b].mean() - truth[bins == b].mean()) for b in np.unique(bins)]
    row = score(run, view.task, PROTOCOL, "test")
    assert row["ece"] == pytest.approx(sum(weight * abs(gap) for weight, gap in gaps), abs=1e-9)
    assert row["log_loss"] == pytest.approx(
        -np.mean(np.where(truth == 1, np.log(probability), np.log1p(-probability))), abs=1e-9
    )
    assert np.isnan(row["accuracy"])


def test_two_target_classes_where_one_is_mapped_are_the_same_problem(rng):
    n = 50
    cells = rng.integers(0, 2, n)
    logits = rng.normal(size=(n, 3)).astype(np.float32)
    one = at_target(SKIN, target("multilabel", ["melanoma"], melanoma="MEL"), index(melanoma=cells), logits)
    two = at_target(SKIN, target("multiclass", ["benign", "malignant"], malignant="MEL"), index(label=cells), logits)
    np.testing.assert_array_equal(one[0].labels, two[0].labels)
    assert macro(one[0], "multilabel") == macro(two[0], "multilabel")


def test_a_derived_label_of_a_softmax_is_the_sum_of_its_classes(rng):
    n = 70
    logits = rng.normal(scale=3, size=(n, 4)).astype(np.float32)
    frame = index(label=rng.integers(0, 2, n))
    run, view, _ = at_target(EYE, target("multiclass", ["no", "yes"], yes="referable"), frame, logits)
    values = logits.astype(float)
    odds = logsumexp(values[:, 2:], axis=1) - logsumexp(values[:, :2], axis=1)
    np.testing.assert_allclose(run.logits[:, view.classes.index("referable")], odds, rtol=1e-12)
    probability = softmax(values, axis=1)[:, 2:].sum(axis=1)
    assert macro(run, view.task) == pytest.approx(roc_auc_score(frame["label"], probability), abs=1e-12)


def test_several_target_classes_may_lead_to_one_label():
    other = target("multiclass", ["normal", "bacteria", "virus"], bacteria="finding", virus="finding")
    renamed, known = target_in_source_names(index(label=[0, 1, 2]), CHEST, other)
    assert known.classes == ("finding",)
    assert renamed["label:finding"].to_list() == [0, 1, 1]


def test_unknown_cells_of_the_target_stay_masked():
    other = target("multilabel", ["Mass", "Nodule"])
    renamed, known = target_in_source_names(index(Mass=[1, -1, None, None], Nodule=[None, 1, 1, None]), CHEST, other)
    # Positive; uncertain; blank in a row that says something: negative; a row that says nothing.
    assert renamed["label:Mass"].to_list() == [1, -1, 0, -1]
    np.testing.assert_array_equal(evaluation_labels(renamed, known)[:, 0], [1, np.nan, 0, np.nan])


def test_a_complete_map_keeps_the_softmax(rng):
    n = 60
    other = target("multiclass", ["nv", "mel"], nv="NV", mel="MEL")
    frame = index(label=rng.integers(0, 2, n))
    logits = rng.normal(size=(n, 3)).astype(np.float32)
    run, view, eligible = at_target(SKIN, other, frame, logits)
    assert (view.task, view.classes) == ("multiclass", SKIN.classes)
    # nv is class 1 of the source, mel class 0.
    np.testing.assert_array_equal(run.labels, 1 - frame["label"].to_numpy())
    assert run.logits is logits
    assert set(eligible.filter("eligible")["class"]) == {"NV", "MEL"}
    # Two classes onto one, or a class that the source lacks, cannot be one softmax problem.
    for classes, label_map in ((["a", "b"], {"a": "MEL", "b": "MEL"}), (["MEL", "SCC"], {})):
        assert transfer_labels(SKIN, target("multiclass", classes, **label_map)).task == "multilabel"


def test_the_clean_side_of_the_drop_is_the_same_one_vs_rest(rng):
    n = 90
    frame = index(label=rng.integers(0, 3, n))
    logits = rng.normal(size=(n, 3)).astype(np.float32)
    view = transfer_labels(SKIN, target("multilabel", ["melanoma"], melanoma="MEL"))
    labels = source_transfer_labels(frame, SKIN, view)
    np.testing.assert_array_equal(labels, np.eye(3)[frame["label"].to_numpy()])
    clean = Scored(labels, transfer_logits(logits, SKIN, view), [0])
    softmax_run = Scored(frame["label"].to_numpy(), logits, range(3))
    assert macro(clean, "multilabel") == pytest.approx(per_class(softmax_run, "multiclass")[0], abs=1e-12)


def test_the_clean_side_of_a_derived_label():
    frame = index(Edema=[1, 0, None], Mass=[0, 0, None], Hernia=[0, 1, None], finding=[1, 0, None])
    labels = source_transfer_labels(frame, CHEST, fitted_labels(CHEST))
    np.testing.assert_array_equal(labels, [[1, 0, 0, 1], [0, 0, 1, 0], [np.nan] * 4])
    graded = index(label=[0, 2, 3]).with_columns(pl.Series("label:referable", [0, 1, 1], dtype=pl.Int8))
    view = transfer_labels(EYE, target("multilabel", ["referable"]))
    np.testing.assert_array_equal(source_transfer_labels(graded, EYE, view)[:, -1], [0, 1, 1])


@pytest.mark.parametrize("source", [CHEST, dataset("chest", "multilabel", ["Hernia", "Edema", "Mass"])])
def test_the_order_of_columns_never_matters(rng, source):
    """The targets' label columns in any order: the same AUROC for every name."""
    n = 100
    cells = {name: rng.integers(0, 2, n) for name in ("Edema", "Mass", "Hernia", "Nodule")}
    logits = rng.normal(size=(n, len(fitted_labels(source).classes))).astype(np.float32)
    seen = []
    for order in (["Edema", "Mass", "Hernia", "Nodule"], ["Nodule", "Hernia", "Edema", "Mass"]):
        frame = index(**{name: cells[name] for name in order})
        run, view, _ = at_target(source, target("multilabel", order), frame, logits)
        seen.append({row["class"]: row["auroc"] for row in class_rows(run, view)})
    assert list(seen[0]) == list(seen[1])
    np.testing.assert_array_equal(list(seen[0].values()), list(seen[1].values()))
    by_hand = roc_auc_score(cells["Mass"], logits[:, fitted_labels(source).classes.index("Mass")])
    assert seen[0]["Mass"] == pytest.approx(by_hand, abs=1e-12)


@pytest.mark.parametrize(
    ("suite", "expected"),
    [
        ("paper", {"chexpert": ("multilabel", 14)}),
        ("demo", {"demo-chest": ("multilabel", 14)}),
        (
            "open",
            {"ham10000": ("multilabel", 1), "nih-chestxray14": ("multilabel", 1), "retinamnist": ("ordinal", 5)},
        ),
    ],
)
def test_the_shipped_transfers(suite, expected):
    """Kind of problem at the target, and how many labels the two share."""
    loaded = load_suite(suite)
    seen = {}
    for name, source in loaded.datasets.items():
        if source.transfer_target:
            other = loaded.targets[source.transfer_target]
            seen[name] = (transfer_labels(source, other).task, len(mapped_labels(source, other)))
    assert seen == expected
