"""The whole chain against a second computation: the protocol's text, hashlib, timm, scikit-learn and plain numpy.

Nothing of the package's splits, probes, metrics, axes or scoring is used for the expected values.
"""

import csv
import hashlib
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from crs_assets.stages.data import read_classes, read_fractions, read_index, read_splits
from crs_assets.stages.probes import read_runs
from crs_assets.stages.scores import read_profile, read_score

SALT, SEEDS, FRACTIONS = "tiny-v1", (0, 1), (0.2, 0.5, 1.0)
NEARLY_TIED = 5e-4  # logits; both solvers stop at a relative gap of about 1e-8, so weights agree to about 1e-4
LAMBDAS = np.logspace(-3, 2, 5)
DEGRADED = ("contrast-1", "contrast-3", "jpeg-3")
SKIN = ("naevus", "melanoma", "keratosis")
CHEST = ("effusion", "oedema", "nodule", "rare")
AT_TARGET = ("nodule", "effusion")
MEMBERS = ("vit-a", "vit-b", "vit-c")
CELLS = [(encoder, dataset) for encoder in (*MEMBERS, "pixels-1") for dataset in ("tiny-skin", "tiny-chest")]


def sha(*parts):
    return hashlib.sha256("|".join(map(str, parts)).encode()).hexdigest()


class Reference:
    """Labels, roles, subsets, probes and scores of one data set and seed, straight from the protocol's text."""

    def __init__(self, home, dataset, seed):
        self.home, self.dataset, self.seed = home, dataset, seed
        self.multilabel = dataset == "tiny-chest"
        self.names = CHEST if self.multilabel else SKIN
        self.rows = sorted(manifest(home, dataset), key=lambda row: row["image_id"])
        self.ids = [f"{dataset}/{row['image_id']}" for row in self.rows]
        self.group = [f"{dataset}::{row['patient_id']}" for row in self.rows]
        self.labels = self.read_labels(self.rows, self.names)
        self.assign_roles()
        self.subsets = {role: self.nested(role) for role in ("train", "validation")}

    def read_labels(self, rows, names):
        if not self.multilabel:
            return np.array([[float(row["label"] == name) for name in names] for row in rows])
        table = np.full((len(rows), len(self.names)), np.nan)
        for i, row in enumerate(rows):
            cells = [row[f"label:{name}"] for name in names]
            for name, cell in zip(names, cells, strict=True):
                # Blank is negative unless the whole row is blank; -1 is masked.
                value = {"1": 1.0, "0": 0.0, "-1": np.nan, "": 0.0 if any(cells) else np.nan}[cell]
                table[i, self.names.index(name)] = value
        return table

    def assign_roles(self):
        counts = (self.labels == 1).sum(axis=0)
        self.stratum = {}
        for group in set(self.group):
            members = [i for i, other in enumerate(self.group) if other == group]
            held = [c for c in range(len(self.names)) if (self.labels[members, c] == 1).any()]
            self.stratum[group] = min(held, key=lambda c: (counts[c], c)) if held else -1
        self.size = {group: self.group.count(group) for group in self.stratum}
        test_order = {group: sha(SALT, "test", self.dataset, group) for group in self.stratum}
        self.order = {group: sha(SALT, "split", self.dataset, self.seed, group) for group in self.stratum}
        self.role = {}
        for stratum in set(self.stratum.values()):
            groups = sorted((g for g in self.stratum if self.stratum[g] == stratum), key=test_order.get)
            total, taken, rest = sum(map(self.size.get, groups)), 0, []
            for group in groups:
                if taken < 0.3 * total - 1e-9:
                    self.role[group] = "test"
                else:
                    rest.append(group)
                taken += self.size[group]
            total, taken = sum(map(self.size.get, rest)), 0
            for group in sorted(rest, key=self.order.get):
                share = taken + 1e-9
                below = "train" if share < 0.70 * total else "validation" if share < 0.85 * total else "calibration"
                self.role[group] = below
                taken += self.size[group]

    def nested(self, role):
        groups = [g for g in self.role if self.role[g] == role]
        place = {}
        for stratum in {self.stratum[g] for g in groups}:
            ordered = sorted((g for g in groups if self.stratum[g] == stratum), key=self.order.get)
            place |= {g: (rank + 0.5) / len(ordered) for rank, g in enumerate(ordered)}
        spread = sorted(groups, key=lambda g: (place[g], self.order[g]))
        holds = {g: self.labels[[i for i, other in enumerate(self.group) if other == g]] for g in groups}
        first = []
        for c in range(len(self.names)):
            for value in (1, 0) if self.multilabel else (1,):
                first += [g for g in spread if (holds[g][:, c] == value).any()][:1]
        line = [g for g in spread if g in first] + [g for g in spread if g not in first]
        total = sum(map(self.size.get, groups))
        subsets = {}
        for fraction in FRACTIONS:
            wanted = round(fraction * total)
            if role == "validation":
                wanted = max(wanted, min(8, total))
            taken, members = 0, set()
            for g in line:
                if taken < wanted or g in first:
                    members.add(g)
                taken += self.size[g]
            subsets[fraction] = np.array([i for i, g in enumerate(self.group) if g in members])
        return subsets

    def rows_of(self, role):
        return np.array([i for i, g in enumerate(self.group) if self.role[g] == role])

    def scored(self, every_seed):
        """K: at least 4, 3 and 1 positives and negatives in test, train and validation of every seed."""
        chosen = []
        for c in range(len(self.names)):
            enough = all(
                (one.labels[one.rows_of(role), c] == value).sum() >= least
                for one in every_seed
                for role, least in (("test", 4), ("train", 3), ("validation", 1))
                for value in (0, 1)
            )
            chosen += [c] if enough else []
        return chosen

    def standardise(self, features):
        train = features[self.rows_of("train")].astype(np.float64)
        std = train.std(axis=0)
        varies = std >= 1e-8
        floored = np.maximum(std, 0.25 * np.median(std[varies]))
        return lambda x: np.where(varies, (x.astype(np.float64) - train.mean(axis=0)) / floored, 0.0)

    def fit(self, features, fraction):
        """One softmax, or one sigmoid per label; the penalty with the least validation log loss, the larger of ties."""
        z = self.standardise(features)(features)
        train, validation = self.subsets["train"][fraction], self.subsets["validation"][fraction]
        if not self.multilabel:
            y = self.labels.argmax(axis=1)
            models = [regression(z[train], y[train], penalty) for penalty in LAMBDAS]
            losses = [
                -np.log(model.predict_proba(z[validation])[range(len(validation)), y[validation]]).mean()
                for model in models
            ]
            chosen = models[last_argmin(losses)]
            return lambda x: x @ chosen.coef_.T + chosen.intercept_
        models, losses, able = {}, {}, []
        for c in range(len(self.names)):
            y = self.labels[:, c]
            seen = train[~np.isnan(y[train])]
            judged = validation[~np.isnan(y[validation])]
            if len(set(y[seen])) < 2:
                continue
            models[c] = [regression(z[seen], y[seen], penalty) for penalty in LAMBDAS]
            losses[c] = [
                -np.log(model.predict_proba(z[judged])[range(len(judged)), y[judged].astype(int)]).mean()
                for model in models[c]
            ]
            able += [c] if min((y[judged] == 1).sum(), (y[judged] == 0).sum()) >= 3 else []
        common = last_argmin(np.mean([losses[c] for c in able or losses], axis=0))
        chosen = {c: models[c][last_argmin(losses[c]) if c in able else common] for c in models}

        def logits(x):
            out = np.full((len(x), len(self.names)), np.nan)
            for c, model in chosen.items():
                out[:, c] = x @ model.coef_[0] + model.intercept_[0]
            return out

        return logits


def regression(x, y, penalty):
    model = LogisticRegression(C=1 / (penalty * len(x)), tol=1e-10, max_iter=50_000)
    return model.fit(x, y)


def last_argmin(values):
    return len(values) - 1 - int(np.argmin(np.asarray(values)[::-1]))


def manifest(home, dataset):
    with (home / "data" / dataset / "manifest.csv").open() as file:
        return list(csv.DictReader(file))


def arrow(home, stage, encoder, image_set, name):
    (path,) = (home / "artifacts" / "tiny" / stage / encoder / image_set).glob(f"*/{name}.arrow")
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_file(file).read_all()
    return table["image_id"].to_pylist(), np.array(table["features"].to_pylist(), dtype=np.float32)


def softmax(logits):
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)


def binned_error(confidence, correct):
    """Expected calibration error, and how far it moves when probabilities that rounding may re-bin change bins."""
    bins = np.minimum(np.floor(15 * confidence), 14)
    error = sum(
        (bins == b).mean() * abs(confidence[bins == b].mean() - correct[bins == b].mean()) for b in np.unique(bins)
    )
    to_border = abs(15 * confidence - np.rint(15 * confidence)) / 15
    return error, 2 * (to_border < NEARLY_TIED / 4).mean()  # a sigmoid turns x logits into at most x / 4


def auroc(labels, logits, classes, multilabel):
    """Macro-AUROC by scikit-learn, and how far it moves when pairs that rounding may swap are lost or won."""
    scores = logits if multilabel else np.log(softmax(logits))
    values, slack = [], []
    for c in classes:
        seen = ~np.isnan(labels[:, c])
        truth, score = labels[seen, c], scores[seen, c]
        values.append(roc_auc_score(truth, score))
        gaps = score[truth == 1][:, None] - score[truth == 0]
        slack.append((abs(gaps) < NEARLY_TIED).mean())
    return float(np.mean(values)), float(np.mean(slack))


def calibration_error(labels, logits, classes, multilabel):
    if not multilabel:
        proba = softmax(logits)
        top = proba.argmax(axis=1)
        return binned_error(proba.max(axis=1), labels[range(len(labels)), top])
    seen = {c: ~np.isnan(labels[:, c]) for c in classes}
    errors = [binned_error(1 / (1 + np.exp(-logits[seen[c], c])), labels[seen[c], c]) for c in classes]
    return tuple(np.mean(errors, axis=0))


@pytest.fixture(scope="module")
def reference(finished_home):
    """(data set, seed) -> its reference; (encoder, data set, seed) -> {(fraction, condition): AUROC, ECE, slacks}."""
    splits = {
        (name, seed): Reference(finished_home, name, seed) for name in ("tiny-skin", "tiny-chest") for seed in SEEDS
    }

    @cache
    def numbers(encoder, dataset, seed):
        one = splits[dataset, seed]
        classes = one.scored([splits[dataset, other] for other in SEEDS])
        ids, features = arrow(finished_home, "features", encoder, dataset, "features")
        assert ids == one.ids
        test = one.rows_of("test")
        sets = {"clean": (one.labels[test], features[test], classes)}
        for condition in DEGRADED:
            ids, degraded = arrow(finished_home, "degraded_features", encoder, dataset, condition)
            assert ids == [one.ids[i] for i in test]
            sets[condition] = (one.labels[test], degraded, classes)
        if one.multilabel:
            rows = sorted(manifest(finished_home, "tiny-chest-b"), key=lambda row: row["image_id"])
            labels = one.read_labels(rows, AT_TARGET)
            both = [c for c in classes if min((labels[:, c] == 1).sum(), (labels[:, c] == 0).sum()) >= 4]
            sets["transfer"] = (labels, arrow(finished_home, "features", encoder, "tiny-chest-b", "features")[1], both)
            sets["source"] = (one.labels[test], features[test], both)
        scale, found = one.standardise(features), {}
        for fraction in FRACTIONS:
            logits = one.fit(features, fraction)
            for condition, (labels, x, chosen) in sets.items():
                predicted = logits(scale(x))
                area, swaps = auroc(labels, predicted, chosen, one.multilabel)
                error, moves = calibration_error(labels, predicted, chosen, one.multilabel)
                found[fraction, condition] = area, error, swaps, moves
        return found

    return splits, numbers


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dataset", ["tiny-skin", "tiny-chest"])
def test_every_image_has_the_role_and_subsets_of_the_protocols_text(finished, reference, dataset, seed):
    one = reference[0][dataset, seed]
    frame = read_splits(finished, dataset, seed)
    assert frame["image_id"].to_list() == one.ids
    assert frame["role"].to_list() == [one.role[g] for g in one.group]
    for role, fractions in one.subsets.items():
        for fraction, rows in fractions.items():
            mine = (frame["role"] == role) & (frame["enters_at"].fill_null(9.0) <= fraction)
            np.testing.assert_array_equal(np.flatnonzero(mine.to_numpy()), rows)
    sizes = read_fractions(finished, dataset, seed)
    assert sizes["n_fit"].to_list() == [len(one.subsets["train"][f]) for f in FRACTIONS]
    assert sizes["n_val"].to_list() == [len(one.subsets["validation"][f]) for f in FRACTIONS]
    eligible = read_classes(finished, dataset, seed).filter("eligible")["class"].to_list()
    every_seed = [reference[0][dataset, other] for other in SEEDS]
    assert eligible == [one.names[c] for c in one.scored(every_seed)]
    tested = read_index(finished, dataset).filter("is_test")["image_id"].to_list()
    assert tested == [one.ids[i] for i in one.rows_of("test")]


@pytest.mark.parametrize("dataset", ["tiny-skin", "tiny-chest"])
def test_features_are_those_of_the_network_on_the_image(finished_home, dataset):
    import timm
    import torch
    from safetensors.torch import load_file

    kwargs = {"img_size": 32, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", num_classes=0, **kwargs).eval()
    model.load_state_dict(load_file(finished_home / "weights" / "tests" / "vit-b" / "model.safetensors"))

    def encoded(images):
        resized = [image.convert("RGB").resize((32, 32), Image.Resampling.BILINEAR) for image in images]
        batch = torch.from_numpy(np.stack([np.asarray(image) for image in resized])).permute(0, 3, 1, 2) / 255
        with torch.inference_mode():
            return model.forward_features((batch - 0.5) / 0.5)[:, 0].numpy()

    def faded(image):
        # Every value half way to a quarter towards the mean BT.601 luma.
        pixels = np.asarray(image).astype(np.float32)
        luma = pixels @ np.array([0.299, 0.587, 0.114]) if pixels.ndim == 3 else pixels
        return Image.fromarray(np.clip(np.rint(luma.mean() + 0.25 * (pixels - luma.mean())), 0, 255).astype(np.uint8))

    rows = {row["image_id"]: row["path"] for row in manifest(finished_home, dataset)}
    for stage, name, change in (
        ("features", "features", lambda image: image),
        ("degraded_features", "contrast-3", faded),
    ):
        ids, stored = arrow(finished_home, stage, "vit-b", dataset, name)
        images = [Image.open(finished_home / "data" / dataset / rows[i.removeprefix(f"{dataset}/")]) for i in ids]
        # Rounding of the degraded pixel at exactly one half may differ between two ways to compute the mean.
        tolerance = 1e-5 if stage == "features" else 2e-2
        np.testing.assert_allclose(stored, encoded([change(image) for image in images]), atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(("encoder", "dataset"), CELLS)
def test_every_run_has_the_auroc_and_calibration_error_of_scikit_learn(finished, reference, encoder, dataset):
    equal = []
    for seed in SEEDS:
        expected = reference[1](encoder, dataset, seed)
        runs = read_runs(finished, encoder, f"{dataset}.s{seed}")
        assert runs.height == len(FRACTIONS) * (1 + len(DEGRADED) + (dataset == "tiny-chest"))
        assert runs["converged"].all()
        for row in runs.iter_rows(named=True):
            area, error, swaps, moves = expected[row["fraction"], row["condition"]]
            where = f"{encoder} {dataset} seed {seed} {row['fraction']} {row['condition']}"
            assert row["auroc"] == pytest.approx(area, abs=1e-4 + swaps), where
            assert row["ece"] == pytest.approx(error, abs=1e-3 + moves), where
            equal.append(abs(row["auroc"] - area) < 1e-12 and abs(row["ece"] - error) < 1e-3)
            if row["condition"] == "transfer":
                source, _, swaps, _ = expected[row["fraction"], "source"]
                assert row["auroc_source"] == pytest.approx(source, abs=1e-4 + swaps), where
    assert np.mean(equal) > 0.8


def raw_axes(found, skill):
    clean, level = found[1.0, "clean"][0], 0.5 if skill else 0.0
    partial = [(found[f, "clean"][0] - level) / (clean - level) for f in (0.2, 0.5)]
    drops = [(clean - found[1.0, c][0]) / (clean - 0.5 if skill else 1) for c in DEGRADED]
    parts = [np.mean(drops), max(drops)]
    if (1.0, "transfer") in found:
        source = found[1.0, "source"][0]
        parts.append((source - found[1.0, "transfer"][0]) / (source - 0.5 if skill else 1))
    robust, inner = (float(np.mean(np.maximum(p, 0))) for p in (parts, parts[:2]))
    return [clean, found[1.0, "clean"][1], float(np.mean(partial)), robust], inner


def placed(raw, skill):
    """z: linear between the anchors, clipped, six decimals."""
    zero = (0.5, 0.25, 0.0 if skill else 0.5, 1.0 if skill else 0.25)
    one = (1.0, 0.0, 1.0, 0.0)
    return [round(min(max((r - a) / (b - a), 0.0), 1.0), 6) for r, a, b in zip(raw, zero, one, strict=True)]


@pytest.mark.parametrize("reading", ["tiny-v1", "tiny-v1-skill"])
@pytest.mark.parametrize("dataset", ["tiny-skin", "tiny-chest"])
def test_axes_and_score_follow_exactly_from_the_stored_runs(finished, dataset, reading):
    skill, z = reading.endswith("skill"), {}
    names = ("discrimination", "calibration", "label_efficiency", "robustness")
    for encoder in (*MEMBERS, "pixels-1"):
        seeds = []
        for seed in SEEDS:
            runs = read_runs(finished, encoder, f"{dataset}.s{seed}").to_dicts()
            found = {(row["fraction"], row["condition"]): (row["auroc"], row["ece"]) for row in runs}
            found |= {
                (row["fraction"], "source"): (row["auroc_source"],) for row in runs if row["condition"] == "transfer"
            }
            seeds.append(raw_axes(found, skill)[0])
        stored = read_profile(finished, encoder)["datasets"][dataset][reading]
        if stored["z"] is not None:
            z[encoder] = placed(np.mean(seeds, axis=0), skill)
            np.testing.assert_allclose([stored["raw"][name] for name in names], np.mean(seeds, axis=0), rtol=1e-13)
            assert [stored["z"][name] for name in names] == z[encoder]
    assert set(MEMBERS) <= set(z)
    for encoder, mine in z.items():
        peers = [z[other] for other in MEMBERS if other != encoder]
        beaten = sum(all(a >= b for a, b in zip(mine, peer, strict=True)) and mine != peer for peer in peers)
        closeness = 1 - sum((1 - value) ** 2 for value in mine) ** 0.5 / 2
        score = read_score(finished, encoder)["readings"][reading]["datasets"][dataset]
        assert (score["dominated"], score["peers"], score["worst_axis"]) == (beaten, len(peers), min(mine))
        expected = 0.60 * beaten / len(peers) + 0.25 * closeness + 0.15 * min(mine)
        assert score["crs"] == pytest.approx(expected, abs=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("reading", ["tiny-v1", "tiny-v1-skill"])
@pytest.mark.parametrize("dataset", ["tiny-skin", "tiny-chest"])
def test_axes_and_score_are_those_worked_out_by_hand(finished, reference, dataset, reading):
    skill = reading.endswith("skill")
    names = ("discrimination", "calibration", "label_efficiency", "robustness")
    seeds = {e: [raw_axes(reference[1](e, dataset, seed), skill) for seed in SEEDS] for e in (*MEMBERS, "pixels-1")}
    raw = {encoder: np.mean([axes for axes, _ in both], axis=0) for encoder, both in seeds.items()}
    z = {encoder: placed(axes, skill) for encoder, axes in raw.items()}
    for encoder, mine in z.items():
        stored = read_profile(finished, encoder)["datasets"][dataset][reading]
        if stored["z"] is None:
            assert skill
            assert min(axes[0] for axes, _ in seeds[encoder]) < 0.55
            continue
        np.testing.assert_allclose([stored["raw"][name] for name in names], raw[encoder], atol=5e-3)
        without = np.mean([inner for _, inner in seeds[encoder]])
        np.testing.assert_allclose(stored["robustness_without_transfer"], without, atol=2e-3)
        np.testing.assert_allclose([stored["z"][name] for name in names], mine, atol=2e-2)
        peers = [z[other] for other in MEMBERS if other != encoder]
        beaten = sum(all(a >= b for a, b in zip(mine, peer, strict=True)) and mine != peer for peer in peers)
        closeness = 1 - sum((1 - value) ** 2 for value in mine) ** 0.5 / 2
        score = read_score(finished, encoder)["readings"][reading]["datasets"][dataset]
        assert (score["dominated"], score["peers"]) == (beaten, len(peers))
        expected = 0.60 * beaten / len(peers) + 0.25 * closeness + 0.15 * min(mine)
        assert score["crs"] == pytest.approx(expected, abs=5e-3)
    complete = read_score(finished, "vit-a")["readings"]["tiny-v1"]
    both = [entry["crs"] for entry in complete["datasets"].values()]
    assert complete["aggregate"]["crs"] == pytest.approx(sum(both) / 2, abs=1e-15)
