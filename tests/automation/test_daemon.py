"""The way of the UI, for real: ``crs ui`` on loopback, a sensor tick and a backfill through the daemon."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from graph_site import CHEST, SKIN, TARGET, Site, copy_site

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 400
LOCATIONS = "{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus } } } }"
START_SENSOR = """mutation ($selector: SensorSelector!) { startSensor(sensorSelector: $selector) { __typename } }"""
JOB_RUNS = """{ runsOrError(filter: { pipelineName: "benchmark_encoder" }) {
    ... on Runs { results { status tags { key value } } } } }"""
BACKFILL = """mutation ($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
    __typename ... on LaunchBackfillSuccess { backfillId } } }"""
STATUS = """query ($id: String!) { partitionBackfillOrError(backfillId: $id) {
    ... on PartitionBackfill { status runs { status assetSelection { path } } } } }"""
ENCODED = ["features", "degraded_features"]
UNDONE = ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "REQUESTED", "IN_PROGRESS")


class Server:
    """A running UI, asked through GraphQL."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/graphql"

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self._url, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read())["data"]

    def is_loaded(self) -> bool:
        try:
            entries = self.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
        except (urllib.error.URLError, ConnectionError, KeyError, TypeError):
            return False
        return bool(entries) and all(entry["loadStatus"] == "LOADED" for entry in entries)


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(1)
    raise AssertionError("nothing came of it in time")


def crs(site: Site, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment: as many threads everywhere, because the last bits of a fit depend on them."""
    command = [sys.executable, "-c", "from crs_assets.cli import main; main()", *arguments]
    return command, {**os.environ, "CRS_HOME": str(site.home), "OMP_NUM_THREADS": "1"}


@contextmanager
def serving(site: Site) -> Iterator[Server]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command, environment = crs(site, "ui", "--port", str(port))
    log = (site.home / "ui.log").open("w")
    process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    server = Server(port)
    try:
        wait_for(server.is_loaded)
        yield server
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(60)
        log.close()


def of_encoder(site: Site, encoder: str, *assets: str) -> dict[str, bytes]:
    wanted = tuple(f"small/{asset}/{encoder}/" for asset in assets) if assets else ("small/",)
    return {path: text for path, text in site.files().items() if f"/{encoder}/" in path and path.startswith(wanted)}


@pytest.mark.timeout(1200)
def test_the_daemon_stores_the_bytes_of_a_run_on_the_command_line(tmp_path: Path, tiny) -> None:
    through_daemon, in_process = copy_site(tmp_path / "daemon", tiny), copy_site(tmp_path / "process", tiny)
    for site in (through_daemon, in_process):
        site.publish("vit-b", seed=21)
    in_process.add("vit-c")
    command, environment = crs(in_process, "run", "--suite", "small")
    subprocess.run(command, env=environment, check=True, capture_output=True)
    with through_daemon.instance() as instance:
        assert through_daemon.materialize(instance, ["encoder_weights"], "vit-b").success

    with serving(through_daemon) as server:
        selector = {"repositoryLocationName": "small", "repositoryName": "__repository__", "sensorName": "new_encoders"}
        assert server.ask(START_SENSOR, selector=selector)["startSensor"]["__typename"] == "Sensor"
        through_daemon.add("vit-c")
        params = {
            "assetSelection": [{"path": ["small", name]} for name in ENCODED],
            "partitionNames": [f"vit-b|{name}" for name in (SKIN, CHEST, TARGET)],
        }
        identity = server.ask(BACKFILL, params=params)["launchPartitionBackfill"]["backfillId"]

        def backfill() -> dict[str, Any] | None:
            found = server.ask(STATUS, id=identity)["partitionBackfillOrError"]
            return None if found["status"] in UNDONE else found

        def job_runs() -> list[dict[str, Any]]:
            runs = server.ask(JOB_RUNS)["runsOrError"]["results"]
            return runs if runs and all(run["status"] not in UNDONE for run in runs) else []

        # Both want the one slot of the pool, and the job holds it while its nested runs execute: no deadlock.
        (run,) = wait_for(job_runs)
        done = wait_for(backfill)
    assert run["status"] == "SUCCESS"
    assert {"key": "dagster/partition", "value": "vit-c"} in run["tags"]
    assert of_encoder(through_daemon, "vit-c") == of_encoder(in_process, "vit-c")
    assert done["status"] == "COMPLETED_SUCCESS"
    # One encoder is one run, whatever the number of its image sets.
    assert [run["status"] for run in done["runs"]] == ["SUCCESS"]
    assert of_encoder(through_daemon, "vit-b", *ENCODED) == of_encoder(in_process, "vit-b", *ENCODED)
