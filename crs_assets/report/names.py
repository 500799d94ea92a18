"""What readers call the things that the protocol and the catalogue know by an id."""

from collections.abc import Mapping

from crs_assets.science.protocol import CLEAN, TRANSFER

_DEGRADATIONS: Mapping[str, str] = {
    "gaussian_blur": "Gaussian blur",
    "jpeg": "JPEG compression",
    "contrast": "reduced contrast",
    "rician": "Rician noise",
    "fov_crop": "field-of-view crop",
}
_MAPS: Mapping[str, str] = {
    "temperature": "temperature scaling",
    "vector": "vector scaling",
    "platt": "Platt scaling",
    "isotonic": "isotonic regression",
    "dirichlet": "Dirichlet calibration",
}
_SUBGROUP_COLUMNS: Mapping[str, str] = {"anatom_site": "anatomical site"}


def degradation_name(family: str) -> str:
    """A family of degradations."""
    return _DEGRADATIONS.get(family, family.replace("_", " "))


def condition_name(condition: str) -> str:
    """A condition: clean, a degradation with its severity, the transfer target."""
    if condition in (CLEAN, TRANSFER):
        return "clean" if condition == CLEAN else "transfer target"
    family, _, severity = condition.rpartition("-")
    return f"{degradation_name(family)}, severity {severity}" if family else degradation_name(condition)


def map_name(method: str) -> str:
    """A recalibration map."""
    return _MAPS.get(method, method)


def subgroup_name(column: str) -> str:
    """A column that subgroups are told apart by."""
    return _SUBGROUP_COLUMNS.get(column, column.replace("_", " "))
