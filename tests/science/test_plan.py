"""What a suite is planned to take: the article's grid by enumeration, and a small suite by hand."""

from dataclasses import replace
from itertools import product

import pytest

from crs_assets.science.plan import plan_suite
from crs_assets.science.suite import load_suite


@pytest.fixture(scope="module")
def paper():
    return load_suite("paper")


ARTICLE = ["resnet50", "vit-b16", "clip-b16", "siglip-b16", "dinov2-b14", "mae-b16"]
ARTICLE += ["biomedclip", "llava-med", "medsiglip", "medgemma", "panderm", "retfound", "rad-dino", "biovil", "chexzero"]


def test_the_articles_grid_by_enumeration(paper):
    perturbations = ["gaussian_blur", "jpeg", "contrast", "rician", "fov_crop"]
    conditions = ["clean", *product(perturbations, (1, 2, 3))]
    rows = [
        (encoder, dataset, fraction, condition)
        for encoder, dataset in product(ARTICLE, ["isic2019", "chexpert", "aptos2019"])
        if not (encoder in ("biovil", "chexzero") and dataset == "aptos2019")
        for fraction in (0.01, 0.05, 0.10, 0.25, 1.00)
        for condition in (conditions + ["transfer"] * (dataset == "chexpert"))
    ]
    runs = list(product(rows, range(5)))
    plan = plan_suite(paper)
    assert len(set(rows)) == len(rows)
    assert plan.cells == len({row[:2] for row in rows}) == 43
    assert plan.rows == len(rows) == 3_515
    assert plan.runs == len(runs) == 17_575


def test_the_articles_encoders_and_their_absent_cells(paper):
    plan = plan_suite(paper)
    assert [name for name, spec in paper.encoders.items() if spec.role == "encoder"] == ARTICLE
    reason = "its released interface is specific to chest radiographs"
    assert plan.absent_cells == [
        {"encoder": encoder, "dataset": "aptos2019", "reason": reason} for encoder in ("biovil", "chexzero")
    ]


def test_controls_are_counted_apart(paper):
    # Pixels on three sets: 5 fractions x (16 + 17 + 16) conditions x 5 seeds.
    assert plan_suite(paper).control_runs == 5 * 49 * 5


def test_partitions_of_the_paper(paper):
    # 15 encoders and pixels; four image sets with the target; two encoders have one image set less.
    partitions = plan_suite(paper).partitions
    assert partitions["encoder_weights"] == 16
    assert partitions["features"] == partitions["degraded_features"] == 16 * 4 - 2
    assert partitions["splits"] == 3 * 5
    assert partitions["probe_predictions"] == partitions["run_metrics"] == (16 * 3 - 2) * 5


def test_sizes_are_the_catalogues_and_where_it_asserts_none_about_so_many(paper):
    assert plan_suite(paper).images == {
        "isic2019": 25_331,
        "chexpert": 191_229,
        "aptos2019": 3_662,
        "mimic-cxr": 243_000,
    }


def test_a_set_of_unknown_size_leaves_what_depends_on_it_unknown(paper):
    target = paper.targets["mimic-cxr"].model_copy(update={"planned_images": None})
    plan = plan_suite(replace(paper, targets={"mimic-cxr": target}))
    assert plan.images["mimic-cxr"] is None
    assert plan.images_to_encode is plan.feature_bytes is plan.prediction_bytes is None


@pytest.fixture
def small(paper):
    """Two encoders on one multiclass set (8 classes) and on one with a target (14 labels), five seeds."""
    encoders = {name: paper.encoders[name] for name in ("resnet50", "chexzero")}
    datasets = {name: paper.datasets[name] for name in ("isic2019", "chexpert")}
    return replace(paper, encoders=encoders, datasets=datasets)


def test_a_small_suite_by_hand(small):
    plan = plan_suite(small, {"isic2019": 100, "chexpert": 200, "mimic-cxr": 50})
    assert plan.cells == 4
    assert plan.rows == 2 * (5 * 16 + 5 * 17)  # 330
    assert plan.runs == 330 * 5
    assert plan.control_runs == 0
    # An encoder sees 350 clean images, and 15 degraded versions of 20 + 40 test images: 350 + 900.
    assert plan.images_to_encode == 2 * 1_250
    # float32: ResNet-50 has 2,048 features, CheXzero 512.
    assert plan.feature_bytes == 1_250 * (2_048 + 512) * 4
    # Logits of a cell, seed and fraction: 80 x 30 % held out + 20 x 16 conditions = 344 images of 8 classes;
    # 160 x 30 % + 40 x 16 + 50 at the target = 738 of 14 labels.
    assert plan.prediction_bytes == 2 * (344 * 8 + 738 * 14) * 5 * 4 * 5


def test_an_indexed_count_replaces_the_catalogues(small):
    assert plan_suite(small, {"mimic-cxr": 10}).images["isic2019"] == 25_331
    assert plan_suite(small, {"isic2019": 25_000}).images["isic2019"] == 25_000


def test_a_plan_is_plain_data(small):
    document = plan_suite(small).to_dict()
    assert document["suite"] == "paper"
    assert document["partitions"]["features"] == 6
