"""Writing a phantom to a folder: all of it or nothing, and never over anything else."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from crs_assets.science.canonical import digest
from crs_assets.science.phantoms import aptos, chexpert, isic, mimic
from crs_assets.science.phantoms.files import Files

PhantomType = Literal["skin", "fundus", "chest", "chest_b"]

MARKER = "PHANTOM.json"
DEFAULT_SEED = 0
DEFAULT_SIZE = 144
# Part of every version: raised whenever the same parameters give other bytes.
GENERATOR = 1


class _Recipe(NamedTuple):
    stands_for: str
    images: int
    files: Callable[[int, int, int], Files]


_RECIPES: dict[PhantomType, _Recipe] = {
    "skin": _Recipe("ISIC 2019", isic.IMAGES, isic.files),
    "fundus": _Recipe("APTOS 2019", aptos.IMAGES, aptos.files),
    "chest": _Recipe("CheXpert-v1.0-small", chexpert.IMAGES, chexpert.files),
    "chest_b": _Recipe("MIMIC-CXR-JPG 2.1.0", mimic.IMAGES, mimic.files),
}
PHANTOMS: tuple[PhantomType, ...] = tuple(_RECIPES)


class PhantomError(ValueError):
    """A phantom that cannot be written; the message says what is in the way."""


def write_phantom(
    name: PhantomType, root: Path, *, n: int | None = None, seed: int = DEFAULT_SEED, size: int = DEFAULT_SIZE
) -> None:
    """Write a phantom in the layout of the set it stands for.

    The folder is written beside ``root`` and renamed when complete. Where the same phantom already is, nothing is done.

    Args:
        name: ``skin``, ``fundus``, ``chest`` or ``chest_b``.
        root: The folder that will hold the tables; it must be absent, empty, or hold this very phantom.
        n: Images (frontal ones for the chest phantoms); by default as many as the demonstration needs.
        seed: Seed of everything random.
        size: Short side of the images in pixels.

    Raises:
        PhantomError: If the name is unknown, or ``root`` holds anything else.
    """
    description = _description(name, n, seed, size)
    if _is_in_place(root, description):
        return
    partial = root.parent / f".{root.name}.partial-{os.getpid()}"
    partial.mkdir(parents=True)
    try:
        for path, content in _RECIPES[name].files(description["images"], seed, size):
            target = partial / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        (partial / MARKER).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        _move_into_place(partial, root, description)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def phantom_version(
    name: PhantomType, *, n: int | None = None, seed: int = DEFAULT_SEED, size: int = DEFAULT_SIZE
) -> str:
    """SHA-256 of a phantom's generator version and parameters.

    Args:
        name: The phantom.
        n: As in ``write_phantom``.
        seed: As in ``write_phantom``.
        size: As in ``write_phantom``.

    Raises:
        PhantomError: If the name is unknown.
    """
    return str(_description(name, n, seed, size)["version"])


def _description(name: PhantomType, n: int | None, seed: int, size: int) -> dict[str, Any]:
    if name not in _RECIPES:
        raise PhantomError(f"unknown phantom {name!r}; there are {list(PHANTOMS)}.")
    parameters = {
        "phantom": name,
        "generator": GENERATOR,
        "images": _RECIPES[name].images if n is None else n,
        "seed": seed,
        "size": size,
    }
    return {
        "notice": "Procedural phantoms, drawn by a program. Not medical images; no patient is shown or described.",
        "stands_for": f"the layout of {_RECIPES[name].stands_for}",
        **parameters,
        "version": digest(parameters),
    }


def _is_in_place(root: Path, description: dict[str, Any]) -> bool:
    """Whether this very phantom is at ``root`` already.

    Raises:
        PhantomError: If anything else is there.
    """
    if not root.exists() or (root.is_dir() and not any(root.iterdir())):
        return False
    marker = root / MARKER
    if not marker.is_file():
        raise PhantomError(f"{root} is not empty and has no {MARKER}: it is no phantom. Choose an empty folder.")
    found = json.loads(marker.read_text(encoding="utf-8"))
    if found.get("version") == description["version"]:
        return True
    seen, wanted = ({key: source.get(key) for key in ("phantom", "generator", "images", "seed", "size")}
                    for source in (found, description))  # fmt: skip
    raise PhantomError(f"{root} holds another phantom: {seen}, wanted {wanted}. Remove it or choose another folder.")


def _move_into_place(partial: Path, root: Path, description: dict[str, Any]) -> None:
    try:
        partial.rename(root)
    except OSError:
        # Another process may have finished the same phantom first.
        if not _is_in_place(root, description):
            raise
