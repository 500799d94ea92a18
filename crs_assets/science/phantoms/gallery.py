"""Contact sheets of the phantoms, for documentation and for a look."""

import numpy as np

from crs_assets.science.phantoms import aptos, canvas, chest, chest_findings, chexpert, fundus, isic, mimic, skin
from crs_assets.science.phantoms.canvas import ByteImage
from crs_assets.science.phantoms.writing import DEFAULT_SEED, DEFAULT_SIZE, PHANTOMS, PhantomError, PhantomType


def contact_sheet(
    name: PhantomType, *, columns: int = 6, seed: int = DEFAULT_SEED, size: int = DEFAULT_SIZE
) -> ByteImage:
    """Examples of a phantom, one row for each class, grade or finding, the latter from subtle to plain.

    Args:
        name: The phantom.
        columns: Examples of each.
        seed: Seed of the phantom.
        size: Short side of an example in pixels.

    Returns:
        ``(height, width, 3)`` uint8, RGB.

    Raises:
        PhantomError: If the name is unknown.
    """
    if name not in PHANTOMS:
        raise PhantomError(f"unknown phantom {name!r}; there are {list(PHANTOMS)}.")
    if name == "skin":
        rows = [[_lesion(k, column, seed, size) for column in range(columns)] for k in range(len(skin.CLASSES))]
    elif name == "fundus":
        rows = [[_eye(k, column, seed, size) for column in range(columns)] for k in range(len(fundus.GRADES))]
    else:
        site = chexpert.SITE if name == "chest" else mimic.SITE
        extents = np.linspace(0.15, 1.0, columns)
        rows = [
            [_film(site, label, column, float(extent), seed, size) for column, extent in enumerate(extents)]
            for label in chest_findings.LABELS
        ]
    return np.concatenate([np.concatenate(row, axis=1) for row in rows], axis=0)


def _lesion(label: int, column: int, seed: int, size: int) -> ByteImage:
    return skin.render(skin.Lesion(f"sheet-{label}-{column}", label), 0, seed, size, isic.CLARITY)


def _eye(grade: int, column: int, seed: int, size: int) -> ByteImage:
    side = ("left", "right")[column % 2]
    return fundus.render(fundus.Eye(f"sheet-{grade}-{column}", side, grade), seed, size, aptos.CLARITY)


def _film(site: chest.Site, label: str, column: int, extent: float, seed: int, size: int) -> ByteImage:
    shown = chest_findings.VEIL if label == "Lung Opacity" else label
    extents = {} if label == "No Finding" else {shown: extent}
    grey = chest_findings.render(
        site, seed, f"sheet-{column}", f"sheet-{label}-{column}", extents, size, ap=bool(column % 2)
    )
    return canvas.to_bytes(np.repeat(grey[..., None], 3, axis=2).astype(np.float32) / np.float32(255))
