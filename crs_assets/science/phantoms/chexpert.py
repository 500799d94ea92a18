"""The chest phantom in the layout of CheXpert-v1.0-small."""

from crs_assets.science.phantoms import chest
from crs_assets.science.phantoms.chest_cohort import Prevalences, Study, certain, studies
from crs_assets.science.phantoms.chest_findings import LABELS, render
from crs_assets.science.phantoms.files import File, Files, csv_bytes, jpeg_bytes

IMAGES = 440

SITE = chest.Site("chest", ratio=1.2, zoom=1.12, gamma=1.0, equalise=0.0, noise=0.015, tilt=3.0, marker="L")

# Pleural Other is too rare to be scored at the default size: on purpose.
PREVALENCES = Prevalences(
    no_finding=0.20,
    devices=0.48,
    findings={
        "Enlarged Cardiomediastinum": 0.28, "Cardiomegaly": 0.32, "Veil": 0.22, "Lung Lesion": 0.27, "Edema": 0.32,
        "Consolidation": 0.27, "Pneumonia": 0.27, "Atelectasis": 0.32, "Pneumothorax": 0.27, "Pleural Effusion": 0.42,
        "Pleural Other": 0.07, "Fracture": 0.26,
    },
)  # fmt: skip

ROOT = "CheXpert-v1.0-small"
HEADER = ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *LABELS)

# Each such patient is read by radiologists, in valid.csv, whose cells are 0 or 1.
VALID_EVERY = 20
# Patient numbers of the real valid.csv follow those of train.csv.
FIRST_VALID_PATIENT = 64541


def files(n: int, seed: int, size: int) -> Files:
    """Every file of the chest phantom.

    Args:
        n: Frontal images of train.csv and valid.csv together; a few lateral ones come on top.
        seed: Seed of the phantom.
        size: Short side in pixels.
    """
    tables: dict[str, list[tuple[object, ...]]] = {"train": [], "valid": []}
    for study in studies(SITE.key, seed, PREVALENCES, n):
        split = "train" if study.patient % VALID_EVERY else "valid"
        for view in range(1, study.frontal + study.lateral + 1):
            lateral = view > study.frontal
            path = f"{split}/{_patient(study)}/study{study.number}/view{view}_{'lateral' if lateral else 'frontal'}.jpg"
            tables[split].append(_row(study, path, split, lateral=lateral))
            yield File(path, _film(study, path, seed, size, lateral=lateral))
    for split, rows in tables.items():
        yield File(f"{split}.csv", csv_bytes(HEADER, rows))


def _patient(study: Study) -> str:
    number = study.patient if study.patient % VALID_EVERY else FIRST_VALID_PATIENT + study.patient // VALID_EVERY
    return f"patient{number:05d}"


def _row(study: Study, path: str, split: str, *, lateral: bool) -> tuple[object, ...]:
    cells = study.cells if split == "train" else certain(study.cells)
    values = [None if cells[name] is None else f"{cells[name]:.1f}" for name in LABELS]
    view = ("Lateral", None) if lateral else ("Frontal", "AP" if study.ap else "PA")
    return (f"{ROOT}/{path}", "Male" if study.male else "Female", study.age, *view, *values)


def _film(study: Study, path: str, seed: int, size: int, *, lateral: bool) -> bytes:
    if lateral:
        return jpeg_bytes(chest.render_lateral(SITE, seed, path, size))
    return jpeg_bytes(render(SITE, seed, _patient(study), path, study.extents, size, ap=study.ap))
