"""The linear probe of one encoder, data set and seed as it was fitted for the score, for other features."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.bench import Bench
from crs_assets.science.probes import predict_logits
from crs_assets.stages.probes import FITS_FILE, WEIGHTS_FILE, ProbePredictions

ALL_LABELS = 1.0


@dataclass(frozen=True)
class StoredProbe:
    """The probe at all labels, at the penalties that validation chose.

    Attributes:
        weights: (C, d) float32, on features as stored.
        intercepts: (C,) float64.
        fits: How each problem was fitted: the stored rows of this label fraction.
    """

    weights: NDArray[np.float32]
    intercepts: NDArray[np.float64]
    fits: pl.DataFrame

    @classmethod
    def open(cls, bench: Bench, encoder: str, task: str) -> "StoredProbe":
        """Read it; the penalties of the choice are those of the weights, to the bit."""
        from safetensors.numpy import load_file

        artifact = bench.store.open(bench.key(ProbePredictions.name, encoder, task))
        stored = load_file(artifact.file(WEIGHTS_FILE))
        fits = pl.read_parquet(artifact.file(FITS_FILE)).filter(pl.col("fraction") == ALL_LABELS).sort("problem")
        (position,) = np.flatnonzero(stored["fractions"] == ALL_LABELS)
        chosen = np.searchsorted(stored["lambdas"], fits["lambda"].to_numpy())
        weights, intercepts = stored["weights"][position], stored["intercepts"][position]
        classes = np.arange(weights.shape[1])
        # A softmax has one penalty for all classes.
        penalty = np.broadcast_to(chosen, classes.shape)
        return cls(weights[penalty, classes], intercepts[penalty, classes], fits)

    @property
    def fractions(self) -> tuple[float, ...]:
        """The one label fraction that is read."""
        return (ALL_LABELS,)

    def logits(self, position: int, features: NDArray[np.float32]) -> NDArray[np.float32]:  # noqa: ARG002
        """Logits (n, C) float32."""
        return predict_logits(features, self.weights, self.intercepts)


__all__ = ["StoredProbe"]
