"""Run the benchmarks of ``docs/performance.md`` and fill it: ``python tools/benchmarks.py [NAME ...] [--list]``.

Each writes its figures to ``docs/measured/NAME.json``. All together take an hour on two cores, most of them for
scikit-learn's side; run them on a machine that does nothing else.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from measured import BENCHMARKS, FOLDER

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Run what was asked for, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--isic2019", metavar=FOLDER, help="folder of ISIC 2019's two tables; without it: no tables")
    parser.add_argument("--list", action="store_true", help="only show the commands")
    options = parser.parse_args()
    if unknown := sorted(set(options.names) - set(names)):
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(names)}.")
    for benchmark in BENCHMARKS:
        if options.names and benchmark.name not in options.names:
            continue
        print(f"{benchmark.name}: {benchmark.command}", flush=True)
        if options.list:
            continue
        if FOLDER in benchmark.arguments and not options.isic2019:
            print(f"  left out: it needs --isic2019 {FOLDER}")
            continue
        if benchmark.needs_gpu and not has_gpu():
            print("  left out: torch sees no GPU here")
            continue
        arguments = [options.isic2019 if argument == FOLDER else argument for argument in benchmark.arguments]
        command = [sys.executable, *arguments, "--json", str(benchmark.file)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        subprocess.run([sys.executable, "tools/docs.py"], cwd=ROOT, check=True)


def has_gpu() -> bool:
    """Whether torch can use a GPU here."""
    import torch

    return torch.cuda.is_available()


if __name__ == "__main__":
    main()
