"""Errors that a person can mend, and how an error is told without telling on a patient."""

import re
import traceback

import polars as pl

from crs_assets.resources.artifact_store import StoreError
from crs_assets.resources.bench import Bench
from crs_assets.resources.data_roots import DataRootError
from crs_assets.science.datasets import DatasetError
from crs_assets.science.encoders.errors import EncoderMemoryError, WeightsError
from crs_assets.science.images import ImageError
from crs_assets.science.labels import LabelError
from crs_assets.science.panel import PanelError
from crs_assets.science.phantoms import PhantomError
from crs_assets.science.toml_models import CatalogError
from crs_assets.stages.data import DatasetIndex, read_index
from crs_assets.stages.stage import RefusedError

# Their messages say what was seen, what was expected and what to do; a traceback would add nothing.
MENDABLE = (
    CatalogError,
    DataRootError,
    DatasetError,
    EncoderMemoryError,
    ImageError,
    LabelError,
    PanelError,
    PhantomError,
    RefusedError,
    StoreError,
    WeightsError,
)
WITHHELD = "<withheld>"


class RemoteError(RuntimeError):
    """An error of another process, as text: not every exception survives the way, and no traceback does.

    Attributes:
        where: Lines of code that it came through; empty where the message says all.
    """

    def __init__(self, told: str, where: str = "") -> None:
        self.where = where
        super().__init__(told, where)

    def __str__(self) -> str:
        return str(self.args[0])

    @classmethod
    def of(cls, error: Exception) -> "RemoteError":
        """What is to be told of an error elsewhere."""
        where = "" if isinstance(error, MENDABLE) else "".join(traceback.format_tb(error.__traceback__))
        return cls(f"{type(error).__name__}: {error}", where)


def tell(bench: Bench, error: Exception) -> str:
    """One message for logs and failures: ids, file names and paths of images are withheld, whoever raised the error."""
    return withhold(bench, str(error) if isinstance(error, RemoteError) else f"{type(error).__name__}: {error}")


def tell_where(bench: Bench, error: Exception) -> str:
    """The message, and for an error that nobody foresaw the lines of code that it came through."""
    if isinstance(error, MENDABLE):
        return tell(bench, error)
    where = error.where if isinstance(error, RemoteError) else "".join(traceback.format_tb(error.__traceback__))
    return "\n".join(filter(None, (tell(bench, error), where)))


def withhold(bench: Bench, text: str) -> str:
    """Replace whatever names an image, a group or a file of any image set of the suite."""
    for image_set in bench.suite.image_sets:
        root = re.escape(str(bench.roots.path(image_set)))
        text = re.sub(rf"{root}/[^\s'\",;]+", WITHHELD, text)
    names = {name for image_set in bench.suite.image_sets for name in _names(bench, image_set)}
    words = re.split(r"([\s'\",;:()\[\]{}=]+)", text)
    return "".join(WITHHELD if _is_named(word, names) else word for word in words)


def _is_named(word: str, names: set[str]) -> bool:
    return any(part in names for part in (word, *word.split("/"), word.rstrip(".")) if part)


def _names(bench: Bench, image_set: str) -> set[str]:
    """Everything that stands for one image or patient in the index: ids with and without prefix, paths, file names."""
    if DatasetIndex().version(bench, image_set) is None:
        return set()
    index = read_index(bench, image_set)
    image, group, path = pl.col("image_id"), pl.col("group_id"), pl.col("path")
    columns = index.select(
        image,
        group,
        path,
        key=image.str.strip_prefix(f"{image_set}/"),
        name=path.str.split("/").list.last(),
        of_group=group.str.strip_prefix(f"{image_set}::"),
    )
    return {value for column in columns for value in column.to_list()}
