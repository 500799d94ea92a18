"""Suites: found in two catalogues, cross-checked, with absent cells."""

import dataclasses

import pytest

from crs_assets.science.suite import CATALOG_FOLDER, entry_ids, find_entry, load_suite, parse_task, task_key
from crs_assets.science.toml_models import CatalogError

SUITE = """
extends = "demo"
id = "mine"
"""


@pytest.fixture
def catalogue(tmp_path):
    for kind in ("suites", "protocols", "datasets", "encoders"):
        (tmp_path / kind).mkdir()

    def write(kind, name, text):
        (tmp_path / kind / f"{name}.toml").write_text(text)
        return tmp_path

    return write


@pytest.fixture
def demo():
    return load_suite("demo")


def changed(suite, encoder, **absent):
    spec = suite.encoders[encoder].model_copy(update={"absent": {k.replace("_", "-"): v for k, v in absent.items()}})
    return dataclasses.replace(suite, encoders={**suite.encoders, encoder: spec})


def test_the_demo_has_three_data_sets_one_target_and_three_seeds(demo):
    assert list(demo.image_sets) == ["demo-skin", "demo-fundus", "demo-chest", "demo-chest-b"]
    assert demo.target_of("demo-chest") == "demo-chest-b"
    assert demo.source_of("demo-chest-b") == "demo-chest"
    assert demo.source_of("demo-skin") is None
    assert len(demo.tasks) == 9
    assert all(task_key(*parse_task(task)) == task for task in demo.tasks)
    assert len(list(demo.cells())) == 3 * len(demo.spec.encoders)
    assert len(list(demo.cells(controls=True))) == 3 * (len(demo.spec.encoders) + len(demo.spec.controls))


def test_an_absent_data_set_takes_its_target_along(demo):
    suite = changed(demo, "pixels-16", demo_chest="no reason")
    assert suite.existing_image_sets("pixels-16") == ["demo-skin", "demo-fundus"]
    assert suite.absent_reason("pixels-16", "demo-chest-b") == "no reason"
    assert suite.absent_reason("efficientnet-lite0-112", "demo-chest") is None


def test_a_target_of_two_data_sets_goes_with_the_last_of_them(demo):
    second = demo.datasets["demo-chest"].model_copy(update={"id": "demo-chest-c"})
    suite = dataclasses.replace(demo, datasets={**demo.datasets, "demo-chest-c": second})
    one = changed(suite, "pixels-16", demo_chest="first")
    assert one.absent_reason("pixels-16", "demo-chest-b") is None
    both = changed(suite, "pixels-16", demo_chest="first", demo_chest_c="second")
    assert both.absent_reason("pixels-16", "demo-chest-b") == "first"


def test_a_further_encoder_stands_behind_the_suites_own_and_never_takes_an_id(demo):
    spec = demo.encoders["pixels-16"]
    assert list(demo.with_encoders({"new": spec}).encoders)[-1] == "new"
    with pytest.raises(CatalogError, match=r"already has \['pixels-16'\]; an encoder's id is never reused"):
        demo.with_encoders({"pixels-16": spec})


def test_entries_of_ones_own_are_found_and_never_shadow_shipped_ones(catalogue):
    folder = catalogue("suites", "mine", SUITE)
    assert load_suite("mine", folder).protocol.id == "demo-v1"
    assert find_entry("suites", "demo", folder) == CATALOG_FOLDER / "suites" / "demo.toml"
    catalogue("suites", "demo", SUITE)
    with pytest.raises(CatalogError, match="in the shipped and in your catalogue; rename yours"):
        find_entry("suites", "demo", folder)
    with pytest.raises(CatalogError, match=r"no suites entry 'gone'\. Known: demo, .*mine.*add gone\.toml"):
        find_entry("suites", "gone", folder)
    assert entry_ids("suites", folder) == ["demo", "demo-full", "mine", "open", "paper"]


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [("suites", "dmeo", "demo"), ("encoders", "medsiglib", "medsiglip"), ("datasets", "isic2018", "isic2019")],
)
def test_of_an_unknown_entry_the_nearest_is_told_in_place_of_all(kind, name, meant):
    with pytest.raises(CatalogError) as caught:
        find_entry(kind, name)
    assert str(caught.value) == (
        f"no {kind} entry {name!r}. Did you mean {meant!r}? Or add {name}.toml to your catalogue."
    )


def test_a_suite_takes_a_protocol_of_ones_own_that_extends_another(catalogue):
    catalogue("protocols", "mine-v1", 'extends = "demo-v1"\nid = "mine-v1"\n[data]\nseeds = [7]')
    catalogue("protocols", "mine-v1-skill", 'extends = "mine-v1"\nid = "mine-v1-skill"\n[axes]\nform = "skill"')
    folder = catalogue("suites", "mine", f'{SUITE}protocol = "mine-v1"\nreadings = ["mine-v1-skill"]')
    suite = load_suite("mine", folder)
    assert suite.protocol.data.seeds == (7,)
    assert [reading.axes.form for reading in suite.readings] == ["raw", "skill"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('encoders = ["pixels-16"]', "encoders: pixels-16 is of role 'control'"),
        ('controls = ["efficientnet-lite0-112"]', "controls: efficientnet-lite0-112 is of role 'encoder'"),
        ('panel_members = ["nobody"]', "nobody is not among the suite's encoders"),
        ('datasets = ["demo-chest-b"]', "demo-chest-b is a transfer target"),
        ('readings = ["crs-v1-skill"]', r"crs-v1-skill differs from demo-v1 beyond \[axes\]"),
        ('protocol = "gone"', "no protocols entry 'gone'"),
        ('colour = "red"', "colour: unknown key"),
    ],
)
def test_a_contradictory_suite_is_refused_by_name(catalogue, line, message):
    folder = catalogue("suites", "mine", SUITE + line)
    with pytest.raises(CatalogError, match=message):
        load_suite("mine", folder)


def test_a_command_names_the_suite_as_it_was_named(demo, tmp_path, monkeypatch):
    assert demo.command("panel freeze") == "crs panel freeze --suite demo"
    folder = tmp_path / "a place"
    folder.mkdir()
    (folder / "mine.toml").write_text(SUITE)
    monkeypatch.chdir(folder)
    # Typed anywhere, and read as one word.
    assert load_suite("mine.toml").command("run") == f"crs run --suite '{folder / 'mine.toml'}'"
