"""Fixtures that more than one folder of tests uses; what they are made of is in ``tests/helpers``."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import tiny_suite
from graph_site import Site, copy_site
from loopback_hub import LoopbackHub, serving

from crs_assets.resources.bench import Bench
from crs_assets.stages.scores import freeze_panel

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def tiny() -> ModuleType:
    """The tiny suite's helpers."""
    return tiny_suite


@pytest.fixture(scope="session")
def bare_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with catalogue, images and weights, and an empty store; never written to by a test."""
    home = tmp_path_factory.mktemp("tiny") / "home"
    tiny_suite.write_home(home)
    return home


@pytest.fixture(scope="session")
def finished_home(bare_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with every stage made, a panel frozen and scores published; never written to by a test."""
    home = tmp_path_factory.mktemp("finished") / "home"
    shutil.copytree(bare_home, home)
    bench = tiny_suite.open_bench(home)
    tiny_suite.ensure_all(bench)
    freeze_panel(bench)
    tiny_suite.score_all(bench)
    return home


@pytest.fixture(scope="session")
def finished(finished_home: Path) -> Bench:
    """The finished suite, to be read only."""
    return tiny_suite.open_bench(finished_home)


@pytest.fixture
def make_home(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    """A private copy, to be changed: ``make_home()`` finished, ``make_home(bare=True)`` with an empty store."""

    def make(*, bare: bool = False) -> Path:
        home = tmp_path / f"home-{len(list(tmp_path.iterdir()))}"
        shutil.copytree(request.getfixturevalue("bare_home" if bare else "finished_home"), home)
        return home

    return make


@pytest.fixture
def bench(make_home: Callable[..., Path]) -> Bench:
    """A private finished suite, to be changed."""
    return tiny_suite.open_bench(make_home())


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real labelled images kept beside the project, never inside it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder of real images is not beside the project")
    return SHARED_DATA


@pytest.fixture
def small_made(tmp_path: Path) -> Site:
    """The small suite with everything made through Dagster, a panel frozen, scores published."""
    return copy_site(tmp_path / "home", tiny_suite)


@pytest.fixture
def small_bare(tmp_path: Path) -> Site:
    """Catalogue, images and weights of the small suite; nothing made."""
    return copy_site(tmp_path / "home", tiny_suite, made=False)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    """A hub on loopback, which every client of this test talks to."""
    with serving(monkeypatch) as server:
        yield server
