"""Which degradation is physically sensible for which images: a judgement, kept as data with its reasons."""

from functools import cache
from pathlib import Path
from typing import Literal

import polars as pl
from pydantic import Field

from crs_assets.science.toml_models import FrozenModel, read_toml, validate

MODALITY_FILE = Path(__file__).parents[2] / "catalog" / "degradations.toml"

SuitsType = Literal["yes", "roughly", "no"]


class Suitability(FrozenModel):
    """A judgement.

    Attributes:
        suits: ``yes``: such images arise so; ``roughly``: something like it does; ``no``: the model is of other images.
        because: Why, in a phrase.
    """

    suits: SuitsType
    because: str = Field(min_length=1)


class DegradationFacts(FrozenModel):
    """One degradation.

    Attributes:
        models: What it stands for.
        chest: Chest radiographs.
        skin: Photographs and dermoscopy of the skin.
        fundus: Photographs of the retina.
    """

    models: str = Field(min_length=1)
    chest: Suitability
    skin: Suitability
    fundus: Suitability


class ModalityTable(FrozenModel):
    """``degradations.toml``: facts by degradation."""

    degradations: dict[str, DegradationFacts]


MODALITIES: tuple[str, ...] = ("chest", "skin", "fundus")
"""Specialties of data sets whose images are judged."""


@cache
def modality_table() -> ModalityTable:
    """The shipped judgements.

    Raises:
        CatalogError: If the file is malformed.
    """
    return validate(ModalityTable, read_toml(MODALITY_FILE), source=MODALITY_FILE.name)


def suitability_of(degradation: str, specialty: str) -> Suitability | None:
    """Whether a degradation suits the images of a specialty; None where nobody has judged it.

    Args:
        degradation: Id of a degradation family.
        specialty: Specialty of a data set.
    """
    facts = modality_table().degradations.get(degradation)
    return getattr(facts, specialty) if facts and specialty in MODALITIES else None


def modality_frame() -> pl.DataFrame:
    """One row per degradation and modality: ``degradation``, ``models``, ``modality``, ``suits``, ``because``."""
    return pl.DataFrame(
        [
            {
                "degradation": name,
                "models": facts.models,
                "modality": modality,
                **getattr(facts, modality).model_dump(),
            }
            for name, facts in modality_table().degradations.items()
            for modality in MODALITIES
        ]
    )
