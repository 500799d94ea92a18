"""What every command begins with: CRS_HOME, the suite's bench, the Dagster instance."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import dagster as dg

from crs_assets.resources.artifact_store import write_atomic
from crs_assets.resources.bench import Bench, BenchResource, default_resources
from crs_assets.resources.home import Home, home_path
from crs_assets.science.panel import PanelError
from crs_assets.stages.scores import active_panel

INSTANCE_CONFIG = """\
telemetry:
  enabled: false
concurrency:
  runs:
    max_concurrent_runs: 2
  pools:
    default_limit: 1
    granularity: run
run_monitoring:
  enabled: true
  free_slots_after_run_end_seconds: 10
"""


def open_bench(suite: str) -> Bench:
    """The suite and its resources, as CRS_HOME configures them."""
    bench = default_resources(suite)["bench"]
    assert isinstance(bench, BenchResource)  # default_resources makes it
    return resolve(bench)


def resolve(bench: BenchResource) -> Bench:
    """Resolve a bench and its nested resources outside a Dagster run."""
    with dg.build_resources({"bench": bench}) as resources:
        resolved: Bench = resources.bench.resolve()
    return resolved


def open_panel(suite: str) -> tuple[Bench, dict[str, Any]]:
    """The bench and the panel in force.

    Raises:
        PanelError: If the suite has none.
    """
    bench = open_bench(suite)
    panel = active_panel(bench)
    if panel is None:
        raise PanelError(f"suite {suite} has no reference panel yet; freeze one: crs panel freeze --suite {suite}.")
    return bench, panel


def prepare_dagster_home(home: Home) -> Path:
    """DAGSTER_HOME below CRS_HOME, with its configuration."""
    home.dagster.mkdir(parents=True, exist_ok=True)
    config = home.dagster / "dagster.yaml"
    if not config.exists():
        write_atomic(config, INSTANCE_CONFIG)
    return home.dagster


@contextmanager
def open_instance(home: Home) -> Iterator[dg.DagsterInstance]:
    """The instance that the UI shows."""
    with dg.DagsterInstance.from_config(str(prepare_dagster_home(home))) as instance:
        yield instance


def serve_ui(port: int) -> None:
    """Run ``dagster dev`` on loopback until it is stopped."""
    home = Home(home_path())
    environment = {**os.environ, "CRS_HOME": str(home.path), "DAGSTER_HOME": str(prepare_dagster_home(home))}
    workspace = Path("workspace.yaml")
    source = ["-w", str(workspace)] if workspace.exists() else ["-m", "crs_assets.definitions"]
    click.echo(f"Dagster UI: 127.0.0.1:{port}  (state: {home.path}; stop with Ctrl-C)")
    command = [sys.executable, "-m", "dagster", "dev", *source, "-h", "127.0.0.1", "-p", str(port)]
    raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)
