"""Ending a command with all that it started: real processes that sleep, some of them deaf."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import suppress

import psutil
import pytest

DRIVER = textwrap.dedent(
    """
    import os, sys
    from crs_assets.cli.process_group import run_group
    grace, last, *command = sys.argv[1:]
    sys.exit(run_group(command, os.environ, grace=float(grace), last=float(last)))
    """
)
# A command like Dagster's: two children, which every process announces by a file named after its id. What it does with
# an interrupt is its nature.
COMMAND = textwrap.dedent(
    """
    import os, pathlib, signal, subprocess, sys, time
    nature, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)"
    sleeper = f'''
    import os, pathlib, signal, time
    {deaf if nature == "deaf" else ""}
    pathlib.Path({str(folder)!r}, str(os.getpid())).touch()
    time.sleep(600)
    '''
    children = [subprocess.Popen([sys.executable, "-c", sleeper]) for _ in range(2)]
    if nature == "deaf":
        exec(deaf)
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.01)
    (folder / str(os.getpid())).touch()
    try:
        time.sleep(0 if nature == "crashing" else 600)
        sys.exit(3)
    except KeyboardInterrupt:
        if nature == "orderly":
            for child in children:
                child.terminate()
                child.wait()
            (folder / "in order").touch()
    """
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pids").mkdir()
    yield tmp_path / "pids"
    for pid in announced(tmp_path / "pids"):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def heed_hangups():
    """Under nohup the tests themselves would hand their deafness on."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture
def start(folder):
    """Start the driver of a command of that nature, and come back when three processes are there."""
    processes = []

    def begin(nature, *, grace=60, last=60, before=()):
        driver = [sys.executable, "-c", DRIVER, str(grace), str(last)]
        command = [sys.executable, "-c", COMMAND, nature, str(folder)]
        processes.append(subprocess.Popen([*before, *driver, *command], preexec_fn=heed_hangups))
        wait_for(lambda: len(announced(folder)) == 3)
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.wait()


def announced(folder):
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def wait_for(happened):
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def living(folder):
    """Announced processes that still do something; one that nobody asked for its status yet does nothing."""
    found = []
    for pid in announced(folder):
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_whatever_stops_it_the_command_ends_its_own_in_order(start, folder, number):
    process = start("orderly")
    assert len(living(folder)) == 3
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    assert living(folder) == []
    assert (folder / "in order").exists()


def test_what_the_command_leaves_behind_is_ended(start, folder):
    process = start("careless")
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert living(folder) == []


def test_what_heeds_no_signal_is_killed(start, folder):
    process = start("deaf", grace=0.2, last=0.2)
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert living(folder) == []


def test_a_second_signal_cuts_the_waiting_short(start, folder):
    process = start("deaf", grace=600, last=0.2)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert living(folder) == []


def test_a_command_that_fails_by_itself_leaves_nothing_and_its_status_is_told(folder):
    driver = [sys.executable, "-c", DRIVER, "60", "60"]
    command = [sys.executable, "-c", COMMAND, "crashing", str(folder)]
    assert subprocess.run([*driver, *command], timeout=60, check=False).returncode == 3
    assert len(announced(folder)) == 3
    assert living(folder) == []


def test_signals_that_were_ignored_stay_so_but_the_command_can_still_be_stopped(start, folder):
    # As `nohup crs ui &` starts it; children inherit ignored signals.
    process = start("orderly", before=["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh"])
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert len(living(folder)) == 3
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert living(folder) == []
    assert (folder / "in order").exists()


@pytest.mark.slow
def test_the_ui_leaves_nothing_of_dagster_running(folder, tmp_path):
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\nimport sys\nsys.argv = ['', 'careless', {str(folder)!r}]\n"
                      f"sys.executable = {sys.executable!r}\n{COMMAND}")  # fmt: skip
    python.chmod(0o755)
    ui = textwrap.dedent(
        """
        import sys
        from crs_assets.cli import main, session
        session.known_suites = lambda home: []
        sys.executable = sys.argv.pop(1)
        main()
        """
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", ui, str(python), "ui", "--port", str(port)],
        env={**os.environ, "CRS_HOME": str(tmp_path / "home")},
    )
    try:
        wait_for(lambda: len(announced(folder)) == 3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
        assert living(folder) == []
    finally:
        process.kill()
        process.wait()
