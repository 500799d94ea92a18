"""Wrong TOML as people write it: every message names the key, what was seen and what is expected, in plain words."""

import tomllib
from typing import Literal

import pytest
from pydantic import Field

from crs_assets.science.datasets import load_dataset_spec
from crs_assets.science.datasets.options import READER_OPTIONS
from crs_assets.science.datasets.spec import DatasetSpec
from crs_assets.science.encoders.spec import EncoderSpec, Sha256
from crs_assets.science.protocol import Protocol
from crs_assets.science.suite import SuiteSpec
from crs_assets.science.toml_models import CatalogError, FrozenModel, validate
from crs_assets.science.toml_problems import PATTERNS

JARGON = ("Input should", "Extra inputs", "forbidden", "valid ", "Value error", "type=", "input_value", "pydantic")
MODELS = (DatasetSpec, EncoderSpec, Protocol, SuiteSpec, *READER_OPTIONS.values())


class Stage(FrozenModel):
    """Of a tap: name and depth."""

    name: str = Field(min_length=1)
    depth: int = Field(gt=0)


class Entry(FrozenModel):
    """Every kind of field that catalogue entries have."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    task: Literal["multiclass", "ordinal"]
    share: float = Field(default=0.5, ge=0, lt=1)
    gated: bool = False
    classes: tuple[str, ...] = Field(default=("a",), min_length=1)
    mean: tuple[float, float] = (0.0, 0.0)
    names: dict[str, str] = Field(default={})
    stage: Stage | None = None
    stages: tuple[Stage, ...] = ()
    sha256: Sha256 | dict[str, Sha256] | None = None


def told(text):
    with pytest.raises(CatalogError) as caught:
        validate(Entry, tomllib.loads(text), source="mine.toml")
    first, *lines = str(caught.value).splitlines()
    assert first == f"mine.toml: {len(lines)} problem(s):"
    assert not [word for word in JARGON if word in str(caught.value)]
    return [line.removeprefix("  ") for line in lines]


BASE = 'id = "mine"\ntask = "ordinal"\n'


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('id = "mine"', "task: is missing; expected one of 'multiclass', 'ordinal'"),
        ('task = "ordinal"', "id: is missing; expected text in quotes"),
        ('id = "mine"\ntask = "binary"', "task: expected one of 'multiclass' or 'ordinal', seen \"binary\""),
        (
            'id = "My set"\ntask = "ordinal"',
            "id: expected lower-case letters, digits, '.', '_' and '-', the first a letter or a digit, seen \"My set\"",
        ),
        (BASE + "share = 1", "share: expected a number below 1, seen 1"),
        (BASE + "share = -0.5", "share: expected a number of at least 0, seen -0.5"),
        (BASE + 'share = "half"', 'share: expected a number, seen "half"'),
        (BASE + 'gated = "maybe"', 'gated: expected true or false, seen "maybe"'),
        (BASE + 'classes = "a"', 'classes: expected a list in [ ], seen "a"'),
        (BASE + "classes = []", "classes: expected at least 1 entries, seen []"),
        (BASE + 'classes = ["a", 3]', "classes[entry 2]: expected text in quotes, seen 3"),
        (BASE + "mean = [0.5]", "mean[entry 2]: is missing"),
        (BASE + "mean = [0.5, 0.5, 0.5]", "mean: expected at most 2 entries, seen [0.5, 0.5, 0.5]"),
        (BASE + "names = 3", "names: expected a table of keys, seen 3"),
        (BASE + 'stage = "a"', 'stage: expected a table of keys, seen "a"'),
        (BASE + '[stage]\nname = ""\ndepth = 1', 'stage.name: expected text of at least 1 character(s), seen ""'),
        (BASE + '[stage]\nname = "a"\ndepth = 1.5', "stage.depth: expected a whole number, seen 1.5"),
        (BASE + '[[stages]]\nname = "a"\ndepth = 0', "stages[entry 1].depth: expected a number above 0, seen 0"),
        (BASE + '[[stages]]\nname = "a"', "stages[entry 1].depth: is missing; expected a whole number"),
        (
            BASE + '[[stages]]\nname = "a"\ndept = 1\ndepth = 1',
            "stages[entry 1].dept: unknown key. Did you mean 'depth'? Expected one of name, depth.",
        ),
        (BASE + 'sha256 = "abc"', None),
        (
            BASE + '[sha256]\n"a.bin" = "abc"',
            'sha256.a.bin: expected 64 hexadecimal digits, in lower case, seen "abc"',
        ),
    ],
)
def test_one_wrong_key_is_told_in_plain_words(text, line):
    expected = line or 'sha256: expected 64 hexadecimal digits, in lower case or a table of keys, seen "abc"'
    assert told(text) == [expected]


def test_an_unknown_key_of_the_file_is_told_with_those_it_takes():
    (line,) = told(BASE + 'colour = "red"')
    keys = "id, task, share, gated, classes, mean, names, stage, stages, sha256"
    assert line == f"colour: unknown key. Expected one of {keys}."


def test_every_key_has_one_line():
    lines = told('id = 3\nshare = "x"\nclases = ["a"]')
    assert [line.split(":")[0] for line in lines] == ["id", "task", "share", "clases"]


def test_long_values_are_shortened():
    (line,) = told(BASE + f'gated = "{"x" * 500}"')
    assert len(line) < 150


def test_reader_options_are_told_by_their_place_in_the_file(tmp_path):
    entry = tmp_path / "ward.toml"
    entry.write_text(
        'id = "ward"\ntitle = "W"\nspecialty = "skin"\ntask = "multiclass"\nclasses = ["a", "b"]\nreader = "manifest"\n'
        'group = "patient"\nlabel_source = "x"\nlicence = "x"\naccess = "open"\ncitation = "x"\n'
        '[reader_options]\nfiel = "a.csv"\nviews = "PA"\nblank_label = "drop"\n'
    )
    with pytest.raises(CatalogError) as caught:
        load_dataset_spec(entry)
    assert not [word for word in JARGON if word in str(caught.value)]
    lines = str(caught.value).splitlines()
    assert lines[0] == "ward.toml: 3 problem(s):"
    assert '  reader_options.views: expected a list in [ ], seen "PA"' in lines
    assert "  reader_options.blank_label: expected one of 'refuse' or 'exclude', seen \"drop\"" in lines
    (unknown,) = [line for line in lines if "reader_options.fiel" in line]
    assert "unknown key. Did you mean 'file'?" in unknown


def test_every_pattern_of_the_catalogue_has_its_words():
    def patterns(schema):
        if isinstance(schema, dict):
            found = {schema["pattern"]} if isinstance(schema.get("pattern"), str) else set()
            return found.union(*map(patterns, schema.values()))
        return set().union(*map(patterns, schema)) if isinstance(schema, list) else set()

    assert set().union(*(patterns(model.model_json_schema()) for model in MODELS)) == set(PATTERNS)
