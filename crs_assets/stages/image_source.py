"""Where an encoder's input images come from: decoded, degraded and prepared, or kept from an encoder that did so."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from crs_assets.resources.bench import Bench
from crs_assets.resources.compute import library_versions
from crs_assets.science.encoders import EncoderSpec, prepare
from crs_assets.science.images import (
    extra_pixel_fingerprint,
    iterate_degradations,
    load_image,
    pixel_fingerprint,
    to_working_resolution,
)
from crs_assets.science.perturbations import DegradationFamily
from crs_assets.science.protocol import CLEAN, family_conditions, protocol_part
from crs_assets.stages.data import DatasetIndex

PIXEL_LIBRARIES = ("numpy", "opencv-python-headless", "pillow", "simplejpeg")

Uint8 = NDArray[np.uint8]
Load = Callable[[int], Sequence[Uint8]]


def degradation_recipe(bench: Bench) -> dict[str, Any]:
    """What degraded pixels depend on beside the images: protocol, salt, and what the libraries make of them."""
    protocol = bench.suite.protocol
    return {
        "salt": protocol.salt,
        **protocol_part(protocol, "perturbations"),
        "noise_grid_short_side": protocol.images.noise_grid_short_side,
        "pixels": pixel_fingerprint(),
    }


def extra_degradation_recipe(bench: Bench) -> dict[str, Any]:
    """The same of the degradations beside the score."""
    protocol = bench.suite.protocol
    return {
        "salt": protocol.salt,
        "perturbations": [family.model_dump(mode="json") for family in protocol.analyses.perturbations],
        "noise_grid_short_side": protocol.images.noise_grid_short_side,
        "pixels": extra_pixel_fingerprint(),
    }


def clean_images(bench: Bench, encoder: str, image_set: str, rows: pl.DataFrame) -> Load:
    """Row number -> the clean image as the encoder takes it.

    Args:
        bench: The bench.
        encoder: Id.
        image_set: Data set or target.
        rows: Rows of its index, with ``path``.
    """
    spec = bench.suite.encoders[encoder]
    make = partial(_clean, bench, spec, image_set, rows["path"].to_list())
    return _kept(bench, spec, image_set, rows.height, {"conditions": [CLEAN]}, make)


def degraded_images(bench: Bench, encoder: str, image_set: str, rows: pl.DataFrame) -> Load:
    """Row number -> the image under every degradation, in the protocol's order, from one decode.

    Args:
        bench: The bench.
        encoder: Id.
        image_set: Data set.
        rows: Rows of its index, with ``image_id`` and ``path``.
    """
    return _degraded_by(bench, encoder, image_set, rows, bench.suite.protocol.perturbations, degradation_recipe(bench))


def extra_degraded_images(bench: Bench, encoder: str, image_set: str, rows: pl.DataFrame) -> Load:
    """As ``degraded_images``, under every degradation beside the score."""
    return _degraded_by(
        bench, encoder, image_set, rows, bench.suite.protocol.analyses.perturbations, extra_degradation_recipe(bench)
    )


def _degraded_by(
    bench: Bench,
    encoder: str,
    image_set: str,
    rows: pl.DataFrame,
    families: Sequence[DegradationFamily],
    recipe: dict[str, Any],
) -> Load:
    spec = bench.suite.encoders[encoder]
    ids, references = rows["image_id"].to_list(), rows["path"].to_list()
    make = partial(_degraded, bench, spec, image_set, ids, references, families)
    conditions = [condition.name for condition in family_conditions(families)]
    return _kept(bench, spec, image_set, rows.height, {"conditions": conditions, "made": recipe}, make)


def _kept(bench: Bench, spec: EncoderSpec, image_set: str, rows: int, made: dict[str, Any], make: Load) -> Load:
    """Through a shelf of prepared images where another encoder of the suite asks for the same pixels."""
    geometry = spec.preprocessing.geometry
    if sum(other.preprocessing.geometry == geometry for other in bench.suite.encoders.values()) < 2:
        return make
    recipe = {
        **made,
        "image_set": image_set,
        "index": DatasetIndex().version(bench, image_set),
        "working_short_side": bench.suite.protocol.images.working_short_side,
        "geometry": geometry,
        "libraries": library_versions(*PIXEL_LIBRARIES),
    }
    side = spec.preprocessing.input_size
    shelf = bench.prepared_images.shelf(recipe, rows, (len(made["conditions"]), side, side, 3))
    return make if shelf is None else partial(_through, shelf.load, make)


def _through(load: Callable[[int, Load], Sequence[Uint8]], make: Load, row: int) -> Sequence[Uint8]:
    return load(row, make)


def _working_image(bench: Bench, image_set: str, reference: str) -> Uint8:
    root = bench.roots.path(image_set)
    return to_working_resolution(load_image(root, reference), bench.suite.protocol.images.working_short_side)


def _clean(bench: Bench, spec: EncoderSpec, image_set: str, references: Sequence[str], row: int) -> list[Uint8]:
    return [prepare(_working_image(bench, image_set, references[row]), spec.preprocessing)]


def _degraded(
    bench: Bench,
    spec: EncoderSpec,
    dataset: str,
    ids: Sequence[str],
    references: Sequence[str],
    families: Sequence[DegradationFamily],
    row: int,
) -> list[Uint8]:
    image = _working_image(bench, dataset, references[row])
    degraded = iterate_degradations(
        image, dataset=dataset, image_id=ids[row], protocol=bench.suite.protocol, families=families
    )
    return [prepare(pixels, spec.preprocessing) for _, pixels in degraded]
