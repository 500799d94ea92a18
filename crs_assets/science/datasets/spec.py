"""A data set as data: a frozen model of one TOML file of ``catalog/datasets``."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator, model_validator

from crs_assets.science.datasets.options import READER_OPTIONS, ReaderType
from crs_assets.science.labels import TaskType
from crs_assets.science.phantoms import PhantomType
from crs_assets.science.toml_models import CatalogError, FrozenModel, read_toml, validate, validate_part

SpecialtyType = Literal["chest", "skin", "fundus", "other"]
RoleType = Literal["source", "target"]
GroupType = Literal["patient", "lesion", "study", "image"]
AccessType = Literal["open", "registration", "credentialed"]
TestSplitType = Literal["drawn", "official"]


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
        derived: Further labels of a source, each "any of these classes". They exist for transfer: never part of the
            source's own classes, of its strata or of its macro-averages. A multilabel source fits them beside its
            classes, and an uncertain cell of theirs follows the policy of the others; of a softmax source they are the
            sum of the classes' probabilities.
        label_map: Label of a target -> class or derived label of its source, where the two names differ.
        role: ``source`` of probes, or ``target`` that they are transferred to.
        transfer_target: Id of the target of a source, if it has one.
        test_split: ``drawn``: the protocol's share of the groups, by hash. ``official``: the images that the table
            or layout puts into a test set; the rest is divided for each seed as ever.
        group: What must never be divided between splits.
        label_source: Who or what assigned the labels.
        min_side: Smallest accepted height and width, in pixels.
        phantom: Name of the generator, where the images are procedural phantoms and not medical images.
        expected: Counts that the files are checked against.
        planned_images: About how many images, for planning only, where no exact count is asserted.
        licence: Terms of the images.
        access: How the images are obtained.
        obtain: Where the images are to be had and how the folder looks, in words.
        zenodo: Record of Zenodo with the one file of ``reader_options``, where its licence lets a program fetch it.
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
    derived: dict[str, tuple[str, ...]] = Field(default={})
    label_map: dict[str, str] = Field(default={})
    role: RoleType = "source"
    transfer_target: str | None = None
    test_split: TestSplitType = "drawn"
    group: GroupType
    label_source: str = Field(min_length=1)
    min_side: PositiveInt = 32
    phantom: PhantomType | None = None
    expected: ExpectedCounts = ExpectedCounts()
    planned_images: PositiveInt | None = None
    licence: str = Field(min_length=1)
    access: AccessType
    obtain: str = ""
    zenodo: PositiveInt | None = None
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

    @field_validator("citation", "obtain")
    @classmethod
    def _without_address(cls, text: str) -> str:
        if "://" in text or "www." in text:
            raise ValueError("name the publication or the archive, not a web address")
        return text

    @field_validator("age_bins")
    @classmethod
    def _ascending(cls, age_bins: tuple[float, ...]) -> tuple[float, ...]:
        if list(age_bins) != sorted(set(age_bins)):
            raise ValueError(f"age_bins must rise, got {list(age_bins)}")
        return age_bins

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        validate_part(READER_OPTIONS[self.reader], self.reader_options, "reader_options")
        if self.task != "multilabel" and len(self.classes) < 2:
            raise ValueError(f"a {self.task} data set needs at least 2 classes, got {list(self.classes)}")
        if unknown := sorted(set(self.expected.positives) - set(self.classes)):
            raise ValueError(f"expected.positives names {unknown}, which are no classes")
        if self.zenodo and self.reader != "medmnist":
            raise ValueError("zenodo names the record of an archive that the reader medmnist reads")
        self._check_derived()
        if self.transfer_target is not None and self.role == "target":
            raise ValueError("a transfer target has no transfer_target of its own")
        if self.test_split == "official" and self.role == "target":
            raise ValueError("a target is evaluated as a whole; choose among its official sets in reader_options")
        if self.transfer_target == self.id:
            raise ValueError("a data set cannot be its own transfer target")
        return self

    def _check_derived(self) -> None:
        known = {normalise_name(name) for name in self.classes}
        for name, members in self.derived.items():
            if unknown := [member for member in members if member not in self.classes]:
                raise ValueError(f"derived.{name} names {unknown}, which are no classes")
            if not members or len(set(members)) != len(members):
                raise ValueError(f"derived.{name} must name classes, each once, got {list(members)}")
            if self.task != "multilabel" and len(members) == len(self.classes):
                raise ValueError(f"derived.{name} names every class of a {self.task} data set: it would always hold")
            if normalise_name(name) in known:
                raise ValueError(f"derived.{name} has the name of a class or of another derived label")
            known.add(normalise_name(name))
        if self.derived and self.role == "target":
            raise ValueError("derived labels belong to a source; a target maps its labels to them in label_map")
        if self.label_map and self.role == "source":
            raise ValueError("label_map belongs to a target")
        if unknown := sorted(set(self.label_map) - set(self.classes)):
            raise ValueError(f"label_map names {unknown}, which are no classes")

    @staticmethod
    def content_fields() -> tuple[str, ...]:
        """The fields that decide what an index holds; the others may be reworded without touching a result."""
        return (
            "id", "task", "classes", "reader", "reader_options", "derived", "label_map", "test_split", "min_side",
            "phantom", "subgroups",
        )  # fmt: skip


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
