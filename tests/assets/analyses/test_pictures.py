"""Inline pictures of the suite's analyses: whole PNGs that fit into an event, none where there is nothing to draw."""

import base64
import shutil
from io import BytesIO

import polars as pl
import pytest
from PIL import Image

from crs_assets.assets.analyses import pictures
from crs_assets.stages.analyses.axis_replicates import AxisReplicates
from crs_assets.stages.analyses.external_validity import ExternalValidity
from crs_assets.stages.analyses.rank_agreement import RankAgreementAnalysis
from crs_assets.stages.analyses.recalibration import Recalibration, RecalibrationSummary
from crs_assets.stages.analyses.reference_invariance import ReferenceInvariance
from crs_assets.stages.analyses.run_audits import LabelEfficiencyAudit, PerturbationAudit
from crs_assets.stages.analyses.score_sensitivity import ScoreSensitivity
from crs_assets.stages.analyses.uncertainty import Uncertainty

STAGES = (
    RankAgreementAnalysis(), ExternalValidity(), LabelEfficiencyAudit(), PerturbationAudit(), ReferenceInvariance(),
    ScoreSensitivity(), Uncertainty(),
)  # fmt: skip
DRAWN = {
    pictures.of_agreement: ["picture"],
    pictures.of_transfer: ["picture"],
    pictures.of_label_efficiency: ["picture"],
    pictures.of_perturbations: ["picture"],
    pictures.of_invariance: ["picture"],
    pictures.of_sensitivity: ["picture"],
    pictures.of_uncertainty: ["picture"],
    # The tiny calibration split is smaller than every number of cases: nothing to draw a curve over, but the whole.
    pictures.of_recalibration: ["picture", "picture_over_cases"],
}
BIGGEST = 150_000
"""Characters: what an event log can take once per materialization."""


@pytest.fixture(scope="module")
def made(tiny, finished_home, tmp_path_factory):
    home = tmp_path_factory.mktemp("pictures") / "home"
    shutil.copytree(finished_home, home)
    bench = tiny.open_bench(home)
    tiny.ensure_all(bench, (AxisReplicates(), *STAGES))
    for seed in (0, 1):
        Recalibration().ensure(bench, "vit-a", f"tiny-skin.s{seed}")
    RecalibrationSummary().ensure(bench)
    return bench


def opened(markdown):
    """The picture that a Markdown image carries."""
    before, _, content = markdown.partition("data:image/png;base64,")
    assert before.startswith("![")
    return Image.open(BytesIO(base64.b64decode(content.removesuffix(")"))))


@pytest.mark.parametrize("draw", DRAWN, ids=lambda draw: draw.__name__)
def test_each_is_a_whole_picture_that_fits_into_an_event(made, draw):
    shown = draw(made)
    assert list(shown) == DRAWN[draw]
    for value in shown.values():
        picture = opened(value.md_str)
        picture.load()
        assert picture.width >= 700
        # Ink on white: axes, letters and marks, not an empty page.
        assert len(picture.convert("RGB").getcolors(maxcolors=1 << 16)) > 10
        assert len(value.md_str) < BIGGEST


def test_the_same_content_gives_the_same_bytes(made):
    assert pictures.of_agreement(made)["picture"].md_str == pictures.of_agreement(made)["picture"].md_str


def test_without_a_target_or_a_map_there_is_no_picture(made, monkeypatch):
    monkeypatch.setattr(type(made.suite), "target_of", lambda *_: None)
    assert pictures.of_transfer(made) == {}
    summary = pictures.read_recalibration_summary(made)
    nothing = summary.with_columns(difference=pl.lit(None, pl.Float64))
    monkeypatch.setattr(pictures, "read_recalibration_summary", lambda _: nothing)
    assert pictures.of_recalibration(made) == {}
