"""What the labels of the default phantoms allow, and what mean colour must not give away."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest

from crs_assets.science.phantoms import aptos, canvas, chest_findings, chexpert, fundus, isic, mimic, skin
from crs_assets.science.phantoms.chest_cohort import certain, studies
from crs_assets.science.protocol import load_protocol
from crs_assets.science.splits import (
    check_no_leak,
    eligible_classes,
    eligible_names,
    eligible_target_classes,
    split_seed,
)

PROTOCOL = load_protocol("crs-v1")


@dataclass(frozen=True)
class Space:
    id: str
    task: str
    classes: tuple[str, ...]


SKIN = Space("demo-skin", "multiclass", skin.CLASSES)
FUNDUS = Space("demo-fundus", "ordinal", fundus.GRADES)
CHEST = Space("demo-chest", "multilabel", chest_findings.LABELS)


def index(image_ids, group_ids, labels):
    n = len(image_ids)
    fixed = {"image_id": image_ids, "group_id": group_ids, "pixel_digest": image_ids}
    return pl.DataFrame({**fixed, "quarantine": pl.Series([None] * n, dtype=pl.String), **labels})


def skin_index():
    cohort = isic._cohort(isic.IMAGES, 0)
    return index([p.image for p in cohort], [p.lesion.key for p in cohort], {"label": [p.lesion.label for p in cohort]})


def fundus_index():
    eyes = aptos._cohort(aptos.IMAGES, 0)
    names = [f"{eye.patient}-{eye.side}" for eye in eyes]
    return index(names, [eye.patient for eye in eyes], {"label": [eye.grade for eye in eyes]})


def chest_index(layout):
    films = [
        study for study in studies(layout.SITE.key, 0, layout.PREVALENCES, layout.IMAGES) for _ in range(study.frontal)
    ]
    labels = {
        f"label:{name}": pl.Series([study.cells[name] for study in films], dtype=pl.Int8)
        for name in chest_findings.LABELS
    }
    return index([f"{i:04d}" for i in range(len(films))], [str(study.patient) for study in films], labels)


@pytest.mark.parametrize(
    ("space", "build", "left_out"),
    [
        (SKIN, skin_index, {"DF", "VASC"}),
        (FUNDUS, fundus_index, set()),
        (CHEST, lambda: chest_index(chexpert), {"Pleural Other"}),
    ],
)
@pytest.mark.parametrize("protocol", ["crs-v1", "demo-v1"])
def test_all_but_the_classes_left_out_on_purpose_can_be_scored(space, build, left_out, protocol):
    loaded = load_protocol(protocol)
    frame = build()
    splits = [split_seed(frame, space, seed, loaded) for seed in loaded.data.seeds]
    for split in splits:
        check_no_leak(frame, split)
    names = eligible_names(eligible_classes(frame, space, splits, loaded))
    assert set(space.classes) - set(names) == left_out


def test_the_transfer_target_has_the_same_classes():
    kept = [name for name in chest_findings.LABELS if name != "Pleural Other"]
    table = eligible_target_classes(chest_index(mimic), CHEST, kept, PROTOCOL)
    assert set(eligible_names(table)) == set(kept)


def test_imbalance_follows_the_weights():
    counts = np.bincount(skin_index()["label"], minlength=8)
    assert dict(zip(skin.CLASSES, counts.tolist(), strict=True)) == isic.WEIGHTS
    assert np.bincount(fundus_index()["label"]).tolist() == list(aptos.WEIGHTS)


def test_prevalence_differs_between_the_two_chest_sites():
    at = [chest_index(layout)["label:No Finding"].count() / layout.IMAGES for layout in (chexpert, mimic)]
    assert at[1] > at[0] + 0.05


def test_no_finding_is_never_beside_a_finding():
    for study in studies("chest", 0, chexpert.PREVALENCES, 200):
        if study.cells["No Finding"] == 1:
            others = set(study.cells) - {"No Finding", "Support Devices"}
            assert all(study.cells[name] in (0, None) for name in others)
        assert set(certain(study.cells).values()) <= {0, 1}


@pytest.mark.parametrize(("layout", "classes"), [("skin", 8), ("fundus", 5)])
def test_mean_colour_gives_no_class_away(layout, classes):
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import cross_val_predict
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    label = np.arange(240) % classes
    if layout == "skin":
        images = [skin.render(skin.Lesion(f"c{i}", int(k)), 0, 0, 48, isic.CLARITY) for i, k in enumerate(label)]
    else:
        images = [fundus.render(fundus.Eye(f"c{i}", "left", int(k)), 0, 48, aptos.CLARITY) for i, k in enumerate(label)]
    colour = StandardScaler().fit_transform([image.reshape(-1, 3).mean(axis=0) for image in images])
    order = rng.permutation(len(label))
    proba = cross_val_predict(LogisticRegression(), colour[order], label[order], cv=5, method="predict_proba")
    assert roc_auc_score(label[order], proba, multi_class="ovr", average="macro") < 0.7


def test_mean_grey_gives_no_finding_away():
    from sklearn.metrics import roc_auc_score

    films = list(studies("chest", 0, chexpert.PREVALENCES, 200))
    grey = np.array(
        [
            chest_findings.render(chexpert.SITE, 0, str(s.patient), f"g{i}", s.extents, 48, ap=s.ap).mean()
            for i, s in enumerate(films)
        ]
    )
    aurocs = []
    for name in chest_findings.LABELS:
        present = np.array([study.cells[name] == 1 for study in films])
        auroc = roc_auc_score(present, grey)
        aurocs.append(max(auroc, 1 - auroc))
    assert np.mean(aurocs) < 0.7


def test_noise_fields_are_as_strong_as_cubic_interpolation_of_independent_nodes_makes_them():
    # OpenCV's cubic kernel (Keys 1981, a = -0.75); between nodes the variance is the sum of squared weights, averaged
    # over the position, once for each direction. The field is 1.4 times that.
    a = -0.75
    t = (np.arange(1000) + 0.5) / 1000
    near = [(a + 2) * d**3 - (a + 3) * d**2 + 1 for d in (t, 1 - t)]
    far = [a * (d**3 - 5 * d**2 + 8 * d - 4) for d in (1 + t, 2 - t)]
    expected = 1.4 * np.mean(sum(w**2 for w in near + far))
    rng = canvas.keyed_generator("test")
    for cell in (4.0, 8.0):
        fields = [canvas.smooth_noise(rng, (96, 96), cell) for _ in range(40)]
        assert np.std(fields) == pytest.approx(expected, rel=0.05)


def test_outlines_scale_with_the_radius_and_strokes_with_the_width():
    rng = canvas.keyed_generator("test")
    circle = canvas.wavy_outline(rng, 10.0, 0.0, 1.0)
    np.testing.assert_allclose(circle, 10.0)
    # Blur keeps the area of a disc of radius 10; OpenCV draws the outline as well, which adds less than a pixel around.
    disc = canvas.soft_region((64, 64), (32.0, 32.0), circle, 1.5)
    assert np.pi * 10**2 <= disc.sum() <= np.pi * 11**2
    line = np.array([[8.0, 16.0], [56.0, 16.0]])
    thin, thick = (canvas.strokes((32, 64), [line], width).sum() for width in (0.5, 1.0))
    assert thin == pytest.approx(0.5 * thick)


def test_painting_moves_towards_the_colour():
    image = np.zeros((3, 2, 2), dtype=np.float32)
    canvas.paint(image, np.array([[1, 0], [0.5, 0]], dtype=np.float32), (1.0, 0.5, 0.0), 0.8)
    np.testing.assert_allclose(image[:, 0, 0], [0.8, 0.4, 0.0], rtol=1e-6)
    np.testing.assert_allclose(image[:, 1, 0], [0.4, 0.2, 0.0], rtol=1e-6)
    assert (image[:, :, 1] == 0).all()
