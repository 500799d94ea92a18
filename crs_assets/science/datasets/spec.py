"""A data set as data: a frozen model of one TOML file of ``catalog/datasets``."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from crs_assets.science.labels import TaskType
from crs_assets.science.toml_models import CatalogError, FrozenModel, read_toml, validate

SpecialtyType = Literal["chest", "skin", "fundus", "other"]
RoleType = Literal["source", "target"]
GroupType = Literal["patient", "lesion", "study", "image"]
AccessType = Literal["open", "registration", "credentialed"]
ReaderType = Literal["aptos2019", "chexpert", "isic2019", "manifest", "mimic_cxr_jpg"]


class ChexpertOptions(FrozenModel):
    """Which label tables are pooled; CheXlocalize calls them ``val_labels.csv`` and ``test_labels.csv``."""

    tables: tuple[str, ...] = Field(default=("train.csv", "valid.csv"), min_length=1)


class MimicCxrJpgOptions(FrozenModel):
    """Which official splits are read."""

    split: Literal["all", "test", "validate+test"] = "all"


class ManifestOptions(FrozenModel):
    """File name of the manifest, and the values of its ``view`` column that are kept (empty: all)."""

    file: str = "manifest.csv"
    views: tuple[str, ...] = ()


class NoOptions(FrozenModel):
    """A layout without options."""


READER_OPTIONS: dict[ReaderType, type[FrozenModel]] = {
    "aptos2019": NoOptions,
    "chexpert": ChexpertOptions,
    "isic2019": NoOptions,
    "manifest": ManifestOptions,
    "mimic_cxr_jpg": MimicCxrJpgOptions,
}


class ExpectedCounts(FrozenModel):
    """Counts of the files as read, after the layout's own exclusions and before any quarantine.

    Attributes:
        images: Rows.
        groups: Distinct groups, a row without one counting as its own.
        positives: Positive images of each class named here.
    """

    images: NonNegativeInt | None = None
    groups: NonNegativeInt | None = None
    positives: dict[str, NonNegativeInt] = Field(default={})


class DatasetSpec(FrozenModel):
    """What is known of a data set, and how its files are read.

    Attributes:
        id: Name in keys, hashes and ids; never reused for other contents.
        title: For people. Says plainly where images are procedural phantoms.
        specialty: Medical field.
        task: ``multiclass``, ``ordinal`` (classes in ascending order) or ``multilabel``.
        classes: Names in the order of class indices or label columns.
        reader: Layout of the files.
        reader_options: Options of that layout.
        role: ``source`` of probes, or ``target`` that they are transferred to.
        transfer_target: Id of the target of a source, if it has one.
        group: What must never be divided between splits.
        label_source: Who or what assigned the labels.
        min_side: Smallest accepted height and width, in pixels.
        phantom: Name of the generator, where the images are procedural phantoms and not medical images.
        expected: Counts that the files are checked against.
        licence: Terms of the images.
        access: How the images are obtained.
        citation: The publication to cite.
        subgroups: Names of subgroup columns; ``age`` is numeric.
        age_bins: Ascending inner edges, in years, of the age groups that reports show.
    """

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str = Field(min_length=1)
    specialty: SpecialtyType
    task: TaskType
    classes: tuple[str, ...] = Field(min_length=1)
    reader: ReaderType
    reader_options: dict[str, Any] = Field(default={})
    role: RoleType = "source"
    transfer_target: str | None = None
    group: GroupType
    label_source: str = Field(min_length=1)
    min_side: PositiveInt = 32
    phantom: str | None = None
    expected: ExpectedCounts = ExpectedCounts()
    licence: str = Field(min_length=1)
    access: AccessType
    citation: str = Field(min_length=1)
    subgroups: tuple[str, ...] = ()
    age_bins: tuple[float, ...] = ()

    @field_validator("classes", "subgroups")
    @classmethod
    def _distinct(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if len({normalise_name(name) for name in names}) != len(names):
            raise ValueError(f"names repeat, or differ in case or spacing only: {list(names)}")
        if unusable := [name for name in names if not name.strip() or name != name.strip()]:
            raise ValueError(f"names are empty or have white space at an end: {unusable}")
        return names

    @field_validator("citation")
    @classmethod
    def _without_address(cls, citation: str) -> str:
        if "://" in citation or "www." in citation:
            raise ValueError("cite the publication, not a web address")
        return citation

    @field_validator("age_bins")
    @classmethod
    def _ascending(cls, age_bins: tuple[float, ...]) -> tuple[float, ...]:
        if list(age_bins) != sorted(set(age_bins)):
            raise ValueError(f"age_bins must rise, got {list(age_bins)}")
        return age_bins

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        READER_OPTIONS[self.reader].model_validate(self.reader_options)
        if self.task != "multilabel" and len(self.classes) < 2:
            raise ValueError(f"a {self.task} data set needs at least 2 classes, got {list(self.classes)}")
        if unknown := sorted(set(self.expected.positives) - set(self.classes)):
            raise ValueError(f"expected.positives names {unknown}, which are no classes")
        if self.transfer_target is not None and self.role == "target":
            raise ValueError("a transfer target has no transfer_target of its own")
        if self.transfer_target == self.id:
            raise ValueError("a data set cannot be its own transfer target")
        return self

    @staticmethod
    def content_fields() -> tuple[str, ...]:
        """The fields that decide what an index holds; the others may be reworded without touching a result."""
        return ("id", "task", "classes", "reader", "reader_options", "min_side", "phantom", "subgroups")


def normalise_name(name: str) -> str:
    """A column or class name without the differences between copies of a table: case, spaces, underscores."""
    return " ".join(name.replace("_", " ").split()).casefold()


def load_dataset_spec(path: Path) -> DatasetSpec:
    """Load one data set's entry.

    Raises:
        CatalogError: If the file is missing or malformed, or if its name and its id differ.
    """
    spec = validate(DatasetSpec, read_toml(path), source=path.name)
    if spec.id != path.stem:
        raise CatalogError(f"{path.name}: the file is named {path.stem!r} but its id is {spec.id!r}; make them equal.")
    return spec
