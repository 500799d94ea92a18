"""Post hoc recalibration: maps from logits to probabilities, fitted on a calibration split.

Every ``fit_*`` takes logits, (n, K) for classes or (n,) for one binary label, and returns a frozen map whose
``transform`` takes logits of the same kind to probabilities. Log-probabilities are logits of a softmax.
"""

from crs_assets.science.recalibration.dirichlet import DIRICHLET_LAMBDAS, DirichletMap, fit_dirichlet
from crs_assets.science.recalibration.isotonic import IsotonicMap, fit_isotonic
from crs_assets.science.recalibration.per_label import PerLabelMap, RecalibrationMap, fit_per_label
from crs_assets.science.recalibration.temperature import TemperatureMap, fit_temperature
from crs_assets.science.recalibration.vector import VectorMap, fit_vector

__all__ = [
    "DIRICHLET_LAMBDAS",
    "DirichletMap",
    "IsotonicMap",
    "PerLabelMap",
    "RecalibrationMap",
    "TemperatureMap",
    "VectorMap",
    "fit_dirichlet",
    "fit_isotonic",
    "fit_per_label",
    "fit_temperature",
    "fit_vector",
]
