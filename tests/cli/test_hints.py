"""Hints: every command that a message names works as pasted, on the suite in question, and leads somewhere else."""

import re
import shlex

import click
import pytest
from click.testing import CliRunner

from crs_assets.automation.runner import RunSummary
from crs_assets.cli import main
from crs_assets.cli.running import _way_to_a_panel
from crs_assets.resources.home import Home
from crs_assets.science.encoders import AbsentWeightsError
from crs_assets.stages.encoders import obtain_weights
from crs_assets.stages.scores import freeze_panel

# A command ends where a sentence goes on; a quoted path may hold spaces.
COMMAND = re.compile(r"\bcrs (?:[a-z-]+)(?: (?:'[^']*'|[^\s,;()']+))*")
NOT_YET = [("panel", "freeze"), ("panel", "show"), ("panel", "verify"), ("leaderboard",), ("report",), ("export",)]


@pytest.fixture
def crs(monkeypatch):
    def call(home, *arguments):
        monkeypatch.setenv("CRS_HOME", str(home))
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return call


@pytest.fixture
def own_suite(tmp_path):
    """A suite that no catalogue holds, in a folder that a shell would read as two words."""
    path = tmp_path / "odd place" / "mine.toml"
    path.parent.mkdir()
    path.write_text('extends = "tiny"\nid = "mine"\n')
    return path


def parsed(text: str) -> tuple[str, dict]:
    """What click makes of a command: its full name and its parameters; refused where it would be refused in a shell."""
    command, words = main, shlex.split(text)[1:]
    name = []
    while isinstance(command, click.Group):
        name.append(words.pop(0))
        command = command.commands[name[-1]]
    return " ".join(name), command.make_context(name[-1], words).params


def told(result, suite, home) -> list[str]:
    """Names of the commands in a message, each of them on the suite."""
    names = []
    for text in COMMAND.findall(result.output):
        name, parameters = parsed(text)
        assert Home(home).load_suite(parameters["suite"]).id == Home(home).load_suite(suite).id
        names.append(name)
    return names


@pytest.mark.parametrize("words", NOT_YET, ids=" ".join)
@pytest.mark.parametrize("by_path", [False, True], ids=["id", "path"])
def test_before_any_run_one_sentence_names_the_command_that_comes_first(crs, bare_home, own_suite, words, by_path):
    suite = own_suite if by_path else "tiny"
    out = ("--out", own_suite.parent / "out") if words == ("export",) else ()
    result = crs(bare_home, *words, "--suite", suite, *out)
    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 1
    assert told(result, suite, bare_home) == ["run"]


def test_from_nothing_the_hint_of_freezing_leads_to_a_panel_at_once(crs, bare_home):
    hint = COMMAND.search(crs(bare_home, "panel", "freeze", "--suite", "tiny").output)[0]
    assert parsed(hint)[1] == {"suite": "tiny", "encoders": (), "datasets": (), "freeze_panel": True}


def test_a_run_that_cannot_mend_what_lacks_sends_nobody_to_freeze_or_to_run_alone(tiny, make_home):
    bench = tiny.open_bench(make_home(bare=True))
    whole = _way_to_a_panel(bench, RunSummary(), is_whole=True)
    assert whole == "mend what is told above, then freeze one and score: crs run --suite tiny --freeze-panel"
    part = _way_to_a_panel(bench, RunSummary(), is_whole=False)
    assert part.startswith(
        "it needs profiles (vit-a, vit-b, vit-c), null controls (tiny-skin, tiny-chest). To make these, freeze"
    )
    finished = tiny.open_bench(make_home())
    (finished.home.panels / "tiny.active").unlink()
    done = _way_to_a_panel(finished, RunSummary(), is_whole=True)
    assert done == "freeze one and score: crs run --suite tiny --freeze-panel"


def test_a_panel_is_not_frozen_where_it_would_have_no_effect(crs, make_home):
    home = make_home()
    entry = home / "catalog" / "suites" / "tiny.toml"
    entry.write_text(entry.read_text().replace('panel = "local"', 'panel = "published-1"'))
    result = crs(home, "panel", "freeze", "--suite", "tiny")
    assert result.exit_code == 1
    assert "is scored against panel published-1, so one frozen here would have no effect" in result.output
    shown = crs(home, "panel", "show", "--suite", "tiny")
    assert f"copy published-1.json to {home / 'panels'}" in shown.output
    assert COMMAND.findall(shown.output) == []


def test_a_panel_whose_file_is_gone_can_be_frozen_anew(crs, make_home):
    home = make_home()
    (panel,) = (home / "panels").glob("*.json")
    panel.unlink()
    assert told(crs(home, "panel", "show", "--suite", "tiny"), "tiny", home) == ["panel freeze"]
    assert crs(home, "panel", "freeze", "--suite", "tiny").exit_code == 0
    assert panel.exists()


def test_a_data_set_that_cannot_be_scored_is_named_instead_of_another_run(tiny, make_home, monkeypatch):
    bench = tiny.open_bench(make_home())
    monkeypatch.setattr("crs_assets.stages.scores.unscorable_datasets", lambda bench: ["tiny-skin"])
    with pytest.raises(ValueError, match="tiny-skin cannot be scored") as caught:
        freeze_panel(bench)
    assert COMMAND.findall(str(caught.value)) == ["crs dataset check tiny-skin --protocol tiny-v1"]


def test_pinned_weights_that_are_missing_are_fetched_for_their_suite(tiny, make_home):
    home = make_home(bare=True)
    (home / "weights" / "tests" / "vit-a" / "model.safetensors").unlink()
    entry = home / "catalog" / "encoders" / "vit-a.toml"
    text = entry.read_text()
    with pytest.raises(AbsentWeightsError) as caught:
        obtain_weights(tiny.open_bench(home), "vit-a")
    # Nothing is downloaded that is not pinned.
    assert [command.split()[0] for command in caught.value.commands] == ["hf"]
    entry.write_text(text.replace("[weights]\n", f'[weights]\nrevision = "{"a" * 40}"\n'))
    with pytest.raises(AbsentWeightsError) as caught:
        obtain_weights(tiny.open_bench(home), "vit-a")
    assert parsed(caught.value.commands[0])[1] == {"suite": "tiny", "encoders": ("vit-a",)}


def test_fetching_for_an_encoder_that_the_suite_lacks_is_no_success(crs, bare_home):
    result = crs(bare_home, "weights", "fetch", "--suite", "tiny", "--encoder", "vit-z")
    assert result.exit_code == 1
    assert "no encoder 'vit-z' in suite tiny" in result.output
