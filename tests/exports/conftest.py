"""Results of the tiny suite, and an export of everything with a known key."""

import shutil

import pytest

from crs_assets.cli.exporting import read_results
from crs_assets.exports.exporting import FORMATS, export_facts, export_files, prediction_files
from crs_assets.exports.folder import write_folder
from crs_assets.stages.analyses.depth import DepthFeatures, DepthSweep
from crs_assets.stages.analyses.extra_degradations import ExtraDegradationMetrics, ExtraDegradedFeatures

BENCHMARK = "tests/tiny-benchmark"


@pytest.fixture(scope="session")
def results(finished_home, tiny, tmp_path_factory):
    """The finished suite, with two tables beside the score of one encoder, data set and seed."""
    home = tmp_path_factory.mktemp("analysed") / "home"
    shutil.copytree(finished_home, home)
    bench = tiny.open_bench(home)
    for features, metrics in ((DepthFeatures(), DepthSweep()), (ExtraDegradedFeatures(), ExtraDegradationMetrics())):
        features.ensure(bench, "vit-a", "tiny-skin")
        metrics.ensure(bench, "vit-a", "tiny-skin.s0")
    return read_results(bench)


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
