"""The control probes of one cell and seed, fitted at every label fraction: what the linear probe's ranking rests on."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.science.labels import fit_labels
from crs_assets.science.probes.knn import NearestNeighbours, fit_neighbours
from crs_assets.science.probes.mlp import Perceptron, fit_perceptron
from crs_assets.science.probes.standardisation import standardisation
from crs_assets.science.probing import ProbeTask
from crs_assets.science.protocol import Protocol
from crs_assets.science.seeding import generator
from crs_assets.science.splits import TRAIN, VALIDATION

MLP = "mlp"
KNN = "knn"
CONTROL_PROBES = (MLP, KNN)

FIT_SCHEMA = {
    "fraction": pl.Float64,
    "problem": pl.Int64,
    "converged": pl.Boolean,
    "at_edge": pl.Boolean,
    "weight_decay": pl.Float64,
    "epochs": pl.Int64,
    "validation_log_loss": pl.Float64,
}


@dataclass(frozen=True)
class ControlFits:
    """One kind of control probe at every label fraction.

    Attributes:
        probes: One per fraction.
        fractions: Label fractions, ascending.
    """

    probes: tuple[Perceptron | NearestNeighbours, ...]
    fractions: tuple[float, ...]

    def logits(self, position: int, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits (n, C) float32 of a fraction's probe."""
        return self.probes[position].logits(features)

    def rows(self, problems: int) -> pl.DataFrame:
        """How each fit went, one row per fraction and problem.

        Args:
            problems: Labels of a multilabel set; 1 for a softmax.

        Returns:
            ``fraction``, ``problem``, ``converged`` (nearest neighbours: whether k rows could vote), ``at_edge``,
            ``weight_decay``, ``epochs``, ``validation_log_loss`` (null for nearest neighbours).
        """
        records = [
            {"fraction": fraction, "problem": problem, **_record(probe, problem)}
            for fraction, probe in zip(self.fractions, self.probes, strict=True)
            for problem in range(problems)
        ]
        return pl.DataFrame(records, schema=FIT_SCHEMA)


def fit_control_probes(
    task: ProbeTask, protocol: Protocol, *, seed: int, device: str = "cpu"
) -> dict[str, ControlFits]:
    """Fit both control probes at each label fraction of the protocol; the test split is not looked at.

    Features are standardised as for the linear probe. The perceptron's initial weights and batches are drawn from the
    data set and seed, so encoders of one dimension start alike.

    Args:
        task: Features, labels and splits.
        protocol: Label fractions, label policy, standardisation, settings of the control probes.
        seed: Split seed.
        device: Where the perceptron is trained.

    Returns:
        ``mlp`` and ``knn``.
    """
    settings, salt, dataset = protocol.analyses.control_probes, protocol.salt, task.space.id
    fractions, outputs = protocol.data.fractions, len(task.space.classes)
    labels = fit_labels(task.index, task.space, protocol.data.uncertain_labels)
    mean, scale = standardisation(
        task.features, task.rows(TRAIN), std_floor=protocol.probe.std_floor, std_zero=protocol.probe.std_zero
    )
    perceptrons = tuple(
        fit_perceptron(
            task.features,
            labels,
            task.rows(TRAIN, fraction),
            task.rows(VALIDATION, fraction),
            settings,
            outputs=outputs,
            mean=mean,
            scale=scale,
            initial=generator(salt, "mlp_weights", dataset, seed),
            batches=generator(salt, "mlp_batches", dataset, seed, f"{fraction:g}"),
            device=device,
        )
        for fraction in fractions
    )
    neighbours = tuple(
        fit_neighbours(
            task.features,
            labels,
            task.rows(TRAIN, fraction),
            outputs=outputs,
            neighbours=settings.knn_neighbours,
            mean=mean,
            scale=scale,
        )
        for fraction in fractions
    )
    return {MLP: ControlFits(perceptrons, fractions), KNN: ControlFits(neighbours, fractions)}


def _record(probe: Perceptron | NearestNeighbours, problem: int) -> dict[str, object]:
    if isinstance(probe, Perceptron):
        return {
            "converged": True,
            "at_edge": probe.at_edge,
            "weight_decay": probe.weight_decay,
            "epochs": probe.epochs,
            "validation_log_loss": probe.validation_log_loss,
        }
    return {"converged": bool(probe.fitted[problem]), "at_edge": False}
