"""Settings of the analyses beside the score: one table each, so that each analysis depends on its own alone."""

from itertools import pairwise
from typing import Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from crs_assets.science.perturbations import ExtraPerturbation
from crs_assets.science.toml_models import FrozenModel


class ControlProbeProtocol(FrozenModel):
    """Probes beside the linear one: a perceptron with one hidden layer, and nearest neighbours."""

    knn_neighbours: PositiveInt
    mlp_hidden: PositiveInt
    mlp_learning_rate: PositiveFloat
    mlp_batch: PositiveInt
    mlp_epochs: PositiveInt
    mlp_patience: PositiveInt
    mlp_weight_decays: tuple[NonNegativeFloat, ...] = Field(min_length=1)


class RecalibrationProtocol(FrozenModel):
    """Numbers of cases that maps are fitted on beside all of the calibration split."""

    cases: tuple[PositiveInt, ...] = Field(min_length=1)
    target_cases: tuple[PositiveInt, ...] = Field(min_length=1)


class RankingProtocol(FrozenModel):
    """How far up is the top, and how sure its members have to be."""

    top_k: PositiveInt
    leading_tier: float = Field(gt=0, lt=1)


class UncertaintyProtocol(FrozenModel):
    """Resamples of the test groups under which all four axes are recomputed."""

    case_replicates: PositiveInt


class InvarianceProtocol(FrozenModel):
    """Trials that put encoders into a smaller panel: how many, and one new encoder per how many old ones."""

    draws: PositiveInt
    panel_per_new: PositiveInt


class SensitivityProtocol(FrozenModel):
    """How far anchors are moved, relative to their distance, and the step on the simplex of the score's weights."""

    anchor_change: float = Field(gt=0, lt=1)
    weight_step: float = Field(gt=0, le=0.5)


class SubgroupProtocol(FrozenModel):
    """Smallest subgroup that is shown, patients, lower edges of age bands, years, and bootstrap replicates."""

    min_groups: PositiveInt
    replicates: PositiveInt
    age_edges: tuple[NonNegativeFloat, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if any(later <= earlier for earlier, later in pairwise(self.age_edges)):
            raise ValueError(f"age_edges have to ascend: {self.age_edges}")
        return self


class OperatingPointProtocol(FrozenModel):
    """Targets of thresholds, prevalences that predictive values are stated at, threshold grid, bootstrap replicates."""

    replicates: PositiveInt
    sensitivities: tuple[float, ...]
    specificities: tuple[float, ...]
    prevalences: tuple[float, ...]
    net_benefit_thresholds: tuple[float, ...]

    @model_validator(mode="after")
    def _shares(self) -> Self:
        for name, values in self.model_dump(exclude={"replicates"}).items():
            if not all(0 < value < 1 for value in values):
                raise ValueError(f"{name}: {values} has to lie within 0 and 1.")
        return self


class DepthProtocol(FrozenModel):
    """Shares of the blocks after which features are read; all of them, the encoder's own features, comes last."""

    shares: tuple[float, ...] = Field(min_length=2)

    @model_validator(mode="after")
    def _up_to_all(self) -> Self:
        ascending = list(self.shares) == sorted(set(self.shares))
        if not ascending or self.shares[0] <= 0 or self.shares[-1] != 1:
            raise ValueError(f"shares must rise from above 0 to exactly 1, got {self.shares}")
        return self


class AnalysisProtocol(FrozenModel):
    """Settings of every analysis."""

    control_probes: ControlProbeProtocol
    recalibration: RecalibrationProtocol
    ranking: RankingProtocol
    uncertainty: UncertaintyProtocol
    invariance: InvarianceProtocol
    sensitivity: SensitivityProtocol
    subgroups: SubgroupProtocol
    operating_points: OperatingPointProtocol
    depth: DepthProtocol
    perturbations: tuple[ExtraPerturbation, ...] = Field(min_length=1)
