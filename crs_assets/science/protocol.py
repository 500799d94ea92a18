"""The protocol as data: a frozen model of one TOML file of ``catalog/protocols``."""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, field_validator, model_validator

from crs_assets.science.analysis_protocol import AnalysisProtocol
from crs_assets.science.perturbations import DegradationFamily, Perturbation
from crs_assets.science.toml_models import CatalogError, FrozenModel, read_toml, resolve_extends, validate

PROTOCOL_FOLDER = Path(__file__).parent.parent / "catalog" / "protocols"

CLEAN = "clean"
TRANSFER = "transfer"

AxisType = Literal["discrimination", "calibration", "label_efficiency", "robustness"]
AXES: tuple[AxisType, ...] = ("discrimination", "calibration", "label_efficiency", "robustness")
UncertainPolicyType = Literal["u_ignore", "u_zeros", "u_ones", "mixed"]


class Condition(FrozenModel):
    """What the test images went through: clean, a perturbation at a severity, or the transfer target."""

    perturbation: str
    severity: int = 0

    @property
    def name(self) -> str:
        """``clean``, ``transfer``, or for example ``jpeg-3``."""
        return f"{self.perturbation}-{self.severity}" if self.severity else self.perturbation


class Eligibility(FrozenModel):
    """How many positives, and how many negatives, a class needs in each split to be scored."""

    test: PositiveInt
    train: PositiveInt
    validation: PositiveInt


class DataProtocol(FrozenModel):
    """Seeds, label fractions, splits and label policy."""

    seeds: tuple[int, ...] = Field(min_length=1)
    fractions: tuple[float, ...] = Field(min_length=2)
    test_fraction: float = Field(gt=0, lt=1)
    train_until: float = Field(gt=0, lt=1)
    validation_until: float = Field(gt=0, lt=1)
    validation_min_images: PositiveInt
    uncertain_labels: UncertainPolicyType
    eligibility: Eligibility

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if list(self.fractions) != sorted(set(self.fractions)) or self.fractions[0] <= 0 or self.fractions[-1] != 1:
            raise ValueError(f"fractions must rise from above 0 to exactly 1, got {self.fractions}")
        if self.train_until >= self.validation_until:
            raise ValueError("train_until must lie below validation_until")
        if len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds repeat: {self.seeds}")
        return self


class ImageProtocol(FrozenModel):
    """Working resolution and noise grid, in pixels of the short side."""

    working_short_side: PositiveInt
    noise_grid_short_side: PositiveInt


class ProbeProtocol(FrozenModel):
    """The linear probe: penalty grid, standardisation floors, convergence."""

    lambda_min: float = Field(gt=0)
    lambda_max: float = Field(gt=0)
    lambda_count: PositiveInt
    std_floor: float = Field(ge=0)
    std_zero: float = Field(gt=0)
    gap: float = Field(gt=0)
    max_iterations: PositiveInt
    lambda_min_validation: PositiveInt

    @cached_property
    def lambdas(self) -> tuple[float, ...]:
        """The penalty grid, geometric, ascending."""
        return tuple(float(x) for x in np.geomspace(self.lambda_min, self.lambda_max, self.lambda_count))


class MetricProtocol(FrozenModel):
    """Bins and null band of the calibration error, threshold of the above-chance forms."""

    ece_bins: PositiveInt
    skill_min_auroc: float
    null_band_draws: PositiveInt
    null_band_level: float = Field(gt=0, lt=1)


class Anchor(FrozenModel):
    """Raw values that map to 0 and to 1."""

    zero: float
    one: float


class AxisProtocol(FrozenModel):
    """How raw axis values are read and normalised."""

    form: Literal["raw", "skill"]
    score_decimals: PositiveInt
    anchors: dict[AxisType, Anchor]

    @field_validator("anchors")
    @classmethod
    def _complete(cls, anchors: dict[AxisType, Anchor]) -> dict[AxisType, Anchor]:
        if set(anchors) != set(AXES):
            raise ValueError(f"anchors must name exactly {list(AXES)}, got {sorted(anchors)}")
        return {axis: anchors[axis] for axis in AXES}


class ScoreWeights(FrozenModel):
    """Weights of the three terms of the Clinical Reliability Score; design parameters, not clinical utilities."""

    dominance: float = Field(ge=0)
    closeness: float = Field(ge=0)
    worst_axis: float = Field(ge=0)

    @model_validator(mode="after")
    def _sum_to_one(self) -> Self:
        total = self.dominance + self.closeness + self.worst_axis
        if abs(total - 1) > 1e-12:
            raise ValueError(f"the three weights must sum to 1, got {total:g}")
        return self


class StatisticsProtocol(FrozenModel):
    """Bootstrap replicates and the level of percentile intervals."""

    replicates: PositiveInt
    interval: float = Field(gt=0, lt=1)


class Protocol(FrozenModel):
    """Everything that decides a published number. Two protocol ids never share a table."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str
    salt: str = Field(min_length=1)
    data: DataProtocol
    images: ImageProtocol
    perturbations: tuple[Perturbation, ...] = Field(min_length=1)
    probe: ProbeProtocol
    metrics: MetricProtocol
    axes: AxisProtocol
    score: ScoreWeights
    statistics: StatisticsProtocol
    analyses: AnalysisProtocol

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        ids = [family.id for family in self._families]
        if len(set(ids)) != len(ids):
            raise ValueError(f"perturbations repeat: {ids}")
        return self

    @property
    def _families(self) -> tuple[DegradationFamily, ...]:
        return (*self.perturbations, *self.analyses.perturbations)

    def perturbation(self, name: str) -> DegradationFamily:
        """The degradation family of that name, of the score or beside it.

        Raises:
            ValueError: If the protocol has no such family.
        """
        for family in self._families:
            if family.id == name:
                return family
        raise ValueError(f"unknown perturbation {name!r}; {self.id} has {[family.id for family in self._families]}.")

    def degradations(self) -> Iterator[Condition]:
        """Every (perturbation, severity) of the score, in the order of the protocol file."""
        return family_conditions(self.perturbations)

    def extra_degradations(self) -> Iterator[Condition]:
        """Every (perturbation, severity) beside the score, in the order of the protocol file."""
        return family_conditions(self.analyses.perturbations)

    def conditions(self, *, transfer: bool) -> tuple[Condition, ...]:
        """Every condition of a data set: clean, the degradations, and the target where there is one."""
        tail = (Condition(perturbation=TRANSFER),) if transfer else ()
        return (Condition(perturbation=CLEAN), *self.degradations(), *tail)


def family_conditions(families: Iterable[DegradationFamily]) -> Iterator[Condition]:
    """Every severity of every family, in order."""
    for family in families:
        for severity in family.severities:
            yield Condition(perturbation=family.id, severity=severity)


def shipped_protocol(name: str) -> Path:
    """The file of a protocol that comes with the package."""
    return PROTOCOL_FOLDER / f"{name}.toml"


def load_protocol(source: str | Path, find: Callable[[str], Path] = shipped_protocol) -> Protocol:
    """Load a protocol by id or by path (a TOML file of one's own).

    Args:
        source: Id, or path of a TOML file.
        find: Maps an id, also of a protocol that is extended, to its file; the shipped protocols by default.

    Raises:
        CatalogError: If the file is missing, malformed, or its name and id differ.
    """
    path = Path(source) if str(source).endswith(".toml") else find(str(source))
    document = resolve_extends(read_toml(path), find)
    protocol = validate(Protocol, document, source=path.name)
    if protocol.id != path.stem:
        raise CatalogError(
            f"{path.name}: the file is named {path.stem!r} but its id is {protocol.id!r}; make them equal."
        )
    return protocol


def protocol_part(protocol: Protocol, *parts: str) -> dict[str, Any]:
    """The named parts of a protocol as plain data: what a stage's fingerprint depends on, and no more."""
    dumped = protocol.model_dump(mode="json")
    return {part: dumped[part] for part in parts}
