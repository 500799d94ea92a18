"""Where the images of each data set lie."""

from dataclasses import dataclass
from pathlib import Path

import dagster as dg
from pydantic import Field

from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.phantoms import write_phantom


class DataRootError(FileNotFoundError):
    """A data set whose folder is not where it is said to be."""


@dataclass(frozen=True)
class Roots:
    """Folder of each data set: the configured one, else the data set's id below the default folder."""

    default: Path
    configured: dict[str, str]

    def path(self, dataset: str) -> Path:
        """Where a data set is expected, whether or not it is there."""
        return Path(self.configured.get(dataset, self.default / dataset)).expanduser()

    def prepare(self, spec: DatasetSpec) -> Path:
        """The data set's folder; procedural phantoms are written if they are not there yet.

        Raises:
            DataRootError: If the folder is missing; the message says how to name it.
        """
        root = self.path(spec.id)
        if spec.phantom:
            write_phantom(spec.phantom, root)
        if not root.is_dir():
            raise DataRootError(
                f"data set {spec.id}: no folder {root}. Put it there, or name its place in config.toml of CRS_HOME: "
                f'[data_roots] {spec.id} = "/path/to/it". Access: {spec.access}.'
            )
        return root


class DataRoots(dg.ConfigurableResource):  # type: ignore[type-arg]
    """One folder per data set."""

    default: str = Field(description="Folder below which a data set lies under its id.")
    configured: dict[str, str] = Field(default={}, description="Data set id -> folder, where it lies elsewhere.")

    def resolve(self) -> Roots:
        """The plain object that assets use."""
        return Roots(Path(self.default), dict(self.configured))
