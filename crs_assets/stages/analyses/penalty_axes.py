"""The axes of a cell and seed had the penalty been chosen another way, from the penalty path that is stored."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.penalty_choices import (
    PUBLISHED,
    PenaltyChoices,
    calibration_error,
    choice_axes,
    penalty_choices,
)
from crs_assets.science.analyses.replicated_metrics import SeedMetrics
from crs_assets.science.evaluation import macro
from crs_assets.science.probes import LinearPath
from crs_assets.science.protocol import CLEAN, TRANSFER, Protocol, protocol_part
from crs_assets.science.splits import TEST
from crs_assets.science.suite import parse_task
from crs_assets.science.validation import FloatArray
from crs_assets.stages.data import Splits, read_fractions
from crs_assets.stages.encoders import read_features
from crs_assets.stages.probes import (
    ProbePredictions,
    ProbeStage,
    all_there,
    embeddings,
    open_task,
    prediction_inputs,
    read_path,
    scored_on,
)
from crs_assets.stages.run_scorer import TARGET, RunScorer
from crs_assets.stages.stage import Built

AXES_FILE = "axes.parquet"
Images = tuple[Sequence[str], NDArray[np.float32]]


class PenaltyAxes(ProbeStage):
    """The four axes under every penalty of the grid, and under the one that all of validation chooses."""

    name = "penalty_axes"
    code_version = "1"
    libraries = ("numpy", "polars", "scipy")
    side_by_side = True

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every existing (encoder, data set and seed) without the controls, which enter no ranking."""
        return (parts for parts in super().partitions(bench) if self.left_out(bench, *parts) is None)

    def left_out(self, bench: Bench, *parts: str) -> str | None:
        """A control."""
        return "a control enters no ranking" if bench.suite.encoders[parts[0]].role == "control" else None

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """The penalty path, features, splits, labels, and how axes are read."""
        encoder, task = parts
        dataset, _ = parse_task(task)
        protocol = bench.suite.protocol
        return all_there(
            path=ProbePredictions().version(bench, encoder, task),
            **embeddings(bench, encoder, dataset),
            **scored_on(bench, dataset),
            splits=Splits().version(bench, task),
            fractions=list(protocol.data.fractions),
            protocol=protocol_part(protocol, "probe", "perturbations"),
            ece_bins=protocol.metrics.ece_bins,
            readings={r.id: [r.axes.form, r.metrics.skill_min_auroc] for r in bench.suite.readings},
            uncertain_labels=protocol.data.uncertain_labels,
        )

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Choose on validation, then read the runs that axes are made of under each choice; nothing is refitted."""
        encoder, task = parts
        dataset, seed = parse_task(task)
        protocol = bench.suite.protocol
        scorer, path = RunScorer.open(bench, dataset, seed), read_path(bench, encoder, task)
        ids, features = read_features(bench, encoder, dataset)
        probe_task = open_task(bench, dataset, seed, features)
        choices = penalty_choices(path, probe_task, protocol)
        inputs = prediction_inputs(bench, encoder, dataset, probe_task, ids)
        converged = choices.converged(path, scorer.problems(TRANSFER if (TARGET, TRANSFER) in inputs else CLEAN))
        axes = choice_axes(
            _Runs(scorer, choices, path, inputs).metrics(protocol),
            choices.names,
            converged,
            bench.suite.readings,
            distinct_fractions=read_fractions(bench, dataset, seed)["n_fit"].is_unique().all(),
        )
        constants = {"encoder": encoder, "dataset": dataset, "seed": seed, "protocol": protocol.id}
        axes.with_columns(pl.lit(value).alias(name) for name, value in constants.items()).write_parquet(
            staging.path(AXES_FILE)
        )
        aurocs = axes.filter((pl.col("reading") == protocol.id) & (pl.col("penalty") != PUBLISHED))["discrimination"]
        return Built(
            {
                "choices": len(choices.names),
                "not_converged": int((~converged).sum()),
                "auroc_lowest": aurocs.min(),
                "auroc_highest": aurocs.max(),
            }
        )


def read_penalty_axes(bench: Bench, encoder: str, task: str) -> pl.DataFrame:
    """Raw axes of an encoder, data set and seed: one row per reading and choice of the penalty."""
    return pl.read_parquet(bench.store.open(bench.key(PenaltyAxes.name, encoder, task)).file(AXES_FILE))


class _Runs:
    """The runs that axes are made of, each under every choice of the penalty."""

    def __init__(
        self,
        scorer: RunScorer,
        choices: PenaltyChoices,
        path: LinearPath,
        inputs: Mapping[tuple[str, str], Images],
    ) -> None:
        self._scorer, self._choices, self._path, self._inputs = scorer, choices, path, inputs
        self._full = len(path.weights) - 1

    def metrics(self, protocol: Protocol) -> SeedMetrics:
        """One row per choice."""
        curve = [self._aurocs(CLEAN, position) for position in range(self._full + 1)]
        degraded = [self._aurocs(condition.name, self._full) for condition in protocol.degradations()]
        has_target = (TARGET, TRANSFER) in self._inputs
        transfer = [self._source_aurocs(), self._aurocs(TRANSFER, self._full)] if has_target else []
        nothing = np.empty((len(self._choices.names), 0))
        return SeedMetrics(
            curve=np.stack(curve, axis=1),
            degraded=np.stack(degraded, axis=1),
            ece=self._errors(protocol.metrics.ece_bins),
            transfer=np.stack(transfer, axis=1) if has_target else nothing,
        )

    def _aurocs(self, condition: str, position: int) -> FloatArray:
        ids, logits = self._predicted(condition, position)
        task = self._scorer.space_of(condition).task
        return np.array([macro(self._scorer.read(ids, each, condition), task) for each in logits])

    def _source_aurocs(self) -> FloatArray:
        ids, logits = self._predicted(CLEAN, self._full)
        task = self._scorer.target_space.task
        return np.array([macro(self._scorer.read_source(ids, each), task) for each in logits])

    def _errors(self, n_bins: int) -> FloatArray:
        ids, logits = self._predicted(CLEAN, self._full)
        task = self._scorer.space.task
        return np.array([calibration_error(self._scorer.read(ids, each, CLEAN), task, n_bins) for each in logits])

    def _predicted(self, condition: str, position: int) -> tuple[Sequence[str], Iterator[NDArray[np.float32]]]:
        ids, features = self._inputs[TARGET if condition == TRANSFER else TEST, condition]
        return ids, self._choices.logits(self._path, features, position)


__all__ = ["PenaltyAxes", "read_penalty_axes"]
