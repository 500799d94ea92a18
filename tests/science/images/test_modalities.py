"""The table of what suits which images: complete, and asked of ids that nobody judged."""

import typing

from crs_assets.science.datasets.spec import SpecialtyType
from crs_assets.science.images.modalities import MODALITIES, SuitsType, modality_frame, modality_table, suitability_of
from crs_assets.science.protocol import load_protocol


def test_every_degradation_of_the_protocols_is_judged_for_every_specialty() -> None:
    protocol = load_protocol("crs-v1")
    expected = [family.id for family in (*protocol.perturbations, *protocol.analyses.perturbations)]
    assert list(modality_table().degradations) == expected
    assert {*MODALITIES, "other"} == set(typing.get_args(SpecialtyType))
    frame = modality_frame()
    assert frame.height == len(expected) * len(MODALITIES)
    assert set(frame["suits"]) == set(typing.get_args(SuitsType))
    assert frame["because"].str.len_chars().min() > 10


def test_what_nobody_judged_has_no_judgement() -> None:
    assert suitability_of("jpeg", "other") is None
    assert suitability_of("fog", "skin") is None


def test_magnitude_noise_suits_nothing_that_the_benchmark_holds() -> None:
    # The statement of the protocol: Rician noise is of magnitude MRI, doubtful on photographs and radiographs.
    assert {suitability_of("rician", modality).suits for modality in MODALITIES} == {"no"}
