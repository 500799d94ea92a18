"""What a suite will take, counted from the catalogue before anything is spent."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from crs_assets.science.suite import Cell, Suite

FLOAT32_BYTES = 4


@dataclass(frozen=True)
class Plan:
    """Counts of a suite's grid; a figure that needs a data set's size is None while that is unknown.

    Attributes:
        suite: Suite id.
        protocol: Protocol id.
        cells: Existing (encoder, data set) pairs of encoders; controls are counted apart.
        absent_cells: Pairs that the catalogue says do not exist, with the reason.
        rows: Seed-aggregated rows: one per cell, label fraction and condition.
        runs: Rows times seeds.
        control_runs: Runs of the controls, on top.
        partitions: Asset -> partitions, controls included.
        images: Image set -> images, as an index, the catalogue or a table counts them.
        images_to_encode: Forward passes: every image once per encoder, test images once per condition.
        feature_bytes: Disk for features.
        prediction_bytes: Disk for logits.
    """

    suite: str
    protocol: str
    cells: int
    absent_cells: list[dict[str, str]]
    rows: int
    runs: int
    control_runs: int
    partitions: dict[str, int]
    images: dict[str, int | None]
    images_to_encode: int | None
    feature_bytes: int | None
    prediction_bytes: int | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def plan_suite(suite: Suite, counted: Mapping[str, int] | None = None) -> Plan:
    """Enumerate a suite's grid.

    Args:
        suite: The suite.
        counted: Image set -> images, where an index or a table tells; the catalogue's count otherwise.
    """
    seeds = len(suite.protocol.data.seeds)
    cells = list(suite.cells(controls=True))
    existing = [cell for cell in cells if cell.absent is None]
    own = [cell for cell in existing if suite.encoders[cell.encoder].role == "encoder"]
    controls = [cell for cell in existing if suite.encoders[cell.encoder].role == "control"]
    images = {
        name: (counted or {}).get(name, spec.expected.images or spec.planned_images)
        for name, spec in suite.image_sets.items()
    }
    rows = sum(_rows(suite, cell) for cell in own)
    known = all(value is not None for value in images.values())
    sizes = {name: value or 0 for name, value in images.items()}
    return Plan(
        suite=suite.id,
        protocol=suite.protocol.id,
        cells=len(own),
        absent_cells=[
            {"encoder": cell.encoder, "dataset": cell.dataset, "reason": cell.absent} for cell in cells if cell.absent
        ],
        rows=rows,
        runs=rows * seeds,
        control_runs=sum(_rows(suite, cell) for cell in controls) * seeds,
        partitions=_partitions(suite, existing, seeds),
        images=images,
        images_to_encode=sum(_encoded(suite, name, sizes) for name in suite.encoders) if known else None,
        feature_bytes=(
            sum(_encoded(suite, name, sizes) * spec.tap.dim * FLOAT32_BYTES for name, spec in suite.encoders.items())
            if known
            else None
        ),
        prediction_bytes=sum(prediction_bytes(suite, cell.dataset, sizes) for cell in existing) * seeds
        if known
        else None,
    )


def _rows(suite: Suite, cell: Cell) -> int:
    conditions = suite.protocol.conditions(transfer=suite.target_of(cell.dataset) is not None)
    return len(suite.protocol.data.fractions) * len(conditions)


def _partitions(suite: Suite, existing: list[Cell], seeds: int) -> dict[str, int]:
    encoders, image_sets = len(suite.encoders), len(suite.image_sets)
    encoded = sum(len(suite.existing_image_sets(name)) for name in suite.encoders)
    return {
        "dataset_index": image_sets,
        "splits": len(suite.tasks),
        "encoder_weights": encoders,
        "features": encoded,
        "degraded_features": encoded,
        "probe_predictions": len(existing) * seeds,
        "run_metrics": len(existing) * seeds,
        "null_controls": len(suite.tasks),
        "axis_profile": encoders,
        "reference_panel": 1,
        "crs": encoders,
        "leaderboard": 1,
    }


def test_images(suite: Suite, dataset: str, sizes: Mapping[str, int]) -> int:
    """Images of a data set that the protocol puts into its test split."""
    return round(sizes[dataset] * suite.protocol.data.test_fraction)


def train_images(suite: Suite, dataset: str, sizes: Mapping[str, int]) -> float:
    """Images of a data set in a seed's train split."""
    return (sizes[dataset] - test_images(suite, dataset, sizes)) * suite.protocol.data.train_until


def degraded_images(suite: Suite, image_set: str, sizes: Mapping[str, int]) -> int:
    """Degraded test images of an image set, each degradation counted; none of a target."""
    if image_set not in suite.datasets:
        return 0
    return test_images(suite, image_set, sizes) * len(list(suite.protocol.degradations()))


def predicted_images(suite: Suite, dataset: str, sizes: Mapping[str, int]) -> float:
    """Images that one probe predicts: validation, calibration, every condition of test, the target."""
    test = test_images(suite, dataset, sizes)
    held_out = (sizes[dataset] - test) * (1 - suite.protocol.data.train_until)
    target = suite.target_of(dataset)
    conditions = len(suite.protocol.conditions(transfer=False))
    return held_out + test * conditions + (sizes[target] if target else 0)


def prediction_bytes(suite: Suite, dataset: str, sizes: Mapping[str, int]) -> int:
    """Bytes of logits of one cell and seed, at every label fraction."""
    logits = len(suite.protocol.data.fractions) * len(suite.datasets[dataset].classes)
    return round(predicted_images(suite, dataset, sizes) * logits * FLOAT32_BYTES)


def _encoded(suite: Suite, encoder: str, sizes: Mapping[str, int]) -> int:
    image_sets = suite.existing_image_sets(encoder)
    return sum(sizes[name] + degraded_images(suite, name, sizes) for name in image_sets)
