import base64
from io import BytesIO

import numpy as np
import polars as pl
import pytest
from PIL import Image

from crs_assets.report.figures import png_markdown, profile_png
from crs_assets.science.protocol import load_protocol

LIMIT = 80_000
PROTOCOL = load_protocol("demo-v1")


def invented(datasets, *, with_target=False):
    """Runs and reliability bins whose numbers fall with degradation and rise with labels."""
    runs, bins = [], []
    edges = np.arange(16) / 15
    for place, name in enumerate(datasets):
        for seed in PROTOCOL.data.seeds:
            keys = {"dataset": name, "seed": seed}
            for fraction in PROTOCOL.data.fractions:
                for number, condition in enumerate(PROTOCOL.conditions(transfer=with_target)):
                    auroc = 0.9 - 0.03 * place - 0.05 * (1 - fraction) - 0.01 * number - 0.002 * seed
                    row = {
                        "fraction": fraction,
                        "condition": condition.name,
                        "auroc": auroc,
                        "ece": 0.05 + 0.01 * number,
                    }
                    runs.append({**keys, **row, "ece_null": 0.04, "n_eval": 321, "converged": True})
            middle = (edges[:-1] + edges[1:]) / 2
            count = np.arange(15) * (seed + 1)
            table = pl.DataFrame({"lower": edges[:-1], "upper": edges[1:], "count": count, "mean_probability": middle})
            bins.append(
                table.with_columns(
                    frequency=pl.col("mean_probability") ** 1.2, **{k: pl.lit(v) for k, v in keys.items()}
                )
            )
    return pl.DataFrame(runs), pl.concat(bins).with_columns(condition=pl.lit("clean"))


def drawn(runs, bins, title="An encoder"):
    return profile_png(title, runs, bins, PROTOCOL)


@pytest.fixture(scope="module")
def tables():
    return invented(["demo-skin"])


@pytest.fixture(scope="module")
def png(tables):
    return drawn(*tables)


def test_three_datasets_fit_the_limit_and_carry_no_metadata():
    png = drawn(*invented(["demo-skin", "demo-fundus", "demo-chest"], with_target=True))
    picture = Image.open(BytesIO(png))
    picture.load()
    assert (picture.format, picture.width, picture.info) == ("PNG", 1400, {})
    assert len(png) < LIMIT


def test_does_not_depend_on_the_order_of_rows(tables, png):
    runs, bins = tables
    assert drawn(runs.sample(fraction=1, shuffle=True, seed=3), bins.sample(fraction=1, shuffle=True, seed=4)) == png


def shifted(runs, metric, fraction, condition):
    here = (pl.col("fraction") == fraction) & (pl.col("condition") == condition)
    return runs.with_columns(pl.when(here).then(pl.col(metric) - 0.04).otherwise(pl.col(metric)).alias(metric))


@pytest.mark.parametrize(
    ("metric", "fraction", "condition"),
    [
        ("auroc", 0.05, "clean"),
        ("auroc", 1.0, "jpeg-3"),
        ("ece", 1.0, "clean"),
        ("ece", 1.0, "rician-1"),
        ("ece_null", 1.0, "clean"),
    ],
)
def test_shows_every_number_that_it_names(tables, png, metric, fraction, condition):
    runs, bins = tables
    assert drawn(shifted(runs, metric, fraction, condition), bins) != png


def test_shows_no_degraded_run_of_fewer_labels(tables, png):
    runs, bins = tables
    assert drawn(shifted(runs, "auroc", 0.05, "jpeg-3"), bins) == png


def test_a_run_that_did_not_converge_is_left_out_whatever_its_value(tables, png):
    runs, bins = tables
    bad = (pl.col("seed") == 1) & (pl.col("fraction") == 1.0) & (pl.col("condition") == "jpeg-3")
    failed = runs.with_columns(converged=~bad)
    wild = failed.with_columns(auroc=pl.when(bad).then(0.1).otherwise(pl.col("auroc")))
    assert drawn(failed, bins) == drawn(wild, bins) != png


def test_draws_what_cannot_be_estimated_as_a_gap(tables):
    runs, bins = tables
    unknown = runs.with_columns(auroc=pl.lit(float("nan")), ece=pl.lit(float("nan")))
    assert drawn(unknown, bins.clear())[:4] == b"\x89PNG"


def test_markdown_image_carries_its_bytes_and_its_words(png):
    text = png_markdown(png, "AUROC [macro]\nby severity")
    head, _, data = text.partition("](data:image/png;base64,")
    assert head == "![AUROC (macro) by severity"
    assert base64.b64decode(data.removesuffix(")"), validate=True) == png
