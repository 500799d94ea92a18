"""Fixtures that more than one folder of tests uses."""

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real labelled images kept beside the project, never inside it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder of real images is not beside the project")
    return SHARED_DATA
