"""The leaderboard stage on the finished tiny suite: what it stores follows from the published scores."""

import json
import math
from dataclasses import replace

import polars as pl
import pytest

from crs_assets.stages import leaderboard
from crs_assets.stages.leaderboard import AGREEMENT_FILE, CELLS_FILE, HTML_FILE, NULLS_FILE, ROWS_FILE, Leaderboard
from crs_assets.stages.scores import read_score


@pytest.fixture
def made(bench):
    outcome = Leaderboard().ensure(bench)
    return bench, outcome.manifest, bench.store.open(bench.key(Leaderboard.name))


def test_ranks_are_those_of_the_mean_over_what_all_ranked_encoders_have(made):
    bench, manifest, artifact = made
    # vit-d has no chest cell, so the headline rests on skin alone.
    assert manifest.summary["common_datasets"] == ["tiny-skin"]
    for reading in ("tiny-v1", "tiny-v1-skill"):
        rows = pl.read_parquet(artifact.file(ROWS_FILE)).filter(pl.col("reading") == reading)
        ranked = rows.filter(pl.col("section") == "ranked")
        scores = {
            name: read_score(bench, name)["readings"][reading]["datasets"].get("tiny-skin", {}).get("crs")
            for name in bench.suite.spec.encoders
        }
        expected = sorted((name for name in scores if scores[name] is not None), key=lambda name: -scores[name])
        assert ranked["encoder"].to_list() == expected
        assert dict(zip(ranked["encoder"], ranked["crs"], strict=True)) == {name: scores[name] for name in expected}
    assert rows.filter(pl.col("section") == "control")["encoder"].to_list() == ["pixels-1"]


def test_absent_cells_and_null_comparisons_are_in_the_tables(made):
    _, manifest, artifact = made
    cells = pl.read_parquet(artifact.file(CELLS_FILE)).filter(pl.col("reading") == "tiny-v1")
    absent = cells.filter((pl.col("encoder") == "vit-d") & (pl.col("dataset") == "tiny-chest")).row(0, named=True)
    assert (absent["state"], absent["crs"], absent["at_null"]) == ("absent: drawn without a chest", None, None)
    nulls = pl.read_parquet(artifact.file(NULLS_FILE))
    assert (nulls["above"] == (nulls["lower"] > 0)).all()
    below = nulls.filter(~pl.col("above")).select("encoder", "dataset").unique()
    marked = cells.filter(pl.col("at_null")).select("encoder", "dataset")
    assert set(marked.rows()) == set(below.rows())
    assert sorted(manifest.summary["at_null"]) == sorted(f"{encoder} on {dataset}" for encoder, dataset in below.rows())
    agreement = json.loads(artifact.file(AGREEMENT_FILE).read_text())
    assert "AUROC against CRS (tiny-v1)" in agreement


def test_the_page_names_every_encoder_and_a_second_call_makes_nothing(made):
    bench, _, artifact = made
    page = artifact.file(HTML_FILE).read_text()
    assert all(name in page for name in bench.suite.encoders)
    assert not Leaderboard().ensure(bench).made


def test_a_coefficient_that_a_tie_leaves_undefined_is_null(bench, monkeypatch):
    make_board = leaderboard.make_board

    def tied(*arguments):
        board = make_board(*arguments)
        undefined = {name: replace(found, kendall_tau=math.nan) for name, found in board.agreement.items()}
        return replace(board, agreement=undefined)

    monkeypatch.setattr(leaderboard, "make_board", tied)
    Leaderboard().ensure(bench)
    stored = json.loads(bench.store.open(bench.key(Leaderboard.name)).file(AGREEMENT_FILE).read_text())
    assert stored
    assert {found["kendall_tau"] for found in stored.values()} == {None}
