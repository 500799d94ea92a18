"""Degradation families and their strengths, as a protocol states them."""

from typing import Literal, Self

from pydantic import PositiveInt, model_validator

from crs_assets.science.toml_models import FrozenModel

PerturbationType = Literal["gaussian_blur", "jpeg", "contrast", "rician", "fov_crop"]
ExtraPerturbationType = Literal["sensor_noise", "defocus", "exposure"]


class DegradationFamily(FrozenModel):
    """One degradation family and its strengths, mildest first; what a strength is, the family says."""

    id: str
    severities: tuple[PositiveInt, ...] = (1, 2, 3)
    strengths: tuple[float, ...]

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.severities) != len(self.strengths):
            raise ValueError(f"{self.id}: {len(self.severities)} severities for {len(self.strengths)} strengths")
        return self

    def strength(self, severity: int) -> float:
        """The strength at a severity.

        Raises:
            ValueError: If the protocol has no such severity.
        """
        if severity not in self.severities:
            raise ValueError(f"{self.id} has no severity {severity}; the protocol has {list(self.severities)}.")
        return self.strengths[self.severities.index(severity)]


class Perturbation(DegradationFamily):
    """A family of the robustness axis."""

    id: PerturbationType


class ExtraPerturbation(DegradationFamily):
    """A family that is reported beside the score and never enters it."""

    id: ExtraPerturbationType
