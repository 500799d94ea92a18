"""``crs dataset check``: from what a person calls a data set to its entry and its folder."""

from functools import partial
from pathlib import Path

from crs_assets.cli.session import open_roots
from crs_assets.resources.home import Home, home_path
from crs_assets.science.datasets import DatasetCheck, check_dataset, load_dataset_spec
from crs_assets.science.protocol import load_protocol
from crs_assets.science.suite import find_entry


def check(name: str, folder: Path | None, *, look_alikes: bool, protocol: str = "crs-v1") -> DatasetCheck:
    """Check a data set of the catalogue, or one described by a file.

    Args:
        name: Data set id, or path of its TOML.
        folder: Where its images lie; by default where the benchmark would look for them.
        look_alikes: Also look for near-duplicates.
        protocol: Id of the protocol whose splits and label fractions are tried.

    Raises:
        CatalogError: If there is no such entry.
        DataRootError: If there is no such folder.
    """
    home = Home(home_path())
    entry = Path(name) if name.endswith(".toml") else find_entry("datasets", name, home.catalog)
    spec = load_dataset_spec(entry)
    find = partial(find_entry, "protocols", user_catalog=home.catalog)
    root = folder or open_roots(home, spec.id).prepare(spec)
    return check_dataset(root, spec, look_alikes=look_alikes, protocol=load_protocol(protocol, find))
