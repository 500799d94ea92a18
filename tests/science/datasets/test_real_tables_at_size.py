"""ISIC 2019's tables at full size, through the benchmark that times them: what comes out, and what it may cost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="peak memory is measured as POSIX systems tell it")
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "tables.py"


def test_index_groups_seeds_and_subsets_stay_below_a_gigabyte(shared_data, tmp_path):
    report = tmp_path / "tables.json"
    data = str(shared_data / "meta_isic2019")
    command = [sys.executable, str(BENCHMARK), data, "--repeats", "1", "--json", str(report)]
    subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(report.read_text())
    assert (result["images"], result["groups"]) == (25_331, 11_847 + 2_084)
    assert (result["seeds"], result["subsets"], result["classes_scored"]) == (5, 25, 8)
    assert result["peak_bytes"] < 1e9
