"""Costs of a small suite from rates and counts set by hand; every expected figure is worked out in a comment."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crs_assets.science.cost import Machine, ProbeRates, ProbeTiming, Rates, estimate_cost, fit_probe_rates
from crs_assets.science.encoders.counting import NetworkCounts
from crs_assets.science.plan import plan_suite
from crs_assets.science.suite import load_suite

SIZES = {"isic2019": 100, "chexpert": 200, "mimic-cxr": 50}
NETWORKS = {
    "resnet50": NetworkCounts("cnn", flops=10, parameter_bytes=1_000, activation_bytes=7, dim=2048),
    "chexzero": NetworkCounts("transformer", flops=20, parameter_bytes=2_000, activation_bytes=5, dim=512),
}
MACHINE = Machine(
    name="a machine",
    overlapped=False,
    batch_size=4,
    encoding_threads=2,
    probe_processes=2,
    prepared_image_bytes=10**12,
    process_bytes=10**6,
)
RATES = Rates(
    flops_per_second={"cnn": 100, "transformer": 50},
    measured_on={"cnn": "resnet50", "transformer": "chexzero"},
    decode_seconds=1,
    degrade_seconds=2,
    prepare_seconds={"resnet50": 0.1, "chexzero": 0.2},
    probe=ProbeRates(row=0, system=0),
    score_seconds=0,
)


@pytest.fixture(scope="module")
def small():
    """Two encoders on one multiclass set (8 classes) and on one with a target (14 labels), five seeds, crs-v1."""
    paper = load_suite("paper")
    encoders = {name: paper.encoders[name] for name in ("resnet50", "chexzero")}
    datasets = {name: paper.datasets[name] for name in ("isic2019", "chexpert")}
    return replace(paper, encoders=encoders, datasets=datasets)


def by_cell(cost):
    return {(row.encoder, row.image_set): row for row in cost.rows}


def encode_seconds(cost):
    return {cell: row.encode_hours * 3600 for cell, row in by_cell(cost).items()}


def test_encoding_adds_preparation_and_forward_passes_where_both_take_the_cores(small):
    seconds = encode_seconds(estimate_cost(small, SIZES, NETWORKS, MACHINE, RATES))
    # isic2019: 100 clean images, 20 of test in 15 degradations = 300.
    # Preparation 100 (1 + 0.1) + 20 (1 + 2) + 300 x 0.1 = 200 s; forward 400 x 10 / 100 = 40 s.
    assert seconds["resnet50", "isic2019"] == pytest.approx(240)
    # 100 (1 + 0.2) + 20 (1 + 2) + 300 x 0.2 = 240 s; 400 x 20 / 50 = 160 s.
    assert seconds["chexzero", "isic2019"] == pytest.approx(400)
    # The target is only encoded clean: 50 (1 + 0.2) + 50 x 20 / 50.
    assert seconds["chexzero", "mimic-cxr"] == pytest.approx(80)


def test_an_accelerator_encodes_while_the_cores_prepare(small):
    fast = replace(RATES, prepare_seconds={"resnet50": 0.0, "chexzero": 0.0}, degrade_seconds=0.0)
    slow_network = {**NETWORKS, "resnet50": replace(NETWORKS["resnet50"], flops=100)}
    cost = estimate_cost(small, SIZES, slow_network, replace(MACHINE, overlapped=True), fast)
    # Clean: preparing 100 s, encoding 100 x 100 / 100 = 100 s; degraded: 20 s of decoding, 300 s of encoding.
    assert encode_seconds(cost)["resnet50", "isic2019"] == pytest.approx(100 + 300)
    # CheXzero's forward passes: 100 x 20 / 50 = 40 s beside 100 s of decoding; 300 x 20 / 50 = 120 s beside 20 s.
    assert encode_seconds(cost)["chexzero", "isic2019"] == pytest.approx(100 + 120)


@pytest.fixture(scope="module")
def alike(small):
    """Two encoders of one geometry that differ in normalisation, and one of another."""
    first = small.encoders["resnet50"]
    mean = first.preprocessing.model_copy(update={"mean": (0.1, 0.2, 0.3)})
    larger = first.preprocessing.model_copy(update={"resize_to": first.preprocessing.resize_to + 1})
    encoders = {
        "first": first,
        "second": first.model_copy(update={"preprocessing": mean}),
        "third": first.model_copy(update={"preprocessing": larger}),
    }
    return replace(small, encoders=encoders)


def encode_alike(suite, machine):
    networks = dict.fromkeys(suite.encoders, NETWORKS["resnet50"])
    rates = replace(RATES, prepare_seconds=dict.fromkeys(suite.encoders, 0.1))
    cost = estimate_cost(suite, SIZES, networks, machine, rates)
    return [encode_seconds(cost)[name, "isic2019"] for name in suite.encoders]


def test_a_second_encoder_of_the_same_geometry_prepares_nothing(alike):
    # As above: preparation 200 s, forward passes 40 s.
    assert encode_alike(alike, MACHINE) == pytest.approx([240, 40, 240])


def test_what_does_not_fit_beside_is_prepared_again(alike):
    # 100 clean images of 224 x 224 x 3 bytes fit exactly, 300 degraded ones do not: 20 x 3 + 300 x 0.1 = 90 s again.
    machine = replace(MACHINE, prepared_image_bytes=100 * 224 * 224 * 3)
    assert encode_alike(alike, machine) == pytest.approx([240, 130, 240])
    assert encode_alike(alike, replace(MACHINE, prepared_image_bytes=0)) == pytest.approx([240, 240, 240])


def test_probes_scale_with_rows_features_labels_penalties_fractions_and_seeds(small):
    # Train images of isic2019: (100 - 20) x 0.7 = 56, at fractions that sum to 1.41; 13 penalties x 8 classes, 2,048
    # features; two processes share five seeds.
    row = replace(RATES, probe=ProbeRates(row=1e-6, system=0))
    hours = by_cell(estimate_cost(small, SIZES, NETWORKS, MACHINE, row))["resnet50", "isic2019"].probe_hours
    assert hours * 3600 == pytest.approx(5 / 2 * 13 * 8 * 56 * 1.41 * 2048 * 1e-6)
    # Fewer rows than features: they span 56 f directions, and the squares of the fractions sum to 1.0751.
    system = replace(RATES, probe=ProbeRates(row=0, system=1e-6))
    hours = by_cell(estimate_cost(small, SIZES, NETWORKS, MACHINE, system))["resnet50", "isic2019"].probe_hours
    assert hours * 3600 == pytest.approx(5 / 2 * 13 * 8 * 56**2 * 1.0751 * 1e-6)


def test_more_processes_than_seeds_are_of_no_use_to_one_cell(small):
    rates = replace(RATES, probe=ProbeRates(row=1e-6, system=1e-6))
    five, fifty = (
        by_cell(estimate_cost(small, SIZES, NETWORKS, replace(MACHINE, probe_processes=count), rates))
        for count in (5, 50)
    )
    assert five["resnet50", "isic2019"].probe_hours == fifty["resnet50", "isic2019"].probe_hours


def test_scoring_counts_predicted_images_labels_and_fractions(small):
    rates = replace(RATES, score_seconds=1e-3)
    rows = by_cell(estimate_cost(small, SIZES, NETWORKS, MACHINE, rates))
    # 80 x 30 % held out + 20 x 16 conditions = 344; 160 x 30 % + 40 x 16 + 50 of the target = 738.
    assert rows["resnet50", "isic2019"].probe_hours * 3600 == pytest.approx(2.5 * 344 * 5 * 8 * 1e-3)
    assert rows["resnet50", "chexpert"].probe_hours * 3600 == pytest.approx(2.5 * 738 * 5 * 14 * 1e-3)
    assert rows["resnet50", "mimic-cxr"].probe_hours is None


def test_disk_is_the_plans(small):
    cost, plan = estimate_cost(small, SIZES, NETWORKS, MACHINE, RATES), plan_suite(small, SIZES)
    assert cost.total()["feature_bytes"] == plan.feature_bytes
    assert cost.total()["prediction_bytes"] == plan.prediction_bytes


def test_peak_memory_by_hand(small):
    rows = by_cell(estimate_cost(small, SIZES, NETWORKS, MACHINE, RATES))
    # A target is only encoded. A process, 2 threads x 4 images in work and twice as many waiting, the weights, and 50
    # vectors of 2,048 float32 twice.
    expected = 10**6 + 16 * 224 * 224 * 3 + 1_000 + 8 * 7 + 2 * 50 * 2_048 * 4
    assert rows["resnet50", "mimic-cxr"].host_bytes == expected
    # Two probe processes of 1 MB, each with the least that the solver takes.
    assert rows["resnet50", "isic2019"].host_bytes == 2 * (10**6 + 150 * 10**6)
    assert all(row.device_bytes == 0 for row in rows.values())


def test_weights_and_activations_lie_on_the_accelerator(small):
    machine = replace(MACHINE, overlapped=True, encoding_threads=1)
    row = by_cell(estimate_cost(small, SIZES, NETWORKS, machine, RATES))["resnet50", "mimic-cxr"]
    assert row.device_bytes == 1_000 + 4 * 7
    assert row.host_bytes == 10**6 + 8 * 224 * 224 * 3 + 2 * 50 * 2_048 * 4


def test_a_set_of_unknown_size_is_left_out_with_its_source(small):
    cost = estimate_cost(small, {**SIZES, "mimic-cxr": None}, NETWORKS, MACHINE, RATES)
    assert cost.unknown == ("mimic-cxr",)
    assert {row.image_set for row in cost.rows} == {"isic2019"}


def test_totals_are_sums_of_hours_and_disk_and_the_largest_memory(small):
    cost = estimate_cost(small, SIZES, NETWORKS, MACHINE, RATES)
    total = cost.total()
    assert total["encode_hours"] == pytest.approx(sum(row.encode_hours for row in cost.rows))
    assert total["host_bytes"] == max(row.host_bytes for row in cost.rows)
    document = cost.to_dict()
    assert document["total"] == total
    assert document["rates"]["probe"] == {"row": 0, "system": 0}
    assert document["extrapolated"] is True


@given(
    row=st.floats(1e-10, 1e-6),
    system=st.floats(1e-10, 1e-6),
    shapes=st.permutations([(384, 768), (2048, 512), (16384, 512)]),
)
def test_probe_rates_that_made_the_timings_are_found_again(row, system, shapes):
    timings = [ProbeTiming(n, d, 26, 26 * (row * n * d + system * min(n, d) ** 2)) for n, d in shapes]
    found = fit_probe_rates(timings)
    assert found.row == pytest.approx(row, rel=1e-5)
    assert found.system == pytest.approx(system, rel=1e-5)


def test_no_rate_is_negative():
    # Quicker at more rows: the larger probe cannot be explained, and no rate is made negative to do so.
    found = fit_probe_rates([ProbeTiming(100, 50, 1, 2.0), ProbeTiming(1000, 50, 1, 1.0)])
    assert min(found) >= 0
