"""What operating points are read from: each label's probabilities, its thresholds, and its counts on the test set."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crs_assets.science.analyses.resampling import (
    Confusion,
    WeightedConfusion,
    case_resamples,
    group_positions,
    signs,
)
from crs_assets.science.analyses.thresholds import TargetType, choose_threshold
from crs_assets.science.analysis_protocol import OperatingPointProtocol
from crs_assets.science.datasets.counts import SUPPRESSED_BELOW
from crs_assets.science.evaluation import Logits, probabilities
from crs_assets.science.labels import TaskType
from crs_assets.science.protocol import Protocol
from crs_assets.science.recalibration import fit_temperature, fit_vector
from crs_assets.science.splits import CALIBRATION, TEST, VALIDATION, RoleType
from crs_assets.science.validation import BoolArray, FloatArray, IntArray

UNCALIBRATED = "uncalibrated"
RECALIBRATED = "recalibrated"


@dataclass(frozen=True, eq=False)
class SplitPredictions:
    """Clean predictions of one split at all labels.

    Attributes:
        labels: (n,) int class indices, or (n, L) float with NaN where not observed.
        logits: (n, C) float; NaN in the columns of labels that were not fitted.
        group_ids: Group (patient, lesion) of each image, str (n,).
    """

    labels: NDArray[Any]
    logits: Logits
    group_ids: NDArray[np.str_]

    def signs_of(self, position: int) -> tuple[BoolArray, BoolArray]:
        """Which images are a definite positive, and which a definite negative, of one label; two bool (n,)."""
        positive, negative = signs(self.labels, self.logits.shape[1])
        return positive[:, position], negative[:, position]

    def fewest_images(self) -> IntArray:
        """Of each label the positives or the negatives, whichever are fewer; int64 (C,)."""
        return self._fewest(lambda column: int(column.sum()))

    def fewest_groups(self) -> IntArray:
        """Of each label the patients with a positive or those with a negative, whichever are fewer; int64 (C,)."""
        return self._fewest(lambda column: len(np.unique(self.group_ids[column])))

    def _fewest(self, count: Callable[[BoolArray], int]) -> IntArray:
        both = signs(self.labels, self.logits.shape[1])
        fewest: IntArray = np.array([[count(column) for column in sign.T] for sign in both], dtype=np.int64).min(axis=0)
        return fewest


SplitsByRole = Mapping[RoleType, SplitPredictions]


@dataclass(frozen=True, eq=False)
class ScoreVariant:
    """Probabilities of every split.

    Attributes:
        scores: ``uncalibrated`` or ``recalibrated``.
        chosen_on: Split that thresholds are chosen on.
        mapped_on: Split that each label's own map was fitted on; None where labels have none.
        proba: Split -> probabilities (n, C); NaN in the columns that could not be fitted.
    """

    scores: str
    chosen_on: RoleType
    mapped_on: RoleType | None
    proba: Mapping[RoleType, FloatArray]


@dataclass(frozen=True)
class Target:
    """A share that a threshold is chosen for; ``threshold`` is None where none was chosen or none reaches it."""

    kind: TargetType
    value: float
    threshold: float | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """One label under one variant.

    Attributes:
        label: Its name.
        scores: The variant's name.
        chosen_on: Split that its thresholds were chosen on.
        targets: Every target, with its threshold.
        point_reason: Why there is no operating point; None where there is.
        benefit_reason: Why there is no net benefit either; None where there is.
        counts: Counts on the test set at the targets' thresholds, then at the grid of threshold probabilities; a target
            without a threshold calls nobody positive. None where there is a ``benefit_reason``.
    """

    label: str
    scores: str
    chosen_on: RoleType
    targets: tuple[Target, ...]
    point_reason: str | None
    benefit_reason: str | None
    counts: WeightedConfusion | None


def score_variants(task: TaskType, splits: SplitsByRole) -> tuple[ScoreVariant, ScoreVariant]:
    """Probabilities as they are, and recalibrated by one temperature or by Platt's sigmoid for each label.

    Maps are fitted on calibration, so thresholds of recalibrated probabilities are chosen on validation.
    """
    plain = {role: probabilities(split.logits, task) for role, split in splits.items()}
    is_multilabel = task == "multilabel"
    mapped = _platt(splits) if is_multilabel else _temperature(splits)
    return (
        ScoreVariant(UNCALIBRATED, CALIBRATION, None, plain),
        ScoreVariant(RECALIBRATED, VALIDATION, CALIBRATION if is_multilabel else None, mapped),
    )


def build_cases(
    task: TaskType,
    classes: Sequence[str],
    splits: SplitsByRole,
    settings: OperatingPointProtocol,
    problems: Mapping[str, str],
) -> list[Case]:
    """Choose the thresholds of every label under both variants.

    Args:
        task: Kind of problem; a class of a softmax is taken against the rest.
        classes: Names of the first columns of the logits.
        splits: Predictions of validation, calibration and test.
        settings: Targets and the grid of threshold probabilities.
        problems: Label -> why it gets no figure.
    """
    few = {
        role: (split.fewest_groups() if role == TEST else split.fewest_images()) < SUPPRESSED_BELOW
        for role, split in splits.items()
    }
    variants = score_variants(task, splits)
    return [
        _case(name, position, variant, splits, few, settings, problems.get(name))
        for position, name in enumerate(classes)
        for variant in variants
    ]


def resample_cases(
    cases: Sequence[Case], group_ids: NDArray[np.str_], protocol: Protocol, dataset: str
) -> list[Confusion | None]:
    """Counts of each case under resampled test groups; None for a case without any."""
    if all(case.counts is None for case in cases):
        return [None] * len(cases)
    replicates = protocol.analyses.operating_points.replicates
    chunks = [
        [case.counts.evaluate(weights) for case in cases if case.counts is not None]
        for weights in case_resamples(group_ids, replicates, protocol, dataset)
    ]
    joined = iter([Confusion.join(parts) for parts in zip(*chunks, strict=True)])
    return [None if case.counts is None else next(joined) for case in cases]


def _temperature(splits: SplitsByRole) -> dict[RoleType, FloatArray]:
    fitting = splits[CALIBRATION]
    if not np.isfinite(fitting.logits).all() or len(np.unique(fitting.labels)) < 2:
        return {role: np.full(split.logits.shape, np.nan) for role, split in splits.items()}
    fitted = fit_temperature(fitting.logits, fitting.labels)
    return {role: fitted.transform(split.logits) for role, split in splits.items()}


def _platt(splits: SplitsByRole) -> dict[RoleType, FloatArray]:
    fitting = splits[CALIBRATION]
    mapped = {role: np.full(split.logits.shape, np.nan) for role, split in splits.items()}
    enough = fitting.fewest_images() >= SUPPRESSED_BELOW
    for label in np.flatnonzero(enough & np.isfinite(fitting.logits).all(axis=0)):
        seen = ~np.isnan(fitting.labels[:, label])
        fitted = fit_vector(fitting.logits[seen, label], fitting.labels[seen, label])
        for role, split in splits.items():
            mapped[role][:, label] = fitted.transform(split.logits[:, label])
    return mapped


def _case(
    label: str,
    position: int,
    variant: ScoreVariant,
    splits: SplitsByRole,
    few: Mapping[RoleType, BoolArray],
    settings: OperatingPointProtocol,
    problem: str | None,
) -> Case:
    short = [role for role in (variant.mapped_on, TEST) if role is not None and few[role][position]]
    is_fitted = all(np.isfinite(proba[:, position]).all() for proba in variant.proba.values())
    benefit_reason = problem or _too_few(short) or (None if is_fitted else "the probe or its map could not be fitted")
    point_reason = benefit_reason or _too_few([variant.chosen_on] if few[variant.chosen_on][position] else [])
    targets = _targets(settings)
    if point_reason is None:
        chosen_on = splits[variant.chosen_on].signs_of(position)
        targets = _with_thresholds(targets, *chosen_on, variant.proba[variant.chosen_on][:, position])
    counts = None
    if benefit_reason is None:
        thresholds = [np.inf if target.threshold is None else target.threshold for target in targets]
        groups, of_row = group_positions(splits[TEST].group_ids)
        counts = WeightedConfusion(
            *splits[TEST].signs_of(position),
            variant.proba[TEST][:, position],
            [*thresholds, *settings.net_benefit_thresholds],
            groups=of_row,
            n_groups=len(groups),
        )
    return Case(label, variant.scores, variant.chosen_on, targets, point_reason, benefit_reason, counts)


def _targets(settings: OperatingPointProtocol) -> tuple[Target, ...]:
    return (
        *(Target("sensitivity", value) for value in settings.sensitivities),
        *(Target("specificity", value) for value in settings.specificities),
    )


def _with_thresholds(
    targets: Sequence[Target], positive: BoolArray, negative: BoolArray, score: FloatArray
) -> tuple[Target, ...]:
    seen = positive | negative
    return tuple(
        Target(target.kind, target.value, choose_threshold(positive[seen], score[seen], target.kind, target.value))
        for target in targets
    )


def _too_few(roles: Sequence[RoleType]) -> str | None:
    """What is fitted on needs cases, what is published needs patients."""
    kinds = ["patients with, or without, the label" if role == TEST else "positives or negatives" for role in roles]
    short = " and ".join(f"{kind} in {role}" for kind, role in zip(kinds, roles, strict=True))
    return f"fewer than {SUPPRESSED_BELOW} {short}" if short else None
