"""A map for each label of a multilabel problem."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from crs_assets.science.recalibration.temperature import TemperatureMap
from crs_assets.science.validation import FloatArray, finite_array, label_columns


class RecalibrationMap(Protocol):
    """Anything that turns logits into recalibrated probabilities."""

    def transform(self, logits: ArrayLike) -> FloatArray:
        """Logits (n, K) or (n,) to probabilities of the same shape."""
        ...


@dataclass(frozen=True)
class PerLabelMap:
    """One map per label; a label that could not be fitted keeps its sigmoid.

    Attributes:
        maps: A map for each label, in column order.
        unfitted: Columns whose observed calibration cells lack a positive or a negative.
    """

    maps: tuple[RecalibrationMap, ...]
    unfitted: tuple[int, ...]

    def transform(self, logits: ArrayLike) -> FloatArray:
        """Logits (n, L) to probabilities (n, L), each column by its own map.

        Raises:
            ValueError: If the logits are not finite or not (n, L) with the fitted L.
        """
        values = finite_array(logits, name="logits", ndim=(2,))
        if values.shape[1] != len(self.maps):
            raise ValueError(f"logits has {values.shape[1]} columns, the map was fitted on {len(self.maps)}.")
        return np.stack([each.transform(column) for each, column in zip(self.maps, values.T, strict=True)], axis=1)


def fit_per_label(
    fit: Callable[[ArrayLike, ArrayLike], RecalibrationMap],
    logits: ArrayLike,
    y_true: ArrayLike,
    *,
    observed: ArrayLike | None = None,
) -> PerLabelMap:
    """Fit one binary map per label on its observed cells.

    Args:
        fit: ``fit_temperature``, ``fit_vector`` or ``fit_isotonic``.
        logits: Log-odds (n, L).
        y_true: 0/1 labels (n, L); NaN = not observed.
        observed: Bool mask (n, L).

    Raises:
        ValueError: If shapes or values are not as described.
    """
    columns = label_columns(y_true, logits, observed, name="logits")
    maps: list[RecalibrationMap] = []
    unfitted = []
    for label in range(columns.score.shape[1]):
        positive, score = columns.column(label)
        if 0 < positive.sum() < len(positive):
            maps.append(fit(score, positive))
        else:
            maps.append(TemperatureMap(1.0))
            unfitted.append(label)
    return PerLabelMap(tuple(maps), tuple(unfitted))
