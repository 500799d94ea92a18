"""``config.toml`` of CRS_HOME: what a site says of its machine, its data and its weights, checked as a whole."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field, ValidationError, create_model

from crs_assets.resources.artifact_store import ArtifactStore
from crs_assets.resources.compute import ComputeDevice
from crs_assets.resources.home import Home
from crs_assets.resources.weights import WeightStore
from crs_assets.science.suggestion import did_you_mean
from crs_assets.science.suite import entry_ids
from crs_assets.science.toml_models import CatalogError, FrozenModel, read_toml
from crs_assets.science.toml_problems import problems

FILE = "config.toml"
DATA_ROOTS = "data_roots"


class ArtifactStoreResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Content-addressed partitions on a local folder, mirrored to any fsspec URL on request."""

    root: str = Field(description="Local folder of the store.")
    remote: str = Field(default="", description="fsspec URL to mirror to and pull from; by default none.")

    def resolve(self) -> ArtifactStore:
        """The plain object that assets use."""
        return ArtifactStore(Path(self.root), self.remote or None)


class _Exact(FrozenModel, strict=True):
    """Keys whose values are of their kind as written: ``"yes"`` is no ``true``."""


def _table(resource: type[dg.ConfigurableResource[Any]], *decided: str) -> type[FrozenModel]:
    """The keys of a resource that a site may set, none of which it has to: all but those that CRS_HOME decides."""
    fields: dict[str, Any] = {}
    for name, field in resource.model_fields.items():
        if name not in decided:
            optional = Field(default="", description=field.description) if field.is_required() else field
            fields[name] = (field.annotation, optional)
    return create_model(resource.__name__, __base__=_Exact, **fields)


TABLES = {
    "compute": _table(ComputeDevice),
    "weights": _table(WeightStore, "cache"),
    "store": _table(ArtifactStoreResource, "root"),
}
"""Table -> its keys. ``data_roots`` beside these has a key per data set."""

_TOP: dict[str, Any] = {DATA_ROOTS: (dict[str, str], {}), **{name: (table, None) for name, table in TABLES.items()}}
_CONFIG = create_model("Configuration", __base__=_Exact, **_TOP)


def read_configuration(home: Home, *further: str) -> dict[str, dict[str, Any]]:
    """The tables of ``config.toml``; empty where there is none.

    Args:
        home: CRS_HOME.
        further: Data sets that are in no catalogue and may have a folder all the same.

    Raises:
        CatalogError: With every key that nobody reads and every value of another kind, or if CRS_HOME is no folder.
    """
    if home.path.exists() and not home.path.is_dir():
        raise CatalogError(f"CRS_HOME is {home.path}, which is a file; name a folder.")
    path = home.path / FILE
    if not path.exists():
        return {}
    document = read_toml(path)
    if found := [*_wrong_keys(document), *_unknown_data_sets(document, home.catalog, further)]:
        raise CatalogError("\n".join([f"{path}: {len(found)} problem(s):", *(f"  {text}" for text in found)]))
    return document


def _wrong_keys(document: dict[str, Any]) -> Iterator[str]:
    try:
        _CONFIG.model_validate(document)
    except ValidationError as error:
        for problem in problems(error, _CONFIG, document):
            # ``compute.batch: ...`` as it stands in the file: ``[compute] batch: ...``.
            keys, told = problem.split(": ", 1)
            table, dot, key = keys.partition(".")
            yield f"[{table}] {key}: {told}" if dot else problem


def _unknown_data_sets(document: dict[str, Any], catalog: Path, further: tuple[str, ...]) -> Iterator[str]:
    named = document.get(DATA_ROOTS, {})
    known = [*entry_ids("datasets", catalog), *further]
    for name in named if isinstance(named, dict) else ():
        if name not in known:
            cure = did_you_mean(name, known) or f" Add {name}.toml to {catalog / 'datasets'}, or take the line out."
            yield f"[{DATA_ROOTS}] {name}: no data set has this id.{cure}"
