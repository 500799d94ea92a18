"""Splits: whole groups, one test set, nested subsets, and hashes that decide alone."""

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crs_assets.science.protocol import load_protocol
from crs_assets.science.splits import (
    LeakError,
    assign_test,
    check_no_leak,
    eligible_classes,
    eligible_names,
    eligible_target_classes,
    split_seed,
)

PROTOCOL = load_protocol("crs-v1")


@dataclass(frozen=True)
class Space:
    id: str
    task: str
    classes: tuple[str, ...]


SKIN = Space("skin", "multiclass", ("A", "B", "C"))
CHEST = Space("chest", "multilabel", ("P", "Q", "R"))


def make_index(groups, labels, space, quarantine=None):
    """One row per entry; a label is a class index, or a tuple of cells for a multilabel space."""
    n = len(groups)
    columns = {
        "image_id": [f"{space.id}/{i:05d}" for i in range(n)],
        "group_id": [f"{space.id}::{g}" for g in groups],
        "quarantine": pl.Series(quarantine or [None] * n, dtype=pl.String),
        "pixel_digest": [f"digest{i}" for i in range(n)],
    }
    if space.task == "multilabel":
        for position, name in enumerate(space.classes):
            columns[f"label:{name}"] = pl.Series([row[position] for row in labels], dtype=pl.Int8)
    else:
        columns["label"] = pl.Series(labels, dtype=pl.Int16)
    return pl.DataFrame(columns)


def random_index(space, n_groups, seed, largest=4):
    """An index with groups of 1 to ``largest`` images, class frequencies 60, 30, 10 %, and some quarantined rows."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(n_groups), rng.integers(1, largest + 1, n_groups)).tolist()
    if space.task == "multilabel":
        cells = rng.choice([1, 0, -1, None], size=(len(groups), 3), p=[0.2, 0.3, 0.1, 0.4])
        labels = [tuple(row) for row in cells]
    else:
        of_group = rng.choice(3, size=n_groups, p=[0.6, 0.3, 0.1])
        labels = of_group[groups].tolist()
    quarantine = [None if rng.random() > 0.03 else "unreadable" for _ in groups]
    return make_index(groups, labels, space, quarantine)


def sha(text):
    return hashlib.sha256(text.encode()).digest()


def test_test_set_by_hand():
    # One stratum of ten one-image groups: the two with the smallest hashes reach 20 %.
    index = make_index(range(10), [0] * 10, SKIN)
    by_hash = sorted(index["group_id"], key=lambda group: sha(f"crs-v1|test|skin|{group}"))
    chosen = index.filter(assign_test(index, SKIN, PROTOCOL))["group_id"]
    assert set(chosen) == set(by_hash[:2])


def test_a_group_is_taken_whole_until_the_images_first_reach_the_fraction():
    # 3 groups of 4 images: 20 % of 12 is 2.4, so the first group by hash (4 images) is enough.
    index = make_index(np.repeat(range(3), 4), [0] * 12, SKIN)
    assert assign_test(index, SKIN, PROTOCOL).sum() == 4


def test_each_stratum_gives_its_own_share():
    # 50 A, 10 B, 5 C in groups of one: ceil(10), ceil(2), ceil(1) images go to test.
    index = make_index(range(65), [0] * 50 + [1] * 10 + [2] * 5, SKIN)
    test = index.filter(assign_test(index, SKIN, PROTOCOL))
    assert test["label"].value_counts().sort("label")["count"].to_list() == [10, 2, 1]


def test_the_stratum_is_the_rarest_positive_label_and_ties_go_to_class_order():
    # Positives: P 6, Q 3, R 3. The groups holding Q and R belong to Q (tie, class order), so R has no stratum of its
    # own; 5 groups without any positive are a fourth stratum. Each stratum gives ceil(20 %): P 3 -> 1, Q 3 -> 1, none
    # 5 -> 1.
    cells = [(1, 0, 0)] * 3 + [(1, 1, 1)] * 3 + [(0, 0, 0)] * 5
    index = make_index(range(11), cells, CHEST)
    test = index.filter(assign_test(index, CHEST, PROTOCOL))
    drawn = sorted(zip(test["label:P"], test["label:Q"], test["label:R"], strict=True))
    assert drawn == [(0, 0, 0), (1, 0, 0), (1, 1, 1)]


def test_roles_by_hand():
    # 100 one-image groups of one class: 20 test, then 80 in hash order: 56 train, 12 validation, 12 calibration.
    index = make_index(range(100), [0] * 100, SKIN)
    splits = split_seed(index, SKIN, 3, PROTOCOL)
    role = dict(splits.frame.select("image_id", "role").iter_rows())
    rest = index.filter(~assign_test(index, SKIN, PROTOCOL))
    by_hash = sorted(rest.iter_rows(named=True), key=lambda row: sha(f"crs-v1|split|skin|3|{row['group_id']}"))
    expected = ["train"] * 56 + ["validation"] * 12 + ["calibration"] * 12
    assert [role[row["image_id"]] for row in by_hash] == expected


def naive_subset(rows, fraction, least=0):
    """The text of the protocol, one group at a time, for groups of one class each (independent reference)."""
    strata = {}
    for group, images, label, key in sorted(rows, key=lambda row: row[3]):
        strata.setdefault(label, []).append((group, images, key))
    order = []
    for label, members in strata.items():
        for rank, (group, images, key) in enumerate(members):
            order.append(((rank + 0.5) / len(members), key, group, images, label))
    order.sort()
    seen, first, later = set(), [], []
    for item in order:
        (first if item[4] not in seen else later).append(item)
        seen.add(item[4])
    target = max(round(Fraction(str(fraction)) * sum(row[1] for row in rows)), least)
    taken, total = [], 0
    for position, item in enumerate(first + later):
        if position >= len(first) and total >= target:
            break
        taken.append(item[2])
        total += item[3]
    return set(taken), total


@pytest.mark.parametrize(("role", "column", "least"), [("train", "n_fit", 0), ("validation", "n_val", 100)])
@pytest.mark.parametrize("fraction", PROTOCOL.data.fractions)
def test_label_subsets_agree_with_a_reference_written_from_the_text(role, column, least, fraction):
    index = random_index(SKIN, 500, seed=11).filter(pl.col("quarantine").is_null())
    splits = split_seed(index, SKIN, 1, PROTOCOL)
    members = index.join(splits.frame, on="image_id").filter(pl.col("role") == role)
    groups = members.group_by("group_id").agg(pl.len(), pl.col("label").first())
    rows = [(g, n, label, sha(f"crs-v1|split|skin|1|{g}")) for g, n, label in groups.iter_rows()]
    expected, total = naive_subset(rows, fraction, least)
    chosen = members.filter(pl.col("image_id").is_in(splits.ids(role, fraction).to_list()))
    assert set(chosen["group_id"]) == expected
    assert splits.sizes.filter(pl.col("fraction") == fraction)[column].item() == total == chosen.height


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    space=st.sampled_from([SKIN, CHEST]),
    n_groups=st.integers(1, 120),
    seed=st.integers(0, 10_000),
    largest=st.integers(1, 30),
)
def test_properties_of_every_split(space, n_groups, seed, largest):
    index = random_index(space, n_groups, seed, largest)
    usable = index.filter(pl.col("quarantine").is_null())
    test_sets = set()
    for split_number in (0, 1):
        splits = split_seed(index, space, split_number, PROTOCOL)
        check_no_leak(index, splits)
        assert splits.frame["image_id"].to_list() == usable["image_id"].sort().to_list()
        assert set(splits.frame["role"]) <= {"train", "validation", "calibration", "test"}
        test_sets.add(tuple(splits.ids("test")))
        outside = splits.frame.filter(pl.col("role").is_in(["test", "calibration"]))
        assert outside["enters_at"].null_count() == outside.height
        assert_subsets(index, space, splits)
    assert len(test_sets) == 1
    assert set(assign_test(index, space, PROTOCOL).is_null().to_list()) == set(
        (~index["image_id"].is_in(usable["image_id"].to_list())).to_list()
    )


def assert_subsets(index, space, splits):
    train = index.join(splits.frame.filter(pl.col("role") == "train"), on="image_id")
    group_sizes = train["group_id"].value_counts()["count"]
    previous = set()
    for fraction, n_fit, n_val, floor in splits.sizes.iter_rows():
        subset = set(splits.ids("train", fraction))
        assert previous <= subset
        previous = subset
        assert len(subset) == n_fit
        assert len(splits.ids("validation", fraction)) == n_val >= min(100, len(splits.ids("validation")))
        if train.height:
            assert n_fit >= round(Fraction(str(fraction)) * train.height)
            assert floor or n_fit < round(Fraction(str(fraction)) * train.height) + group_sizes.max()
            chosen = train.filter(pl.col("image_id").is_in(list(subset)))
            assert (
                chosen["group_id"].n_unique()
                == train.filter(pl.col("group_id").is_in(chosen["group_id"].to_list()))["group_id"].n_unique()
            )
            assert held(chosen, space) == held(train, space)
    assert previous == set(train["image_id"])
    assert splits.distinct_fractions == (splits.sizes["n_fit"].n_unique() == splits.sizes.height)


def held(rows, space):
    """The classes held, for multilabel with their signs; a blank is a negative unless the whole row is blank."""
    if space.task == "multiclass":
        return set(rows["label"])
    columns = [f"label:{name}" for name in space.classes]
    observed = rows.filter(~pl.all_horizontal(pl.col(columns).is_null()))
    return {(c, v) for c in columns for v in observed[c].fill_null(0) if v in (0, 1)}


def test_row_order_does_not_matter():
    index = random_index(CHEST, 200, seed=5)
    shuffled = index.sample(fraction=1, shuffle=True, seed=1)
    assert split_seed(shuffled, CHEST, 0, PROTOCOL).frame.equals(split_seed(index, CHEST, 0, PROTOCOL).frame)
    aligned = shuffled.with_columns(assign_test(shuffled, CHEST, PROTOCOL)).sort("image_id")["is_test"]
    assert aligned.equals(assign_test(index, CHEST, PROTOCOL))


def test_seeds_differ():
    index = random_index(SKIN, 200, seed=5)
    assert split_seed(index, SKIN, 0, PROTOCOL).digest != split_seed(index, SKIN, 1, PROTOCOL).digest


GOLDEN_SCRIPT = """
import sys
import polars as pl
from types import SimpleNamespace
from crs_assets.science.protocol import load_protocol
from crs_assets.science.splits import split_seed
n = 300
index = pl.DataFrame({
    "image_id": [f"g/{i}" for i in range(n)],
    "group_id": [f"g::{i // 3 if i % 2 else i}" for i in range(n)],
    "quarantine": pl.Series([None] * n, dtype=pl.String),
    "label": pl.Series([(i * i) % 7 % 4 for i in range(n)], dtype=pl.Int16),
})
space = SimpleNamespace(id="golden", task="multiclass", classes=("a", "b", "c", "d"))
print(split_seed(index, space, 2, load_protocol("crs-v1")).digest)
"""
# Change detection: a different digest is a different benchmark, and every published number with it.
GOLDEN = "ff059685efa9aeb3dd5c7b44cb3e05ef02e32212f5b48893d02c651e0ec3e0fd"


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONHASHSEED": "1", "POLARS_MAX_THREADS": "1"}, {"PYTHONHASHSEED": "2", "POLARS_MAX_THREADS": "2"}],
)
def test_golden_digest_in_separate_processes(environment, monkeypatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run([sys.executable, "-c", GOLDEN_SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == GOLDEN


def test_floor_is_marked_and_equal_subsets_are_said():
    # 60 one-image groups, 3 classes: 12 test, train 34 (17 + 12 + 6 by strata of 40, 13, 7): at 1 and 5 % the three
    # first groups, one of each class, are the whole subset.
    index = make_index(range(60), [0] * 40 + [1] * 13 + [2] * 7, SKIN)
    splits = split_seed(index, SKIN, 0, PROTOCOL)
    sizes = splits.sizes.filter(pl.col("fraction") <= 0.05)
    assert sizes["n_fit"].to_list() == [3, 3]
    assert sizes["floor"].to_list() == [True, True]
    assert not splits.distinct_fractions
    assert not splits.sizes["floor"][-1]


def test_a_recorded_test_set_is_kept_and_a_divided_one_refused():
    index = make_index(range(20), [0] * 20, SKIN)
    official = index.with_columns(pl.Series("is_test", [i < 7 for i in range(20)]))
    assert split_seed(official, SKIN, 0, PROTOCOL).ids("test").to_list() == official["image_id"][:7].to_list()
    one_group = official.with_columns(pl.lit("skin::one").alias("group_id"))
    with pytest.raises(ValueError, match="1 groups lie partly in the test set"):
        split_seed(one_group, SKIN, 0, PROTOCOL)


def test_an_unusable_index_is_refused_with_all_problems():
    index = make_index(range(4), [0] * 4, SKIN).with_columns(
        pl.Series("image_id", ["a", "a", "b", "c"]), pl.Series("group_id", ["g", "g", None, "h"])
    )
    with pytest.raises(ValueError, match=r"1 image ids repeat.*1 usable rows have no group_id"):
        assign_test(index, SKIN, PROTOCOL)
    with pytest.raises(ValueError, match=r"lacks the columns \['quarantine'\]"):
        assign_test(index.drop("quarantine"), SKIN, PROTOCOL)


def test_an_unknown_fraction_is_refused():
    splits = split_seed(make_index(range(20), [0] * 20, SKIN), SKIN, 0, PROTOCOL)
    with pytest.raises(ValueError, match=r"no label fraction 0.3"):
        splits.ids("train", 0.3)


def test_a_leak_is_refused_and_counted():
    index = make_index(range(60), [0] * 60, SKIN)
    splits = split_seed(index, SKIN, 0, PROTOCOL)
    check_no_leak(index, splits)
    train, test = splits.ids("train"), splits.ids("test")
    pairs = {train[0]: test[0], train[1]: test[1]}
    joined = index.with_columns(pl.col("image_id").replace(pairs).alias("group_id"))
    with pytest.raises(LeakError, match=r"skin, seed 0: 2 groups are on two sides"):
        check_no_leak(joined, splits)
    copied = index.with_columns(
        pl.when(pl.col("image_id").is_in([train[0], test[0]]))
        .then(pl.lit("same"))
        .otherwise("pixel_digest")
        .alias("pixel_digest")
    )
    with pytest.raises(LeakError, match="1 groups of identical images are on two sides"):
        check_no_leak(copied, splits)


def test_rows_without_a_role_and_quarantined_rows_with_one_are_refused():
    index = make_index(range(60), [0] * 60, SKIN)
    splits = split_seed(index[:50], SKIN, 0, PROTOCOL)
    later = index.with_columns(
        pl.when(pl.col("image_id") == index["image_id"][0])
        .then(pl.lit("black"))
        .otherwise("quarantine")
        .alias("quarantine")
    )
    with pytest.raises(LeakError, match=r"10 usable rows have no role; 1 quarantined rows have a role"):
        check_no_leak(later, splits)
    with pytest.raises(LeakError, match="1 rows are not in the index"):
        check_no_leak(index[1:50], splits)


def test_eligibility_applies_every_rule():
    # A and B are frequent. C: 48 images give ceil(9.6) = 10 in test. D: 44 give ceil(8.8) = 9, one too few.
    space = Space("k", "multiclass", ("A", "B", "C", "D"))
    index = make_index(range(392), [0] * 200 + [1] * 100 + [2] * 48 + [3] * 44, space)
    splits = [split_seed(index, space, seed, PROTOCOL) for seed in PROTOCOL.data.seeds]
    table = eligible_classes(index, space, splits, PROTOCOL)
    assert eligible_names(table) == ("A", "B", "C")
    assert table["test_positives"].to_list() == [40, 20, 10, 9]
    # 79 in test, so negatives are what is left.
    assert table["test_negatives"].to_list() == [39, 59, 69, 70]
    # Every image is of another group.
    assert table["test_positive_groups"].to_list() == table["test_positives"].to_list()
    assert table["train_negative_groups"].to_list() == table["train_negatives"].to_list()
    assert table["reason"].to_list() == [None, None, None, "9 test positives, 10 needed"]
    with pytest.raises(ValueError, match=r"missing \[4\]"):
        eligible_classes(index, space, splits[:4], PROTOCOL)


def test_groups_of_a_class_are_counted_once_and_fewest_over_the_seeds():
    space = Space("k", "multiclass", ("A", "B"))
    # Forty people with three images each; a person's images are never divided, so a third as many are people.
    index = make_index([number // 3 for number in range(120)], [0] * 60 + [1] * 60, space)
    splits = [split_seed(index, space, seed, PROTOCOL) for seed in PROTOCOL.data.seeds]
    table = eligible_classes(index, space, splits, PROTOCOL)
    for name in ("test_positive", "test_negative", "train_positive", "validation_negative"):
        assert [3 * count for count in table[f"{name}_groups"]] == table[f"{name}s"].to_list()


def test_uncertain_cells_count_for_neither_sign():
    cells = [(1, 0, -1)] * 50 + [(0, 1, -1)] * 50
    index = make_index(range(100), cells, CHEST)
    splits = [split_seed(index, CHEST, seed, PROTOCOL) for seed in PROTOCOL.data.seeds]
    table = eligible_classes(index, CHEST, splits, PROTOCOL)
    assert eligible_names(table) == ("P", "Q")
    assert table["test_negatives"].to_list() == [10, 10, 0]
    assert "0 validation negatives, 2 needed" in table["reason"][2]


def test_target_classes_are_matched_by_name():
    target_space = Space("target", "multilabel", ("R", "Q", "P"))
    cells = [(1, 1, 1)] * 10 + [(0, 0, 1)] * 10
    target = make_index(range(20), cells, target_space)
    table = eligible_target_classes(target, target_space, ["P", "Q", "S"], PROTOCOL)
    assert table["class"].to_list() == ["Q", "P", "S"]
    assert eligible_names(table) == ("Q",)
    assert table["reason"].to_list() == [None, "0 test negatives, 10 needed", "not a label of the target"]
