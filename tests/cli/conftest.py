"""Copies of the site that the tests of the graph share."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from graph_site import Site, copy_site

# Dagster itself reads the deprecated name when it sets up a resource within a resource.
DAGSTERS_OWN = "ignore:InitResourceContext.dagster_run:DeprecationWarning"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(DAGSTERS_OWN))


@pytest.fixture
def small_made(tmp_path: Path, tiny: ModuleType) -> Site:
    """Everything made, a panel frozen, scores published."""
    return copy_site(tmp_path / "home", tiny)


@pytest.fixture
def small_bare(tmp_path: Path, tiny: ModuleType) -> Site:
    """Catalogue, images and weights; nothing made."""
    return copy_site(tmp_path / "home", tiny, made=False)
