"""Where the images of each data set lie."""

from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
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


def write_phantoms(roots: Roots, specs: Iterable[DatasetSpec], workers: int) -> None:
    """Write the phantoms of data sets side by side, in processes of their own; those in place are left alone."""
    jobs = [(spec.phantom, roots.path(spec.id)) for spec in specs if spec.phantom and not roots.path(spec.id).exists()]
    if not jobs:
        return
    with ProcessPoolExecutor(min(workers, len(jobs)), mp_context=get_context("spawn")) as pool:
        for written in [pool.submit(write_phantom, name, root) for name, root in jobs]:
            written.result()


class DataRoots(dg.ConfigurableResource):  # type: ignore[type-arg]
    """One folder per data set."""

    default: str = Field(description="Folder below which a data set lies under its id.")
    configured: dict[str, str] = Field(default={}, description="Data set id -> folder, where it lies elsewhere.")

    def resolve(self) -> Roots:
        """The plain object that assets use."""
        return Roots(Path(self.default), dict(self.configured))
