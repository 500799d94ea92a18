"""What every benchmark shares: the machine it ran on, spread, peak memory, and the file that the figures go to."""

import argparse
import json
import os
import platform
import statistics
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import psutil

SAMPLING_SECONDS = 0.01


def spread(values: Iterable[float]) -> dict[str, float]:
    """Median, least and most."""
    found = list(values)
    return {"median": statistics.median(found), "min": min(found), "max": max(found)}


def ratios(slow: Sequence[float], fast: Sequence[float]) -> dict[str, float]:
    """Spread of slow / fast over repetitions, each pair measured side by side."""
    return spread(a / b for a, b in zip(slow, fast, strict=True))


def options_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser of a benchmark's options that knows where its figures go."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    return parser


def report(figures: Mapping[str, Any], *packages: str, file: Path | None) -> None:
    """Print the figures below the machine they were measured on, and write both as JSON where a file is named.

    Args:
        figures: What was measured.
        packages: Distributions that took part.
        file: Where to write.
    """
    document = {**_machine(), "versions": {name: version(name) for name in packages}, **figures}
    text = json.dumps(document, indent=1)
    print(text)
    if file:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n", encoding="utf-8")


def _machine() -> dict[str, Any]:
    script = Path(sys.argv[0])
    return {
        "benchmark": script.stem,
        "measured": datetime.now(UTC).date().isoformat(),
        "machine": platform.machine(),
        "processor": _processor(),
        "system": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


class PeakMemory:
    """Watches the resident memory of this process while it is entered.

    Attributes:
        extra_bytes: The most there was, beyond what there was on entering.
    """

    def __init__(self) -> None:
        self.extra_bytes = 0
        self._process = psutil.Process()
        self._finished = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._before = self._process.memory_info().rss
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finished.set()
        self._sampler.join()

    def _sample(self) -> None:
        while not self._finished.wait(SAMPLING_SECONDS):
            self.extra_bytes = max(self.extra_bytes, self._process.memory_info().rss - self._before)


class Stopwatch:
    """Adds up the seconds in which it is entered.

    Attributes:
        seconds: So far.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._began = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began
