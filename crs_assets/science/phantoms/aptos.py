"""The fundus phantom in the layout of APTOS 2019, with the patient and eye columns that the real table lacks."""

import hashlib

import numpy as np

from crs_assets.science.phantoms import canvas, fundus
from crs_assets.science.phantoms.files import File, Files, apportion, csv_bytes, png_bytes

IMAGES = 400
CLARITY = 1.0

# Grade 0 leads as in the real set; the severe grades are frequent enough to be scored.
WEIGHTS = (150, 62, 86, 51, 51)

TABLE = "train.csv"
FOLDER = "train_images"
HEADER = ("id_code", "diagnosis", "patient_id", "eye")


def files(n: int, seed: int, size: int) -> Files:
    """Every file of the fundus phantom.

    Args:
        n: Images.
        seed: Seed of the phantom.
        size: Short side in pixels.
    """
    eyes = {_id_code(eye, seed): eye for eye in _cohort(n, seed)}
    codes = sorted(eyes)
    rows = ((code, eyes[code].grade, eyes[code].patient, eyes[code].side) for code in codes)
    yield File(TABLE, csv_bytes(HEADER, rows))
    for code in codes:
        yield File(f"{FOLDER}/{code}.png", png_bytes(fundus.render(eyes[code], seed, size, CLARITY)))


def _id_code(eye: fundus.Eye, seed: int) -> str:
    return hashlib.sha256(f"{seed}|{eye.patient}|{eye.side}".encode()).hexdigest()[:12]


def _cohort(n: int, seed: int) -> list[fundus.Eye]:
    """Eyes of patients, most with both; fellow eyes have the same or a neighbouring grade."""
    rng = canvas.keyed_generator("aptos", seed)
    left = apportion(n, WEIGHTS)
    eyes: list[fundus.Eye] = []
    patients = 0
    while left.sum():
        patients += 1
        patient = f"P{patients:04d}"
        grade = int(rng.choice(len(left), p=left / left.sum()))
        for side in ("left", "right") if rng.random() < 0.85 else (str(rng.choice(["left", "right"])),):
            if not left.sum():
                break
            eyes.append(fundus.Eye(patient, side, _nearest(left, grade)))
            left[eyes[-1].grade] -= 1
            grade += int(rng.choice([-1, 0, 1], p=[0.12, 0.76, 0.12]))
    return eyes


def _nearest(left: np.ndarray, grade: int) -> int:
    """The grade nearest to the one wanted that still has images to give."""
    open_grades = np.flatnonzero(left)
    return int(open_grades[np.abs(open_grades - grade).argmin()])
