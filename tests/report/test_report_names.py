"""Names for readers: nothing that a protocol or a stage knows by an id is shown as that id."""

import pytest

from crs_assets.report.names import condition_name, degradation_name, map_name, subgroup_name
from crs_assets.science.analyses.recalibration_fits import LABEL_METHODS, SOFTMAX_METHODS
from crs_assets.science.protocol import load_protocol

PROTOCOL = load_protocol("crs-v1")


@pytest.mark.parametrize("family", [item.id for item in (*PROTOCOL.perturbations, *PROTOCOL.analyses.perturbations)])
def test_degradations_have_words(family):
    assert "_" not in degradation_name(family)
    assert condition_name(f"{family}-2") == f"{degradation_name(family)}, severity 2"


def test_conditions_that_are_no_degradation():
    assert [condition_name(name) for name in ("clean", "transfer")] == ["clean", "transfer target"]


@pytest.mark.parametrize("method", sorted({*SOFTMAX_METHODS, *LABEL_METHODS}))
def test_maps_have_words(method):
    assert method in map_name(method).lower()
    assert " " in map_name(method)


def test_subgroup_columns_have_no_underscores():
    assert subgroup_name("anatom_site") == "anatomical site"
    assert subgroup_name("skin_type") == "skin type"
