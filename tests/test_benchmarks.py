"""Benchmarks at tiny sizes: they run, and the page of measured figures can be filled from what they write."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROBES = ("benchmarks/probes.py", "--rows", "120", "--dim", "8", "--repetitions", "1")
TINY = {
    "probes-chexpert": (*PROBES, "--labels", "2", "--missing", "--fractions", "0.5", "1"),
    "probes-isic": (*PROBES, "--classes", "3"),
    "probe-growth": ("benchmarks/probe_growth.py", "--rows", "80", "--dim", "8", "--labels", "2", "--repetitions", "1"),
    "images": ("benchmarks/images.py", "--sides", "64", "--repetitions", "1"),
    "image-stream": (
        "benchmarks/image_stream.py",
        *("--images", "100", "--side", "64", "--sample", "20", "--repetitions", "1"),
    ),
    "extraction": (
        "benchmarks/extraction.py",
        *("--encoders", "vit-tiny-untrained-112", "--images", "32", "--repetitions", "1"),
    ),
    "bootstrap": (
        "benchmarks/bootstrap.py",
        *("--rows", "300", "--labels", "2", "--replicates", "20", "--reference", "5"),
        *("--axis-replicates", "2", "--repetitions", "1"),
    ),
}


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """The module that fills the page, reading figures from a folder of its own."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    import measured

    monkeypatch.setattr(measured, "MEASURED", tmp_path)
    monkeypatch.setattr(measured, "DOCS", tmp_path)
    return measured


@pytest.mark.parametrize("name", TINY)
def test_what_a_benchmark_writes_fills_the_page(name, measured, tmp_path):
    file = tmp_path / f"{name}.json"
    command = [sys.executable, *TINY[name], "--json", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    figures = json.loads(file.read_text())
    assert figures["command"] == " ".join(("python", *TINY[name]))
    lines = [line for line in measured.ratios().splitlines() if figures["command"] in line]
    assert len(lines) == 1
    assert measured.MISSING not in lines[0]
    assert f"| {name} | {figures['measured']} |" in measured.machines()


def test_what_is_not_measured_yet_says_which_command_measures_it(measured):
    rows = measured.ratios().splitlines()[2:]
    assert len(rows) == len(measured.BENCHMARKS)
    for row, benchmark in zip(rows, measured.BENCHMARKS, strict=True):
        assert measured.MISSING in row
        assert f"`python {' '.join(benchmark.arguments)}`" in row
        assert (ROOT / benchmark.arguments[0]).is_file()


def test_a_spread_shows_median_least_and_most_with_three_digits(measured):
    assert measured.spread({"median": 89.12, "min": 80.04, "max": 1234.5}) == "89.1x (80 to 1,234)"
    assert measured.spread({"median": 0.0712, "min": 0.0712, "max": 0.0712}, " s") == "0.0712 s"
