"""``--help`` of every command: each fits a terminal of 80 columns, so that nothing of it is cut."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from crs_assets.cli import main


def commands(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, (*words, name))


ALL = dict(commands(main))


def shown(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = CliRunner().invoke(main, [*words, "--help"])
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_no_line_of_a_help_is_cut(words, monkeypatch):
    # Click ends what it cuts with three dots; the usage's own stand for further arguments.
    lines = [line for line in shown(words, monkeypatch).splitlines() if not line.startswith("Usage:")]
    assert [line for line in lines if line.rstrip().endswith("...")] == []


@pytest.mark.parametrize("words", [words for words, command in ALL.items() if isinstance(command, click.Group)])
def test_a_group_shows_the_whole_first_sentence_of_each_command(words, monkeypatch):
    text = shown(words, monkeypatch)
    for name, command in ALL[words].commands.items():
        first = str(command.help).split("\n\n")[0]
        assert f"{name} ".ljust(2) in text
        assert first.removesuffix(".") in text
