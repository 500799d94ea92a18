"""One cell and seed: fit the linear probe at every label fraction, choose the penalty, predict everywhere."""

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science.labels import LabelSpace, fit_labels
from crs_assets.science.probes import (
    LambdaChoice,
    LinearPath,
    fit_linear_path,
    predict_logits,
    select_lambda,
    standardisation,
    validation_log_loss,
)
from crs_assets.science.protocol import ProbeProtocol, Protocol
from crs_assets.science.splits import TRAIN, VALIDATION

Float32 = NDArray[np.float32]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class ProbeTask:
    """What a linear probe is fitted on.

    Attributes:
        features: (n, d) float32, one row per usable image in index order; may be memory-mapped.
        index: The usable rows of the index, in the same order.
        splits: ``image_id``, ``role``, ``enters_at``, in the same order.
        space: Classes and kind of problem.
    """

    features: Float32
    index: pl.DataFrame
    splits: pl.DataFrame
    space: LabelSpace

    def __post_init__(self) -> None:
        if not self.index["image_id"].equals(self.splits["image_id"]) or len(self.features) != self.index.height:
            raise ValueError(
                f"{self.space.id}: features ({len(self.features)} rows), index ({self.index.height}) and splits "
                f"({self.splits.height}) do not list the same images; materialize features and splits again."
            )

    def rows(self, role: str, fraction: float = 1.0) -> Rows:
        """Positions of a role, for train and validation those of a label fraction."""
        member = (self.splits["role"] == role) & (self.splits["enters_at"].fill_null(0.0) <= fraction)
        return np.flatnonzero(member.to_numpy())


@dataclass(frozen=True)
class FittedProbe:
    """The linear probes of one cell and seed.

    Attributes:
        path: Every (fraction, lambda, problem).
        choices: The chosen penalty of each problem, per fraction.
        fractions: Label fractions, ascending.
        n_fit: Train images per fraction.
        n_val: Validation images per fraction.
    """

    path: LinearPath
    choices: tuple[LambdaChoice, ...]
    fractions: tuple[float, ...]
    n_fit: tuple[int, ...]
    n_val: tuple[int, ...]

    def chosen(self, position: int) -> tuple[Float32, NDArray[np.floating[Any]]]:
        """Weights (C, d) and intercepts (C,) of a fraction at the chosen penalties."""
        index = self.choices[position].index
        weights, intercepts = self.path.weights[position], self.path.intercepts[position]
        classes = weights.shape[1]
        per_class = np.broadcast_to(index, (classes,))
        return weights[per_class, np.arange(classes)], intercepts[per_class, np.arange(classes)]

    def converged(self, position: int, problems: Sequence[int]) -> bool:
        """Whether the chosen fit of each of these problems met the gap."""
        index = self.choices[position].index
        return all(bool(self.path.converged[position, index[problem], problem]) for problem in problems)

    def logits(self, position: int, features: Float32) -> Float32:
        """Logits (n, C) float32 of a fraction's probe."""
        weights, intercepts = self.chosen(position)
        return predict_logits(features, weights, intercepts)


def fit_probe(
    task: ProbeTask,
    protocol: Protocol,
    *,
    fractions: Sequence[float] | None = None,
    labels: NDArray[Any] | None = None,
    device: str = "cpu",
) -> FittedProbe:
    """Fit and select at each label fraction; the test split is not looked at.

    Args:
        task: Features, labels and splits.
        protocol: Penalties, floors, convergence, label policy.
        fractions: Label fractions; the protocol's by default.
        labels: Labels to fit instead of the index's own (a null control).
        device: Where to solve.
    """
    fractions = tuple(fractions or protocol.data.fractions)
    settings, space = protocol.probe, task.space
    y = fit_labels(task.index, space, protocol.data.uncertain_labels) if labels is None else labels
    mean, scale = standardisation(
        task.features, task.rows(TRAIN), std_floor=settings.std_floor, std_zero=settings.std_zero
    )
    train_sets = [task.rows(TRAIN, fraction) for fraction in fractions]
    path = fit_linear_path(
        task.features,
        y,
        train_sets,
        settings.lambdas,
        kind="multilabel" if space.task == "multilabel" else "multiclass",
        mean=mean,
        scale=scale,
        gap=settings.gap,
        max_iterations=settings.max_iterations,
        device=device,
    )
    validation_sets = [task.rows(VALIDATION, fraction) for fraction in fractions]
    choices = tuple(
        choose_lambda(path, task, y, rows, position, settings) for position, rows in enumerate(validation_sets)
    )
    return FittedProbe(
        path=path,
        choices=choices,
        fractions=fractions,
        n_fit=tuple(len(rows) for rows in train_sets),
        n_val=tuple(len(rows) for rows in validation_sets),
    )


def choose_lambda(
    path: LinearPath,
    task: ProbeTask,
    labels: NDArray[Any],
    rows: Rows,
    position: int,
    settings: ProbeProtocol,
) -> LambdaChoice:
    """The penalty of each problem of one label fraction, by log loss on validation rows.

    Args:
        path: Fitted probes.
        task: What they were fitted on.
        labels: Labels to fit, as ``fit_labels`` gives them.
        rows: Positions of the validation rows.
        position: Of the label fraction.
        settings: The penalty grid, and what a label needs to choose for itself.
    """
    return select_lambda(
        validation_log_loss(path, task.features, labels, rows, position),
        _validation_counts(labels[rows]),
        settings.lambdas,
        min_validation=settings.lambda_min_validation,
    )


def _validation_counts(labels: NDArray[Any]) -> NDArray[np.int64] | None:
    """Smaller of positives and negatives of each label (L,); None for a softmax problem, which is one problem."""
    if labels.ndim == 1:
        return None
    fewer: NDArray[np.int64] = np.minimum((labels == 1).sum(axis=0), (labels == 0).sum(axis=0)).astype(np.int64)
    return fewer


class FittedFractions(typing.Protocol):
    """A probe of any kind, fitted at every label fraction."""

    @property
    def fractions(self) -> tuple[float, ...]:
        """Label fractions, ascending."""

    def logits(self, position: int, features: Float32) -> Float32:
        """Logits (n, C) float32 of a fraction's probe."""


def prediction_frame(
    probe: FittedFractions, inputs: Mapping[tuple[str, str], tuple[Sequence[str], Float32]]
) -> pl.DataFrame:
    """Logits of every fraction's probe on every set of images.

    Args:
        probe: The fitted probes.
        inputs: (role, condition) -> image ids and features.

    Returns:
        Columns ``fraction``, ``role``, ``condition``, ``image_id``, ``logits`` (array of float32, one per class).
    """
    frames = []
    for position, fraction in enumerate(probe.fractions):
        for (role, condition), (ids, features) in inputs.items():
            logits = probe.logits(position, features)
            frames.append(
                pl.DataFrame(
                    {
                        "fraction": np.full(len(ids), fraction),
                        "role": [role] * len(ids),
                        "condition": [condition] * len(ids),
                        "image_id": list(ids),
                        "logits": pl.Series(logits, dtype=pl.Array(pl.Float32, logits.shape[1])),
                    }
                )
            )
    return pl.concat(frames)
