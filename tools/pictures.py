"""Make the README's pictures from the demonstration's store: the leaderboard, and the lineage as the UI shows it.

Needs a finished ``make demo`` and a Chromium on the PATH (Debian: ``apt-get install chromium``).
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from crs_assets.cli.session import open_bench, prepare_dagster_home
from crs_assets.stages.leaderboard import PNG_FILE

IMAGES = Path(__file__).parent.parent / "docs" / "images"
SUITE = "demo"
GRAPH = f"/assets/{SUITE}/leaderboard?view=lineage&lineageScope=upstream&lineageDepth=10"
STARTUP_SECONDS = 60


def main() -> None:
    """Write docs/images/leaderboard.png and docs/images/lineage.png."""
    bench = open_bench(SUITE)
    artifact = bench.store.open(bench.key("leaderboard"))
    shutil.copyfile(artifact.file(PNG_FILE), IMAGES / "leaderboard.png")
    lineage(prepare_dagster_home(bench.home), IMAGES / "lineage.png")


def lineage(dagster_home: Path, target: Path) -> None:
    """Photograph everything that the leaderboard is made of, as the UI shows it."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise SystemExit("no Chromium on the PATH; install it to photograph the lineage.")
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "dagster_webserver",
        "-m",
        "crs_assets.definitions",
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    server = subprocess.Popen(
        command, env=environment(dagster_home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for(port)
        photograph(browser, f"http://127.0.0.1:{port}{GRAPH}", target)
    finally:
        server.terminate()
        server.wait()


def photograph(browser: str, address: str, target: Path) -> None:
    """One headless screenshot, after the page has had time to lay out its graph."""
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [
                browser,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-background-networking",
                "--hide-scrollbars",
                f"--user-data-dir={profile}",
                "--window-size=1700,900",
                "--virtual-time-budget=30000",
                f"--screenshot={target}",
                address,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


def environment(dagster_home: Path) -> dict[str, str]:
    """The environment of the web server."""
    import os

    return {**os.environ, "DAGSTER_HOME": str(dagster_home), "CRS_HOME": str(dagster_home.parent)}


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until the server answers."""
    until = time.monotonic() + STARTUP_SECONDS
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.5)
    raise SystemExit(f"the web server did not answer within {STARTUP_SECONDS} s.")


if __name__ == "__main__":
    main()
