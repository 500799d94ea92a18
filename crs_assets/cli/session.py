"""What every command begins with: CRS_HOME, the suite's bench, the Dagster instance."""

import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click
import dagster as dg

from crs_assets.automation.runner import register_encoders
from crs_assets.cli.process_group import run_group
from crs_assets.resources.artifact_store import write_atomic
from crs_assets.resources.bench import Bench, default_resources
from crs_assets.resources.compute import ComputeDevice
from crs_assets.resources.configuration import DATA_ROOTS, FILE, ArtifactStoreResource, read_configuration
from crs_assets.resources.data_roots import DataRoots, Roots
from crs_assets.resources.home import Home, home_path
from crs_assets.resources.weights import WeightStore
from crs_assets.science.suggestion import did_you_mean
from crs_assets.science.suite import entry_ids
from crs_assets.science.toml_models import CatalogError
from crs_assets.stages.panel_in_force import require_panel

LOOPBACK = "127.0.0.1"
WORKSPACE = "workspace.yaml"
# One accelerator, so one run at a time of those that need it; a killed run gives its slot back; nothing is sent home.
INSTANCE_CONFIG = """\
telemetry:
  enabled: false
nux:
  enabled: false
concurrency:
  runs:
    max_concurrent_runs: 2
  pools:
    default_limit: 1
    granularity: run
run_monitoring:
  enabled: true
  start_timeout_seconds: 180
  cancel_timeout_seconds: 60
  poll_interval_seconds: 10
  free_slots_after_run_end_seconds: 10
run_retries:
  enabled: true
  max_retries: 1
  retry_on_asset_or_op_failure: false
sensors:
  use_threads: true
  num_workers: 2
schedules:
  use_threads: true
  num_workers: 2
backfills:
  use_threads: true
  num_workers: 2
  num_submit_workers: 4
"""


def open_bench(suite: str, *, device: bool = False) -> Bench:
    """The suite and its resources, as CRS_HOME configures them.

    Args:
        suite: Suite id or path.
        device: Whether the command computes; settling on a device takes seconds, which reading has no use for.

    Raises:
        CatalogError: If the suite or the site's configuration cannot be used.
    """
    home = Home(home_path())
    loaded = home.load_suite(suite)
    try:
        resources = default_resources(suite, home)
        compute = _resource(resources, ComputeDevice) if device else ComputeDevice(device="cpu")
        return Bench(
            suite=loaded,
            home=home,
            store=_resource(resources, ArtifactStoreResource).resolve(),
            compute=compute.resolve(),
            roots=_resource(resources, DataRoots).resolve(),
            weights=_resource(resources, WeightStore).resolve(),
        )
    except CatalogError:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise CatalogError(f"{home.path / FILE}: {error}") from error


def open_roots(home: Home, dataset: str) -> Roots:
    """Where data sets lie, as CRS_HOME configures it; for what concerns one that may be in no suite and no catalogue.

    Raises:
        CatalogError: If the site's configuration cannot be used.
    """
    return Roots(home.data, read_configuration(home, dataset).get(DATA_ROOTS, {}))


Resource = TypeVar("Resource", bound=dg.ConfigurableResource[Any])


def _resource(resources: Mapping[str, object], kind: type[Resource]) -> Resource:
    return next(resource for resource in resources.values() if isinstance(resource, kind))


def dropin_problems(bench: Bench) -> tuple[str, ...]:
    """Files of encoders added to the suite that cannot be used, with the reason."""
    suite, own = bench.suite, {*bench.suite.spec.encoders, *bench.suite.spec.controls}
    without = replace(suite, encoders={name: spec for name, spec in suite.encoders.items() if name in own})
    return bench.home.read_dropins(without).problems


def mirror_problems(bench: Bench) -> tuple[str, ...]:
    """What is wrong with the folder of weights that the site names: a slip, or a drive that is not there."""
    mirror = bench.weights.mirror
    if mirror == bench.home.mirror or mirror.is_dir():
        return ()
    return (f"[weights] mirror: no folder {mirror}; make it, or correct {bench.home.path / FILE}.",)


def check_selection(bench: Bench, encoders: Sequence[str] | None, datasets: Sequence[str] | None) -> None:
    """Refuse encoders and data sets that a suite does not have.

    Raises:
        CatalogError: Naming all of them, and the files of added encoders that cannot be used.
    """
    problems = [
        f"no {kind} {name!r} in suite {bench.suite.id}." + (did_you_mean(name, known) or f" It has {', '.join(known)}.")
        for kind, asked, known in (
            ("encoder", encoders, list(bench.suite.encoders)),
            ("data set", datasets, list(bench.suite.datasets)),
        )
        for name in asked or ()
        if name not in known
    ]
    if problems:
        raise CatalogError("\n".join([*problems, *dropin_problems(bench)]))


def open_panel(suite: str) -> tuple[Bench, dict[str, Any]]:
    """The bench and the panel in force.

    Raises:
        RefusedError: If the suite has none.
        PanelError: If its file is gone, or altered.
    """
    bench = open_bench(suite)
    return bench, require_panel(bench)


def prepare_dagster_home(home: Home) -> Path:
    """DAGSTER_HOME below CRS_HOME, with its configuration; one that a site has changed stays as it is."""
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


def known_suites(home: Home) -> list[str]:
    """Ids of the shipped suites and of the site's own."""
    return entry_ids("suites", home.catalog)


def prepare_workspace(home: Home) -> Path:
    """A workspace file with one code location per suite, the site's own included."""
    locations = [
        {"python_module": {"module_name": "crs_assets.definitions", "attribute": suite, "location_name": suite}}
        for suite in known_suites(home)
    ]
    path = prepare_dagster_home(home) / WORKSPACE
    # JSON is YAML, and needs no library of its own.
    write_atomic(path, json.dumps({"load_from": locations}, indent=1))
    return path


def serve_ui(port: int) -> None:
    """Run ``dagster dev`` on loopback until it is stopped; its web server, daemon and code servers end with it."""
    home = Home(home_path())
    _check_port(port)
    workspace = prepare_workspace(home)
    with open_instance(home) as instance:
        for suite in known_suites(home):
            try:
                register_encoders(instance, home.load_suite(suite))
            except CatalogError as error:
                click.echo(f"suite {suite} cannot be loaded: {error}", err=True)
    environment = {**os.environ, "CRS_HOME": str(home.path), "DAGSTER_HOME": str(home.dagster)}
    click.echo(f"Dagster UI: {LOOPBACK}:{port}  (state: {home.path}; stop with Ctrl-C)", err=True)
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace), "-h", LOOPBACK, "-p", str(port)]
    raise SystemExit(run_group(command, environment))


def _check_port(port: int) -> None:
    """Refuse a port in use: Dagster would go on without its web server, and with a second daemon."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise click.ClickException(
                f"port {port} of {LOOPBACK} cannot be used ({error.strerror}); is the UI already open? "
                f"Otherwise: crs ui --port {port + 1}"
            ) from error
