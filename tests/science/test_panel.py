"""The frozen panel: worked out by hand, named by its content, refused where it must not be used."""

import copy
import json

import pytest

from crs_assets.science import panel as panels
from crs_assets.science.panel import PanelError
from crs_assets.science.protocol import AXES, load_protocol

PROTOCOL = load_protocol("crs-v1")
SKILL = load_protocol("crs-v1-skill")
CONDITIONS = {
    "skin": {"index": "i", "splits": {"0": "s"}, "uncertain_labels": "u_ignore", "classes": ["a"], "rankable": True}
}


def entry(z, weights, inner=None):
    named = dict(zip(AXES, z, strict=True))
    without = dict(zip(AXES, inner or z, strict=True))
    profile = {"z": named, "z_without_transfer": without, "raw": named}
    return {"weights": weights, "datasets": {"skin": {PROTOCOL.id: profile, SKILL.id: profile}}}


MEMBERS = {
    "good": entry((0.9, 0.8, 0.7, 0.6), "w1", inner=(0.9, 0.8, 0.7, 0.9)),
    "even": entry((0.5, 0.5, 0.5, 0.5), "w2"),
    "odd": entry((0.2, 0.9, 0.1, 0.4), "w3"),
}


@pytest.fixture
def panel():
    return panels.freeze("suite", [PROTOCOL, SKILL], CONDITIONS, copy.deepcopy(MEMBERS))


def score(panel, z, encoder="new", weights="w9", **options):
    named = dict(zip(AXES, z, strict=True))
    return panels.score_against(panel, PROTOCOL, encoder=encoder, weights=weights, dataset="skin", z=named, **options)


def test_a_score_is_the_one_worked_out_by_hand(panel):
    # Against (.9 .8 .7 .6), (.5 .5 .5 .5), (.2 .9 .1 .4): (.6 .5 .5 .5) dominates only the second.
    # Closeness 1 - sqrt(.16 + .25 + .25 + .25) / 2, worst .5: .6/3 + .25 c + .15 * .5
    result = score(panel, (0.6, 0.5, 0.5, 0.5))
    assert (result.dominated, result.peers, result.worst_axis) == (1, 3, 0.5)
    assert result.crs == pytest.approx(0.2 + 0.25 * (1 - 0.91**0.5 / 2) + 0.075, abs=1e-15)


def test_an_equal_profile_is_not_dominated(panel):
    assert score(panel, (0.5, 0.5, 0.5, 0.5)).dominated == 0


def test_own_entry_and_entries_with_the_same_weights_are_no_peers(panel):
    best = (1.0, 1.0, 1.0, 1.0)
    assert score(panel, best).peers == 3
    assert score(panel, best, encoder="even", weights="w9").peers == 2
    assert score(panel, best, weights="w2").peers == 2
    assert score(panel, best, encoder="even", weights="w1").peers == 1


def test_without_transfer_compares_with_the_peers_profiles_without_it(panel):
    z = (0.95, 0.85, 0.75, 0.7)
    assert score(panel, z).dominated == 2
    assert score(panel, z, transfer=False).dominated == 1


def test_members_scores_are_in_the_panel(panel):
    # "good" dominates "even" only, of two peers.
    closeness = 1 - (0.01 + 0.04 + 0.09 + 0.16) ** 0.5 / 2
    expected = 0.6 / 2 + 0.25 * closeness + 0.15 * 0.6
    assert panel["scores"]["good"]["skin"][PROTOCOL.id] == pytest.approx(expected, abs=1e-15)


def test_the_name_follows_from_the_content_and_the_content_only(panel):
    again = panels.freeze("suite", [PROTOCOL, SKILL], CONDITIONS, dict(reversed(MEMBERS.items())))
    assert again == panel
    assert panel["name"] == f"suite-local-{panel['sha256'][:8]}"
    other = copy.deepcopy(MEMBERS)
    other["odd"]["datasets"]["skin"][PROTOCOL.id]["z"]["calibration"] = 0.91
    assert panels.freeze("suite", [PROTOCOL, SKILL], CONDITIONS, other)["name"] != panel["name"]


def test_writing_again_changes_nothing_and_other_content_is_refused(panel, tmp_path):
    path = panels.write(panel, tmp_path)
    before = path.read_bytes()
    assert panels.write(panel, tmp_path) == path
    assert path.read_bytes() == before
    assert panels.read(path) == panel
    with pytest.raises(PanelError, match="never changed, give a new name"):
        panels.write({**panel, "suite": "another"}, tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p["encoders"]["odd"].update(weights="w4"), "altered after it was frozen"),
        (lambda p: p["scores"]["odd"]["skin"].update({PROTOCOL.id: 1.0}), "altered after it was frozen"),
        (lambda p: p.update(name="suite-local-00000000"), "not the name its content gives"),
        (lambda p: p.update(schema=99), "schema 99, this version reads"),
        (lambda p: p.pop("scores"), r"not a reference panel; missing \['scores'\]"),
    ],
)
def test_an_altered_panel_is_refused(panel, tmp_path, change, message):
    path = panels.write(panel, tmp_path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(PanelError, match=message):
        panels.read(path)


def test_a_panel_under_another_files_name_is_refused(panel, tmp_path):
    path = panels.write(panel, tmp_path)
    with pytest.raises(PanelError, match="names itself suite-local-"):
        panels.read(path.rename(tmp_path / "suite-local-11111111.json"))


def test_a_missing_and_a_broken_panel_are_named(tmp_path):
    with pytest.raises(PanelError, match="no panel gone; bring its file back"):
        panels.read(tmp_path / "gone.json")
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(PanelError, match=r"broken\.json: not JSON"):
        panels.read(tmp_path / "broken.json")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"index": "j"}, "index"),
        ({"splits": {"0": "t"}}, "splits"),
        ({"uncertain_labels": "u_ones"}, "uncertain_labels"),
        ({"classes": ["a", "b"]}, "classes"),
        ({"index": "j", "classes": []}, "index, classes"),
    ],
)
def test_a_score_on_other_data_is_refused_naming_what_differs(panel, change, named):
    mine = {key: value for key, value in CONDITIONS["skin"].items() if key != "rankable"}
    panels.check_comparable(panel, "skin", mine, PROTOCOL.id)
    with pytest.raises(PanelError, match=f"skin: {named} differ .*freeze another"):
        panels.check_comparable(panel, "skin", {**mine, **change}, PROTOCOL.id)


def test_another_protocol_or_an_uncovered_data_set_is_refused_with_the_cure(panel):
    with pytest.raises(PanelError, match=r"of protocol crs-v1, these runs of demo-v1.*Freeze a panel of this suite"):
        panels.check_comparable(panel, "skin", {}, "demo-v1")
    with pytest.raises(PanelError, match=r"does not cover fundus.*panel members on it, and freeze another"):
        panels.check_comparable(panel, "fundus", {}, PROTOCOL.id)


def test_a_panel_needs_members_with_all_axes_and_company():
    with pytest.raises(PanelError, match="at least one encoder"):
        panels.freeze("suite", [PROTOCOL], CONDITIONS, {})
    with pytest.raises(PanelError, match="needs two encoders"):
        panels.freeze("suite", [PROTOCOL, SKILL], CONDITIONS, {"good": MEMBERS["good"]})
    gap = copy.deepcopy(MEMBERS)
    gap["odd"]["datasets"]["skin"][SKILL.id]["z"] = None
    with pytest.raises(PanelError, match="no axes for odd/skin"):
        panels.freeze("suite", [PROTOCOL, SKILL], CONDITIONS, gap)


def test_a_member_without_axes_where_nobody_can_be_ranked_is_kept_and_is_nobodys_peer():
    """Near chance the reading above chance is not estimable; that bars no panel, and nothing is imputed."""
    gap = copy.deepcopy(MEMBERS)
    cells = gap["odd"]["datasets"]["skin"]
    cells[SKILL.id] = {**cells[SKILL.id], "z": None, "z_without_transfer": None}
    unrankable = {"skin": CONDITIONS["skin"] | {"rankable": False}}
    panel = panels.freeze("suite", [PROTOCOL, SKILL], unrankable, gap)
    z = dict(zip(AXES, (0.6, 0.5, 0.5, 0.5), strict=True))
    cell = {"encoder": "new", "weights": "w9", "dataset": "skin", "z": z}
    assert panels.score_against(panel, PROTOCOL, **cell).peers == 3
    assert panels.score_against(panel, SKILL, **cell).peers == 2
    assert panel["scores"]["odd"]["skin"].keys() == {PROTOCOL.id}
    assert panel["scores"]["good"]["skin"].keys() == {PROTOCOL.id, SKILL.id}


def test_a_panel_without_any_axes_on_a_data_set_that_ranks_nobody_has_no_scores_there():
    none = copy.deepcopy(MEMBERS)
    for member in none.values():
        for cell in member["datasets"]["skin"].values():
            cell |= {"z": None, "z_without_transfer": None}
    panel = panels.freeze("suite", [PROTOCOL], {"skin": CONDITIONS["skin"] | {"rankable": False}}, none)
    assert panel["scores"] == {}
    assert panels.peers_of(panel, PROTOCOL, encoder="new", weights="w9", dataset="skin") == []


def test_differences_are_named_by_path(panel):
    other = copy.deepcopy(panel)
    assert panels.differences(panel, other) == []
    other["datasets"]["skin"]["index"] = "j"
    del other["encoders"]["odd"]
    found = panels.differences(panel, other)
    assert found[0] == "datasets/skin/index: 'i' against 'j'"
    assert found[1].startswith("encoders/odd: ")
    assert len(found) == 2
