"""``crs plan --cost`` on the tiny suite: it measures, and says that it extrapolates."""

import json

import pytest
from click.testing import CliRunner

from crs_assets.cli import main, rates


@pytest.fixture
def plan(monkeypatch, finished_home):
    monkeypatch.setenv("CRS_HOME", str(finished_home))
    monkeypatch.setattr(rates, "MEASURED_SECONDS", 0.02)
    monkeypatch.setattr(rates, "GEOMETRY_SECONDS", 0.02)
    monkeypatch.setattr(rates, "PROBE_SHAPES", ((40, 16), (200, 16)))
    return lambda *arguments: CliRunner().invoke(main, ["plan", "tiny", "--cost", *arguments])


def test_every_encoder_and_image_set_is_costed(plan):
    result = plan("--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.output)
    cost = document["cost"]
    cells = {(row["encoder"], row["image_set"]) for row in cost["rows"]}
    # vit-d has no cell on the chest set, and so none on its target.
    encoders = ("vit-a", "vit-b", "vit-c", "vit-d", "pixels-1")
    image_sets = ("tiny-skin", "tiny-chest", "tiny-chest-b")
    assert cells == {(e, s) for e in encoders for s in image_sets if e != "vit-d" or s == "tiny-skin"}
    assert all(row["encode_hours"] > 0 and row["host_bytes"] > 0 for row in cost["rows"])
    assert all((row["probe_hours"] is None) == (row["image_set"] == "tiny-chest-b") for row in cost["rows"])
    assert cost["total"]["feature_bytes"] == document["feature_bytes"]
    assert cost["extrapolated"]
    assert cost["rates"]["flops_per_second"].keys() == {"transformer"}


def test_a_person_is_told_that_it_is_an_extrapolation_and_from_what(plan):
    output = " ".join(plan().output.split())
    assert "This is an extrapolation, not a measurement of the suite, from" in output
    assert "of a transformer (vit-a, random weights)" in output
    assert "measured on cpu" in output
    assert "total, of memory the peak" in output
