"""What the documentation says of the configuration and of the smallest data set, against the code."""

import re
from pathlib import Path

import pytest

from crs_assets.resources.configuration import TABLES, read_configuration
from crs_assets.resources.home import Home
from crs_assets.science.protocol import load_protocol

ROOT = Path(__file__).parents[1]
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.fixture
def docs(monkeypatch):
    """The tool that fills the generated parts."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import docs

    return docs


def test_every_table_of_the_configuration_has_its_section_and_every_key_its_row():
    assert re.findall(r"^## \[(\w+)\]$", CONFIGURATION, re.MULTILINE) == ["data_roots", *TABLES]
    described = re.findall(r"^\| `([a-z_]+)` \|", CONFIGURATION, re.MULTILINE)
    assert described == [name for table in TABLES.values() for name in table.model_fields]


def test_the_configuration_shown_is_one_that_is_accepted(tmp_path):
    (example,) = re.findall(r"^```toml\n(.*?)^```", CONFIGURATION, re.MULTILINE | re.DOTALL)
    (tmp_path / "config.toml").write_text(example)
    assert set(read_configuration(Home(tmp_path), "ward")) == {"data_roots", *TABLES}


# One image of each patient: the test set takes images of a class until a fifth is reached, 10 of 46 and 9 of 45, and 10
# are asked for. Five of each: of 39 patients of a class 8 go to test and 22 of the rest to train, so train has 220
# images of both, of which 5 % are 11: three patients, while 1 % comes to the first of each class, two. Of 38 patients
# 21 go to train; 5 % of 210 are 10.5, rounded to 10: the same two.
@pytest.mark.parametrize(
    ("images", "patients", "is_enough"), [(1, 46, True), (1, 45, False), (5, 39, True), (5, 38, False)]
)
def test_the_smallest_data_set_is_the_one_that_the_splits_leave_enough_of(docs, images, patients, is_enough):
    assert docs.is_scored(load_protocol("crs-v1"), images, patients) == is_enough
