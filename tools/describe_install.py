"""Say what an installation will download before it does; standard library only, it runs before anything is there."""

import re
import sys
from pathlib import Path

PIN = re.compile(r"^([A-Za-z0-9._-]+)==\S+\s+# ([0-9.]+) MB$")
LARGE_MEGABYTES = 20.0


def main() -> None:
    """Sum the sizes that the constraints file records."""
    sizes = {
        m[1]: float(m[2])
        for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
        if (m := PIN.match(line))
    }
    present = {
        path.name.split("-")[0].lower() for path in Path(sys.argv[2]).glob("lib/python*/site-packages/*.dist-info")
    }
    wanted = {
        name: size
        for name, size in sizes.items()
        if name.lower().replace("-", "_") not in present and name.lower() not in present
    }
    if not wanted:
        print(f"Every pinned package is in {sys.argv[2]} already.")
        return
    large = ", ".join(
        f"{name} {size:.0f} MB" for name, size in sorted(wanted.items(), key=lambda x: -x[1]) if size >= LARGE_MEGABYTES
    )
    print(
        f"This will install {len(wanted)} packages, {sum(wanted.values()):.0f} MB to download ({large or 'all small'}),"
    )
    if "torch" not in present:
        print("and torch with torchvision: about 200 MB for a CPU build, 3 GB for a CUDA build, whichever your pip")
        print("configuration serves. For the CPU build, point pip at PyTorch's CPU index first.")
    print(f"Everything goes into {sys.argv[2]}; your pip configuration (index, proxy, cache, constraints) is honoured.")


if __name__ == "__main__":
    main()
