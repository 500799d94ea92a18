"""The skin phantom in the layout of ISIC 2019: one-hot ground truth, metadata with lesion ids, JPEG images."""

from dataclasses import dataclass

import numpy as np

from crs_assets.science.phantoms import canvas, skin
from crs_assets.science.phantoms.files import File, Files, apportion, csv_bytes, jpeg_bytes

IMAGES = 450
CLARITY = 1.0

# Imbalanced as the real set is. DF and VASC have too few images to be scored at the default size: on purpose.
WEIGHTS = {"MEL": 72, "NV": 120, "BCC": 62, "AK": 49, "BKL": 54, "DF": 20, "VASC": 24, "SCC": 49}
MEAN_AGE = {"MEL": 62, "NV": 42, "BCC": 68, "AK": 70, "BKL": 62, "DF": 48, "VASC": 50, "SCC": 72}
SITES = ("anterior torso", "lower extremity", "head/neck", "upper extremity", "posterior torso", "palms/soles", None)

GROUND_TRUTH = "ISIC_2019_Training_GroundTruth.csv"
METADATA = "ISIC_2019_Training_Metadata.csv"
FOLDER = "ISIC_2019_Training_Input"
GROUND_TRUTH_HEADER = ("image", *skin.CLASSES, "UNK")
METADATA_HEADER = ("image", "age_approx", "anatom_site_general", "lesion_id", "sex")


@dataclass(frozen=True)
class _Photograph:
    lesion: skin.Lesion
    number: int
    image: str
    metadata: tuple[object, ...]


def files(n: int, seed: int, size: int) -> Files:
    """Every file of the skin phantom.

    Args:
        n: Images.
        seed: Seed of the phantom.
        size: Short side in pixels.
    """
    photographs = _cohort(n, seed)
    one_hot = np.eye(len(GROUND_TRUTH_HEADER) - 1)
    yield File(GROUND_TRUTH, csv_bytes(GROUND_TRUTH_HEADER, ((p.image, *one_hot[p.lesion.label]) for p in photographs)))
    yield File(METADATA, csv_bytes(METADATA_HEADER, ((p.image, *p.metadata) for p in photographs)))
    for photograph in photographs:
        image = skin.render(photograph.lesion, photograph.number, seed, size, CLARITY)
        yield File(f"{FOLDER}/{photograph.image}.jpg", jpeg_bytes(image))


def _cohort(n: int, seed: int) -> list[_Photograph]:
    """Photographs in order of image id, of lesions photographed one to four times."""
    rng = canvas.keyed_generator("isic", seed)
    numbers = iter(rng.permutation(n))
    photographs: list[_Photograph] = []
    for label, count in enumerate(apportion(n, [WEIGHTS[name] for name in skin.CLASSES])):
        left = int(count)
        while left:
            times = min(left, int(rng.choice([1, 2, 3, 4], p=[0.62, 0.22, 0.10, 0.06])))
            photographs += _lesion(rng, label, [int(next(numbers)) for _ in range(times)])
            left -= times
    return sorted(photographs, key=lambda photograph: photograph.image)


def _lesion(rng: np.random.Generator, label: int, numbers: list[int]) -> list[_Photograph]:
    """All photographs of one lesion. A lesion seen once may have no id, and the MSK archive's ids carry a suffix."""
    archive = str(rng.choice(["BCN", "HAM", "MSK4"], p=[0.48, 0.42, 0.10]))
    lesion_id = f"{archive}_{numbers[0]:07d}" if len(numbers) > 1 or rng.random() > 0.15 else None
    suffix = "_downsampled" if archive == "MSK4" else ""
    age = int(np.clip(5 * round(rng.normal(MEAN_AGE[skin.CLASSES[label]], 14) / 5), 0, 85))
    metadata = (
        age if rng.random() > 0.03 else None,
        SITES[rng.integers(len(SITES))],
        lesion_id,
        (None, "female", "male")[int(rng.choice(3, p=[0.02, 0.46, 0.52]))],
    )
    lesion = skin.Lesion(key=f"{numbers[0]:07d}", label=label)
    return [_Photograph(lesion, k, f"ISIC_{number:07d}{suffix}", metadata) for k, number in enumerate(numbers)]
