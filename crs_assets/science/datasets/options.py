"""Options of each layout, as ``reader_options`` of a data set's TOML entry holds them."""

import re
from typing import Literal

from pydantic import Field, NonNegativeInt, field_validator

from crs_assets.science.toml_models import FrozenModel

ReaderType = Literal[
    "aptos2019",
    "chexpert",
    "folders",
    "ham10000",
    "idrid",
    "isic2019",
    "isic2020",
    "manifest",
    "medmnist",
    "mimic_cxr_jpg",
    "nih_chest_xray14",
    "pad_ufes_20",
]


class ChexpertOptions(FrozenModel):
    """Which label tables are pooled; CheXlocalize calls them ``val_labels.csv`` and ``test_labels.csv``."""

    tables: tuple[str, ...] = Field(default=("train.csv", "valid.csv"), min_length=1)


class FoldersOptions(FrozenModel):
    """Folders named after classes.

    Attributes:
        folder: Where they lie below the root; empty: the root itself.
        names: Folder name -> class, where they differ.
        group_pattern: Regular expression whose first group, found in a file name, names the image's group, for example
            ``(person[0-9]+)``; empty: every image is its own.
    """

    folder: str = ""
    names: dict[str, str] = Field(default={})
    group_pattern: str = ""

    @field_validator("group_pattern")
    @classmethod
    def _with_one_group(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groups
        except re.error as error:
            raise ValueError(f"not a regular expression ({error})") from None
        if pattern and not groups:
            raise ValueError("needs a group in parentheses, such as (person[0-9]+)")
        return pattern


class ClassNameOptions(FrozenModel):
    """Class names of the table -> classes of the entry, where they differ in more than case."""

    names: dict[str, str] = Field(default={})


class IdridOptions(FrozenModel):
    """Which official sets are pooled."""

    split: Literal["all", "train", "test"] = "all"


class Isic2020Options(FrozenModel):
    """File name of ISIC's list of duplicate pairs; the images of a pair share a group where the file exists."""

    duplicates: str = "ISIC_2020_Training_Duplicates.csv"


class ManifestOptions(FrozenModel):
    """How a table of one's own is read.

    Attributes:
        file: File name.
        views: Values of its ``view`` column that are kept; empty: all.
        sites: Values of its ``site`` (or ``sub:site``) column that are kept; empty: all. Two entries on one table, with
            other sites, are a source and its target.
        columns: Column of a manifest's name, where the table calls it otherwise: ``{path = "image"}``.
        label_prefix: What the columns of labels begin with, before the class.
        names: Value of the ``label`` column -> class, where they differ.
        blank_label: Whether rows without any label are refused, or left out and counted.
        shared_file: Whether one file (equal ``sha256``) under two groups is refused, or left to the settlement of
            duplicates, which joins the groups and quarantines contradicting labels.
    """

    file: str = "manifest.csv"
    views: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    columns: dict[str, str] = Field(default={})
    label_prefix: str = "label:"
    names: dict[str, str] = Field(default={})
    blank_label: Literal["refuse", "exclude"] = "refuse"
    shared_file: Literal["refuse", "settle"] = "refuse"


class MedmnistOptions(FrozenModel):
    """One archive of MedMNIST or MedMNIST+.

    Attributes:
        file: File name of the archive, for example ``retinamnist_224.npz``.
        md5: MD5 of the released file, as the project publishes it; empty: any file is read.
        images: Images of each official split in the release, for the message where the MD5 differs.
    """

    file: str
    md5: str = Field(default="", pattern=r"^([0-9a-f]{32})?$")
    images: dict[Literal["train", "val", "test"], NonNegativeInt] = Field(default={})


class MimicCxrJpgOptions(FrozenModel):
    """Which official splits are read."""

    split: Literal["all", "test", "validate+test"] = "all"


class NoOptions(FrozenModel):
    """A layout without options."""


READER_OPTIONS: dict[ReaderType, type[FrozenModel]] = {
    "aptos2019": NoOptions,
    "chexpert": ChexpertOptions,
    "folders": FoldersOptions,
    "ham10000": ClassNameOptions,
    "idrid": IdridOptions,
    "isic2019": NoOptions,
    "isic2020": Isic2020Options,
    "manifest": ManifestOptions,
    "medmnist": MedmnistOptions,
    "mimic_cxr_jpg": MimicCxrJpgOptions,
    "nih_chest_xray14": NoOptions,
    "pad_ufes_20": ClassNameOptions,
}
