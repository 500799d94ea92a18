"""Stored predictions of one encoder, data set and seed, in the order of whatever images are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.bench import Bench
from crs_assets.stages.probes import PREDICTIONS_FILE, ProbePredictions
from crs_assets.stages.stage import RefusedError


@dataclass(frozen=True)
class StoredLogits:
    """Logits by role, condition and label fraction.

    Attributes:
        frame: Rows of the stored predictions.
    """

    frame: pl.DataFrame

    @classmethod
    def open(cls, bench: Bench, encoder: str, task: str, *, roles: Sequence[str]) -> "StoredLogits":
        """Read what was predicted for the given roles."""
        path = bench.store.open(bench.key(ProbePredictions.name, encoder, task)).file(PREDICTIONS_FILE)
        return cls(pl.scan_parquet(path).filter(pl.col("role").is_in(list(roles))).collect())

    def of(self, images: pl.Series, role: str, condition: str, fraction: float = 1.0) -> NDArray[np.float32]:
        """Logits (n, C) float32 of these images, in their order.

        Args:
            images: Image ids.
            role: Split, or the target.
            condition: Condition.
            fraction: Label fraction of the probe.

        Raises:
            RefusedError: If an image was not predicted.
        """
        wanted = (pl.col("role") == role) & (pl.col("condition") == condition) & (pl.col("fraction") == fraction)
        asked = images.rename("image_id").to_frame()
        found = asked.join(self.frame.filter(wanted), on="image_id", how="inner", maintain_order="left")
        if found.height != asked.height:
            raise RefusedError(
                f"{found.height} of {asked.height} images have a prediction ({role}, {condition}, {fraction:g} of the "
                "labels); materialize probe_predictions again."
            )
        return found["logits"].to_numpy()
