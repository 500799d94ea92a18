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
        "command": " ".join(["python", f"benchmarks/{script.name}", *_arguments()]),
        "measured": datetime.now(UTC).date().isoformat(),
        "machine": platform.machine(),
        "processor": _processor(),
        "system": platform.platform(),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_1min": os.getloadavg()[0],
        "python": platform.python_version(),
    }


def _arguments() -> list[str]:
    """What was asked for, but where the figures go; a folder of this machine says nothing to another."""
    given = sys.argv[1:]
    if "--json" in given:
        at = given.index("--json")
        given = given[:at] + given[at + 2 :]
    return ["FOLDER" if Path(argument).is_dir() else argument for argument in given]


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


def peak_bytes() -> int:
    """Largest resident memory of this process so far.

    Linux carries the peak of the process that started this one over into ``ru_maxrss``; its own stands in /proc.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
