"""The second chest phantom in the layout of MIMIC-CXR-JPG 2.1.0: other films, other prevalences, other column order."""

import hashlib
from dataclasses import dataclass

from crs_assets.science.phantoms import canvas, chest
from crs_assets.science.phantoms.chest_cohort import Prevalences, Study, studies
from crs_assets.science.phantoms.chest_findings import LABELS, render
from crs_assets.science.phantoms.files import File, Files, csv_bytes, gzip_bytes, jpeg_bytes

IMAGES = 400

SITE = chest.Site("chest_b", ratio=0.85, zoom=0.98, gamma=0.85, equalise=0.5, noise=0.022, tilt=5.0, marker="PORTABLE")

PREVALENCES = Prevalences(
    no_finding=0.30,
    devices=0.40,
    findings={
        "Enlarged Cardiomediastinum": 0.22, "Cardiomegaly": 0.36, "Veil": 0.26, "Lung Lesion": 0.22, "Edema": 0.26,
        "Consolidation": 0.20, "Pneumonia": 0.30, "Atelectasis": 0.36, "Pneumothorax": 0.20, "Pleural Effusion": 0.36,
        "Pleural Other": 0.05, "Fracture": 0.20,
    },
)  # fmt: skip

METADATA_HEADER = (
    "dicom_id", "subject_id", "study_id", "PerformedProcedureStepDescription", "ViewPosition", "Rows", "Columns",
    "StudyDate", "StudyTime", "ProcedureCodeSequence_CodeMeaning", "ViewCodeSequence_CodeMeaning",
    "PatientOrientationCodeSequence_CodeMeaning",
)  # fmt: skip
SPLIT_HEADER = ("dicom_id", "study_id", "subject_id", "split")
# Alphabetical, unlike CheXpert: labels are to be matched by name.
LABEL_ORDER = tuple(sorted(LABELS))
CHEXPERT_HEADER = ("subject_id", "study_id", *LABEL_ORDER)

VIEW_MEANING = {"AP": "antero-posterior", "PA": "postero-anterior", "LATERAL": "lateral", None: None}
FIRST_SUBJECT, FIRST_STUDY = 10_000_032, 50_000_014


@dataclass(frozen=True)
class _Film:
    study: Study
    view: str | None
    frontal: bool
    dicom: str
    study_id: int

    @property
    def subject(self) -> int:
        return FIRST_SUBJECT + 7919 * self.study.patient

    @property
    def path(self) -> str:
        return f"files/p{self.subject // 1_000_000}/p{self.subject}/s{self.study_id}/{self.dicom}.jpg"


def files(n: int, seed: int, size: int) -> Files:
    """Every file of the second chest phantom.

    Args:
        n: Frontal images with a view position; a few lateral ones and one without a view come on top.
        seed: Seed of the phantom.
        size: Short side in pixels.
    """
    films = [film for study in studies(SITE.key, seed, PREVALENCES, n) for film in _films(study, seed)]
    metadata, split = [], []
    for film in films:
        image = _draw(film, seed, size)
        yield File(film.path, jpeg_bytes(image))
        metadata.append(_metadata_row(film, image.shape[0], image.shape[1]))
        split.append((film.dicom, film.study_id, film.subject, _official_split(film)))
    labels = {film.study_id: (film.subject, film.study_id, *_cells(film.study)) for film in films}
    tables = {
        "metadata": csv_bytes(METADATA_HEADER, metadata),
        "split": csv_bytes(SPLIT_HEADER, split),
        "chexpert": csv_bytes(CHEXPERT_HEADER, labels.values()),
    }
    for name, content in tables.items():
        yield File(f"mimic-cxr-2.0.0-{name}.csv.gz", gzip_bytes(content))


def _films(study: Study, seed: int) -> list[_Film]:
    """Films of a study; the first patient's first study has one more, whose view nobody recorded."""
    frontal = "AP" if study.ap else "PA"
    views: list[tuple[str | None, bool]] = [(frontal, True)] * study.frontal
    views += [("LATERAL", False)] * study.lateral
    if study.patient == 1 and study.number == 1:
        views.append((None, True))
    study_id = FIRST_STUDY + 104_729 * study.patient + study.number
    return [
        _Film(study, view, is_frontal, _dicom_id(seed, study_id, number), study_id)
        for number, (view, is_frontal) in enumerate(views)
    ]


def _dicom_id(seed: int, study_id: int, number: int) -> str:
    text = hashlib.sha256(f"{seed}|{study_id}|{number}".encode()).hexdigest()
    return "-".join(text[start : start + 8] for start in range(0, 40, 8))


def _draw(film: _Film, seed: int, size: int) -> canvas.ByteImage:
    if not film.frontal:
        return chest.render_lateral(SITE, seed, film.dicom, size)
    return render(SITE, seed, str(film.subject), film.dicom, film.study.extents, size, ap=film.study.ap)


def _metadata_row(film: _Film, rows: int, columns: int) -> tuple[object, ...]:
    study = film.study
    date, time = (
        f"21{40 + study.number}{1 + study.patient % 12:02d}{1 + study.patient % 28:02d}",
        f"{80000 + study.patient}.5",
    )
    procedure = "CHEST (PORTABLE AP)" if study.ap else "CHEST (PA AND LAT)"
    return (
        film.dicom, film.subject, film.study_id, procedure, film.view, rows, columns, date, time, procedure,
        VIEW_MEANING[film.view], "Erect",
    )  # fmt: skip


def _official_split(film: _Film) -> str:
    """By patient, as the release's own: mostly train."""
    return {0: "test", 1: "validate"}.get(film.study.patient % 10, "train")


def _cells(study: Study) -> list[str | None]:
    """Cells of a study; the labeller found nothing at all in one report of the second patient."""
    if study.patient == 2 and study.number == 1:
        return [None] * len(LABEL_ORDER)
    return [None if study.cells[name] is None else f"{study.cells[name]:.1f}" for name in LABEL_ORDER]
