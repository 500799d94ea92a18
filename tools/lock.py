"""Write the constraints file: every installed version, with the size of its download.

torch and what only it brings are left out: whichever build the user's pip configuration serves, within the range of
pyproject.toml, is right.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

FREE = re.compile(r"^(torch|torchvision|triton|nvidia-.*|cuda-.*|crs[-_]assets)$", re.IGNORECASE)
HEADER = """\
# Versions that the tests passed with; `make lock` writes this file from the environment that `make env` made.
# torch, torchvision and what they bring are free within pyproject.toml: CPU and CUDA builds both work.
"""


def main() -> None:
    """Freeze, measure, write."""
    target = Path(sys.argv[1])
    frozen = subprocess.run(
        [sys.executable, "-m", "pip", "freeze", "--exclude-editable"], capture_output=True, text=True, check=True
    )
    pins = [line for line in frozen.stdout.splitlines() if "==" in line and not FREE.match(line.split("==")[0])]
    with tempfile.TemporaryDirectory() as folder:
        lines = [f"{pin}  # {download_megabytes(pin, Path(folder)):.1f} MB" for pin in pins]
    target.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")


def download_megabytes(pin: str, folder: Path) -> float:
    """Size of the file that pip takes for a pin."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), pin]
    subprocess.run(command, check=True)
    (file,) = folder.iterdir()
    size = file.stat().st_size / 1e6
    file.unlink()
    return size


if __name__ == "__main__":
    main()
