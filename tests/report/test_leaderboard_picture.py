from dataclasses import replace
from io import BytesIO

import matplotlib
import pytest
from PIL import Image

from crs_assets.report.leaderboard import leaderboard_png

SKIN, FUNDUS, CHEST = "demo-skin", "demo-fundus", "demo-chest"
LIMIT = 100_000


def opened(png):
    picture = Image.open(BytesIO(png))
    picture.load()
    return picture


@pytest.fixture(scope="module")
def png(page):
    return leaderboard_png(page)


def test_is_a_small_png_without_metadata(png):
    picture = opened(png)
    assert (picture.format, picture.width, picture.info) == ("PNG", 1400, {})
    assert 500 <= picture.height <= 900
    assert len(png) < LIMIT


def test_same_page_gives_the_same_bytes_under_any_settings_of_the_user(page, png):
    with matplotlib.rc_context({"font.size": 31, "axes.facecolor": "black", "lines.linewidth": 9}):
        assert leaderboard_png(page) == png
        assert matplotlib.rcParams["font.size"] == 31


def test_phantoms_are_named_in_the_picture(page, png):
    assert leaderboard_png(replace(page, phantoms=False)) != png


def test_a_title_is_drawn_as_it_is_written(page_of, entry_of):
    cells = {SKIN: ((1, 1), 0.6, 0.5, (0.9, 0.4, 0.9, 0.1))}
    states = {FUNDUS: "absent: a", CHEST: "absent: a"}
    titles = (r"cost $\frac{1}{$ & <b> _x_", "cost", "w" * 200)
    for title in titles:
        page = page_of([entry_of("a", title, cells, states=states)])
        assert opened(leaderboard_png(page)).width == 1400


def test_draws_boards_of_every_size(page_of, entry_of, entries):
    cells = dict.fromkeys((SKIN, FUNDUS, CHEST), ((1, 1), 0.6, 0.5, (0.9, 0.1, 0.9, 0.1)))
    fifteen = [entry_of(f"e{number:02d}", f"Encoder {number}", cells) for number in range(15)]
    tall = leaderboard_png(page_of([*fifteen, *entries]))
    assert len(tall) < LIMIT
    assert opened(tall).height > opened(leaderboard_png(page_of(fifteen[:1]))).height
    assert opened(leaderboard_png(page_of(entries, rankable=()))).width == 1400
