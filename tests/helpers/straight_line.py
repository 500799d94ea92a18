"""The tiny suite's numbers a second time, in straight lines: the protocol's text, hashlib, scikit-learn, plain numpy.

Nothing of the package is used.
"""

import csv
import hashlib

import numpy as np
import pyarrow as pa
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

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
