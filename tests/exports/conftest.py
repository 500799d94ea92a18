"""Results of the tiny suite, and an export of everything with a known key."""

import pytest

from crs_assets.cli.exporting import read_results
from crs_assets.exports.exporting import FORMATS, export_facts, export_files, prediction_files
from crs_assets.exports.folder import write_folder

BENCHMARK = "tests/tiny-benchmark"


@pytest.fixture(scope="session")
def results(finished):
    return read_results(finished)


@pytest.fixture(scope="session")
def exported(results, finished, tmp_path_factory):
    """Folder of an export of everything, predictions too."""
    from crs_assets.cli.exporting import read_predictions

    folder = tmp_path_factory.mktemp("export") / "out"
    files = [
        *export_files(results, FORMATS, BENCHMARK),
        *prediction_files(results, lambda *cell: read_predictions(finished, *cell), b"k" * 32),
    ]
    write_folder(folder, files, export_facts(results, has_predictions=True), force=False)
    return folder
