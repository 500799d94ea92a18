"""Reading TOML facts into frozen models: one loader, one wording of errors, ``extends`` for variants."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from crs_assets.science.toml_problems import PartError, problems


class CatalogError(ValueError):
    """A catalogue file that cannot be used; the message names the file, the key and the cure."""


class FrozenModel(BaseModel):
    """Immutable facts; an unknown key is an error, so that a misspelt one is never silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=FrozenModel)


def read_toml(path: Path) -> dict[str, Any]:
    """Parse one TOML file.

    Raises:
        CatalogError: If the file is missing, is not UTF-8 or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CatalogError(f"{path.name}: no such catalogue file; looked at {path}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CatalogError(f"{path.name}: not a TOML file ({error}).") from error


def merge(base: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """Return ``base`` with ``override`` on top: tables are merged key by key, anything else is replaced."""
    merged = dict(base)
    for key, value in override.items():
        both_tables = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both_tables else value
    return merged


def resolve_extends(
    document: dict[str, Any], find: Callable[[str], Path], seen: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Apply the chain of ``extends = "<id>"`` keys of a document.

    Args:
        document: A parsed TOML document.
        find: Maps an id to the file that defines it.
        seen: Ids already followed.

    Raises:
        CatalogError: If the chain returns to itself.
    """
    if "extends" not in document:
        return document
    parent = document["extends"]
    if parent in seen:
        raise CatalogError(f"extends goes in a circle: {' -> '.join((*seen, parent))}.")
    base = resolve_extends(read_toml(find(parent)), find, (*seen, parent))
    return merge(base, {key: value for key, value in document.items() if key != "extends"})


def validate(model: type[Model], document: dict[str, Any], *, source: str) -> Model:
    """Validate a document, reporting every problem at once.

    Raises:
        CatalogError: Naming the source, and each key with what was seen and what was expected.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        found = [f"  {problem}" for problem in problems(error, model, document)]
        raise CatalogError("\n".join([f"{source}: {len(found)} problem(s):", *found])) from error


def validate_part(model: type[FrozenModel], document: dict[str, Any], key: str) -> None:
    """Validate a table whose model depends on the rest of its document; to be called by that document's validator.

    Args:
        model: The table's model.
        document: The table.
        key: Its key.

    Raises:
        PartError: With every problem of the table, which ``validate`` tells among the document's own.
    """
    try:
        model.model_validate(document)
    except ValidationError as error:
        raise PartError(problems(error, model, document, (key,))) from error
