"""The benchmark of one encoder on one data set as one would write it first: timm, torchvision, scikit-learn.

Every image is opened anew for every condition, prepared by torchvision's transforms, and encoded in batches with
torch's own threads. One logistic regression per penalty, label fraction and seed; the penalty is chosen on validation
log loss; scikit-learn's metrics of every fraction and condition. The pixels of a degradation are the project's, so that
both sides measure the same images.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    cohen_kappa_score,
    log_loss,
    roc_auc_score,
)
from sklearn.preprocessing import StandardScaler
from torchvision import transforms

from crs_assets.science.encoders import EncoderSpec
from crs_assets.science.images import degrade
from crs_assets.science.protocol import CLEAN, Condition, Protocol

MAX_ITERATIONS = 10_000
FILTERS = {
    "bilinear": transforms.InterpolationMode.BILINEAR,
    "bicubic": transforms.InterpolationMode.BICUBIC,
}


@dataclass(frozen=True)
class Task:
    """A multiclass data set as it lies on disk, with the splits to use.

    Attributes:
        dataset: Id.
        ids: Image ids.
        paths: Image files, in the same order.
        labels: (n,) class indices.
        roles: Seed -> role of each image.
        enters_at: Seed -> label fraction from which on each image is used, NaN for one that always is.
        scored: Class indices that enter the macro-averages.
    """

    dataset: str
    ids: Sequence[str]
    paths: Sequence[Path]
    labels: np.ndarray
    roles: Mapping[int, np.ndarray]
    enters_at: Mapping[int, np.ndarray]
    scored: Sequence[int]

    def rows(self, seed: int, role: str, fraction: float = 1.0) -> np.ndarray:
        """Positions of a role's images at a label fraction."""
        return np.flatnonzero((self.roles[seed] == role) & ~(self.enters_at[seed] > fraction))


def encode(
    task: Task, model: torch.nn.Module, spec: EncoderSpec, protocol: Protocol, batch_size: int
) -> dict[str, np.ndarray]:
    """Condition -> features: of every image clean, of the test images under every degradation."""
    test = task.rows(next(iter(task.roles)), "test")
    conditions = [(Condition(perturbation=CLEAN), np.arange(len(task.ids)))]
    conditions += [(condition, test) for condition in protocol.degradations()]
    return {
        condition.name: _encode_condition(task, rows, condition, model, spec, protocol, batch_size)
        for condition, rows in conditions
    }


def _encode_condition(
    task: Task,
    rows: np.ndarray,
    condition: Condition,
    model: torch.nn.Module,
    spec: EncoderSpec,
    protocol: Protocol,
    batch_size: int,
) -> np.ndarray:
    transform, features = _transform(spec), []
    for start in range(0, len(rows), batch_size):
        images = [transform(_open(task, row, condition, protocol)) for row in rows[start : start + batch_size]]
        with torch.inference_mode():
            features.append(model.forward_features(torch.stack(images)).mean((2, 3)).numpy())
    return np.concatenate(features)


def _open(task: Task, row: int, condition: Condition, protocol: Protocol) -> Image.Image:
    image = Image.open(task.paths[row]).convert("RGB")
    if condition.perturbation == CLEAN:
        return image
    return Image.fromarray(
        degrade(
            np.asarray(image),
            dataset=task.dataset,
            image_id=task.ids[row],
            perturbation=condition.perturbation,
            severity=condition.severity,
            protocol=protocol,
        )
    )


def _transform(spec: EncoderSpec) -> transforms.Compose:
    preprocessing = spec.preprocessing
    if preprocessing.resize != "shortest" or preprocessing.colour != "rgb":
        raise SystemExit(f"{spec.id}: this script resizes the short side of RGB images, as most networks do.")
    side = preprocessing.input_size
    return transforms.Compose(
        [
            transforms.Resize(preprocessing.resize_to or side, FILTERS[preprocessing.interpolation]),
            transforms.CenterCrop(side),
            transforms.ToTensor(),
            transforms.Normalize(preprocessing.mean, preprocessing.std),
        ]
    )


def evaluate(
    task: Task, features: Mapping[str, np.ndarray], protocol: Protocol, tolerance: float = 1e-4
) -> dict[tuple[int, float, str], dict]:
    """(seed, fraction, condition) -> metrics, of fits to scikit-learn's own tolerance unless another is given."""
    found = {}
    for seed in task.roles:
        scaler = _scaler(features[CLEAN][task.rows(seed, "train")], protocol)
        clean = scaler.transform(features[CLEAN])
        test = task.rows(seed, "test")
        by_condition = {name: clean[test] if name == CLEAN else scaler.transform(x) for name, x in features.items()}
        for fraction in protocol.data.fractions:
            train, validation = task.rows(seed, "train", fraction), task.rows(seed, "validation", fraction)
            model = _best(clean, task.labels, train, validation, protocol, tolerance)
            for condition, x in by_condition.items():
                found[seed, fraction, condition] = _metrics(task, model, x, task.labels[test])
    return found


def _scaler(train: np.ndarray, protocol: Protocol) -> StandardScaler:
    scaler = StandardScaler().fit(train)
    # The protocol's floor, without which the two sides would solve different problems.
    std, varies = np.sqrt(scaler.var_), np.sqrt(scaler.var_) >= protocol.probe.std_zero
    scaler.scale_ = np.where(varies, np.maximum(std, protocol.probe.std_floor * np.median(std[varies])), 1.0)
    return scaler


def _best(
    x: np.ndarray,
    labels: np.ndarray,
    train: np.ndarray,
    validation: np.ndarray,
    protocol: Protocol,
    tolerance: float,
) -> LogisticRegression:
    models = list(_path(x[train], labels[train], protocol, tolerance))
    losses = []
    for model in models:
        known = np.isin(labels[validation], model.classes_)
        losses.append(log_loss(labels[validation][known], _predict(model, x[validation][known]), labels=model.classes_))
    return models[int(np.argmin(losses))]


def _path(x: np.ndarray, labels: np.ndarray, protocol: Protocol, tolerance: float) -> Iterator[LogisticRegression]:
    for penalty in protocol.probe.lambdas:
        model = LogisticRegression(C=1 / (penalty * len(labels)), tol=tolerance, max_iter=MAX_ITERATIONS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            yield model.fit(x, labels)


def _predict(model: LogisticRegression, x: np.ndarray) -> np.ndarray:
    probabilities = model.predict_proba(x).astype(np.float64)
    # What float32 leaves of a sum of 1 is enough for a warning of every metric.
    return probabilities / probabilities.sum(axis=1, keepdims=True)


def _metrics(task: Task, model: LogisticRegression, x: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    probabilities = np.zeros((len(x), int(task.labels.max()) + 1))
    probabilities[:, model.classes_] = _predict(model, x)
    member = labels[:, None] == np.arange(probabilities.shape[1])
    predicted = probabilities.argmax(axis=1)
    pairs = [(member[:, k], probabilities[:, k]) for k in task.scored]
    return {
        "auroc": float(np.mean([roc_auc_score(*pair) for pair in pairs])),
        "auprc": float(np.mean([average_precision_score(*pair) for pair in pairs])),
        "accuracy": float(accuracy_score(labels, predicted)),
        "quadratic_weighted_kappa": float(cohen_kappa_score(labels, predicted, weights="quadratic")),
        "log_loss": float(log_loss(labels, probabilities, labels=np.arange(probabilities.shape[1]))),
        "brier": float(((probabilities - member) ** 2).sum(axis=1).mean()),
    }
