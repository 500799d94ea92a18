"""The report stage on the finished tiny suite: what is in the store is on the page, what is not is named."""

import re
import shutil

import polars as pl
import pytest

from crs_assets.report import canvas
from crs_assets.report.canvas import Drawing
from crs_assets.report.evidence import ANALYSES
from crs_assets.stages.analyses.external_validity import ExternalValidity
from crs_assets.stages.analyses.operating_points import OperatingPoints
from crs_assets.stages.analyses.rank_agreement import RankAgreementAnalysis
from crs_assets.stages.analyses.run_audits import LabelEfficiencyAudit, PerturbationAudit
from crs_assets.stages.analyses.score_sensitivity import ScoreSensitivity
from crs_assets.stages.analyses.subgroups import Subgroups
from crs_assets.stages.leaderboard import Leaderboard
from crs_assets.stages.report import HTML_FILE, Report
from crs_assets.stages.report_material import SOURCES, outdated, read_board, read_evidence
from crs_assets.stages.scores import read_score
from crs_assets.stages.stage import RefusedError

MADE = (
    RankAgreementAnalysis(),
    ExternalValidity(),
    LabelEfficiencyAudit(),
    PerturbationAudit(),
    ScoreSensitivity(),
    Subgroups(),
    OperatingPoints(),
)
MISSING = set(ANALYSES) - {stage.name for stage in MADE}


@pytest.fixture(scope="module", autouse=True)
def _plain_pictures():
    """A dot in place of every picture: they take their time, and have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canvas, "drawn", lambda figure: Drawing(TINY, b"<svg/>"))
        yield


TINY = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49"
    "444154789c63f8ffff3f0005fe02fe0def46b80000000049454e44ae426082"
)


@pytest.fixture(scope="module")
def bench(tiny, finished_home, tmp_path_factory):
    home = tmp_path_factory.mktemp("report") / "home"
    shutil.copytree(finished_home, home)
    bench = tiny.open_bench(home)
    Leaderboard().ensure(bench)
    for stage in MADE:
        for parts in stage.partitions(bench):
            stage.ensure(bench, *parts)
    return bench


@pytest.fixture(scope="module")
def made(bench):
    outcome = Report().ensure(bench)
    return outcome, bench.store.open(bench.key(Report.name))


def test_sources_are_the_analyses_that_readers_know():
    assert list(SOURCES) == sorted(SOURCES, key=list(ANALYSES).index)
    assert set(SOURCES) == set(ANALYSES)


def test_waits_for_the_leaderboard(tiny, finished):
    assert Report().inputs(finished) is None
    with pytest.raises(RefusedError, match="an upstream partition is missing"):
        Report().ensure(finished)


def test_page_and_figures_are_stored_and_what_is_missing_is_named(made):
    outcome, artifact = made
    assert outcome.made
    names = set(artifact.manifest.files) - {HTML_FILE}
    figures = artifact.manifest.summary["figures"]
    assert names == {f"figures/{name}.{kind}" for name in figures for kind in ("png", "svg")}
    assert {"leaderboard", "degradations", "subgroups-tiny-skin", "encoder-vit-a", "encoder-pixels-1"} <= set(figures)
    assert set(artifact.manifest.summary["not_analysed"]) == {ANALYSES[name] for name in MISSING}
    html = artifact.file(HTML_FILE).read_text()
    for name in MISSING:
        assert ANALYSES[name] in html
    assert artifact.manifest.summary["page_bytes"] == len(html.encode())


def test_second_call_makes_nothing_and_another_analysis_makes_it_anew(made, bench, monkeypatch):
    assert not Report().ensure(bench).made
    assert outdated(bench) == ()
    monkeypatch.setattr(PerturbationAudit, "code_version", "of another day")
    assert outdated(bench) == ("perturbation_audit",)
    assert not Report().is_current(bench)


def test_board_is_read_back_as_it_was_built(made, bench):
    board = read_board(bench)
    first = board.rows.filter((pl.col("reading") == "tiny-v1") & (pl.col("section") == "ranked"))
    for name, crs in first.select("encoder", "crs").iter_rows():
        assert crs == read_score(bench, name)["readings"]["tiny-v1"]["datasets"]["tiny-skin"]["crs"]
    agreement = board.agreement["AUROC against CRS (tiny-v1)"]
    assert len(agreement.moves) == first.height
    assert agreement.pairs == first.height * (first.height - 1) // 2


def test_numbers_of_the_store_stand_on_the_page(made, bench):
    html = made[1].file(HTML_FILE).read_text()
    evidence = read_evidence(bench)
    cells = evidence.table("perturbation_audit", "cells").drop_nulls("ece_rise_peak")
    assert cells.height
    for row in cells.iter_rows(named=True):
        assert f"{row['auroc_clean']:.3f}" in html
    for name, spec in bench.suite.encoders.items():
        assert name in html
        assert spec.title in html


def test_no_patient_image_or_path_is_on_the_page(made, bench):
    html = made[1].file(HTML_FILE).read_text()
    # Image ids are s000 or c000, patients p000 or q000; see the tiny suite.
    assert not re.findall(r"\b[scpq]\d{3}\b", html)
    assert str(bench.home.path) not in html
    assert "/home" not in html


def test_few_positives_are_suppressed_on_the_data_cards(bench):
    cards = {card.id: card for card in read_evidence(bench).cards}
    assert set(cards) == {"tiny-skin", "tiny-chest", "tiny-chest-b"}
    positives = cards["tiny-chest"].counts.filter(pl.col("kind") == "positives")
    rare = dict(positives.select("name", "count").iter_rows())["rare"]
    assert rare == "<10"
    assert cards["tiny-chest"].left_out == ("rare",)
    assert ("used as", "transfer target of tiny-chest") in cards["tiny-chest-b"].facts
