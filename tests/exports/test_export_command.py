"""``crs export``, and what it may import."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from crs_assets.cli import main
from crs_assets.exports.exporting import FORMATS


@pytest.fixture
def export(monkeypatch, finished_home, tmp_path):
    def call(*arguments):
        monkeypatch.setenv("CRS_HOME", str(finished_home))
        return CliRunner().invoke(main, ["export", "--suite", "tiny", "--out", str(tmp_path / "out"), *arguments])

    return call


def manifest(tmp_path):
    return json.loads((tmp_path / "out" / "manifest.json").read_text())


def test_everything_but_predictions_is_written_and_the_same_again_is_left_alone(export, tmp_path):
    result = export()
    assert result.exit_code == 0, result.output
    kinds = {item["path"].split("/")[0] for item in manifest(tmp_path)["files"]}
    assert kinds == {"tables", "eval-results", "mteb", "croissant"}
    assert manifest(tmp_path)["notices"] == []
    again = export()
    assert again.exit_code == 0
    assert "already there, unchanged" in again.output


def test_predictions_come_on_request_with_a_warning_and_other_names_each_time(export, tmp_path):
    result = export("--predictions", "--format", "mteb")
    assert result.exit_code == 0, result.output
    assert "data of single images" in result.stderr
    assert "data of single images" in manifest(tmp_path)["notices"][0]
    sums = {item["path"]: item["sha256"] for item in manifest(tmp_path)["files"]}
    refused = export("--predictions", "--format", "mteb")
    assert refused.exit_code == 1
    assert "--force" in refused.output
    assert export("--predictions", "--format", "mteb", "--force").exit_code == 0
    other = {item["path"]: item["sha256"] for item in manifest(tmp_path)["files"]}
    assert set(other) == set(sums)
    changed = {path.split("/")[0] for path in sums if sums[path] != other[path]}
    assert changed == {"predictions"}


def test_the_benchmark_of_the_hub_can_be_named(export, tmp_path):
    assert export("--format", "eval-results", "--benchmark", "clinic/crs").exit_code == 0
    (path,) = (tmp_path / "out" / "eval-results" / "vit-a" / ".eval_results").iterdir()
    assert "id: clinic/crs" in path.read_text()


@pytest.mark.parametrize("benchmark", ["foo", "a b", "clinic/a b", "clinic/crs/v1", "/crs", "clinic/", ""])
def test_a_wrong_benchmark_is_one_message_and_leaves_nothing(export, tmp_path, benchmark):
    result = export("--format", "eval-results", "--benchmark", benchmark)
    assert result.exit_code == 1
    assert f"--benchmark {benchmark!r} is not the id of the Hub's data set" in result.output
    assert "owner/name" in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()


def test_a_benchmark_that_no_format_holds_is_not_passed_over(export, tmp_path):
    result = export("--format", "parquet", "--format", "mteb", "--benchmark", "clinic/crs")
    assert result.exit_code == 2
    assert "--format names parquet, mteb" in result.output
    assert not (tmp_path / "out").exists()


def test_the_command_offers_exactly_the_formats():
    (option,) = [item for item in main.commands["export"].params if item.name == "formats"]
    assert tuple(option.type.choices) == FORMATS


def test_exports_import_no_dagster():
    code = "import sys, crs_assets.exports.exporting; print('dagster' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"
