"""CRS_HOME as every command finds it: configuration, the Dagster instance, what the UI is started with."""

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from dagster._core.instance.config import PoolGranularity

from crs_assets.cli import main, session
from crs_assets.cli.session import open_instance, prepare_workspace
from crs_assets.definitions import build_defs
from crs_assets.resources.home import Home


@pytest.fixture
def crs(monkeypatch, tmp_path):
    monkeypatch.setenv("CRS_HOME", str(tmp_path))
    return lambda *arguments: CliRunner().invoke(main, arguments)


def test_the_instance_sends_nothing_home_and_lets_one_run_at_a_time_use_the_device(tmp_path):
    with open_instance(Home(tmp_path)) as instance:
        assert not instance.telemetry_enabled
        assert instance.run_monitoring_enabled
        pools = instance.event_log_storage.get_pool_config()
        assert (pools.pool_granularity, pools.default_pool_limit) == (PoolGranularity.RUN, 1)
        assert instance.get_concurrency_config().run_queue_config.max_concurrent_runs == 2


def test_a_site_that_changed_its_instance_keeps_it(tmp_path):
    home = Home(tmp_path)
    with open_instance(home):
        pass
    (home.dagster / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    with open_instance(home):
        pass
    assert (home.dagster / "dagster.yaml").read_text() == "telemetry:\n  enabled: false\n"


def test_the_ui_is_bound_to_loopback_and_finds_the_same_home(crs, monkeypatch, tmp_path):
    asked = {}

    def pretend(command, environment):
        asked.update(command=command, env=environment)
        return 0

    monkeypatch.setattr(session, "run_group", pretend)
    assert crs("ui", "--port", "4321").exit_code == 0
    command = asked["command"]
    assert command[command.index("-h") + 1] == "127.0.0.1"
    assert command[command.index("-p") + 1] == "4321"
    assert asked["env"]["CRS_HOME"] == str(tmp_path)
    assert asked["env"]["DAGSTER_HOME"] == str(tmp_path / "dagster")
    # A person who opens the UI finds the encoders there, before anything was run.
    with open_instance(Home(tmp_path)) as instance:
        assert "pixels-16" in instance.get_dynamic_partitions("demo.encoder")


def test_the_workspace_holds_the_suites_of_the_site(tmp_path):
    suites = tmp_path / "catalog" / "suites"
    suites.mkdir(parents=True)
    (suites / "ours.toml").write_text('extends = "demo"\nid = "ours"\n')
    content = json.loads(prepare_workspace(Home(tmp_path)).read_text())
    names = [location["python_module"]["location_name"] for location in content["load_from"]]
    assert {"demo", "demo-full", "ours", "paper"} <= set(names)


def test_command_line_and_code_location_find_the_same_home(monkeypatch, tmp_path):
    monkeypatch.delenv("CRS_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert build_defs("demo").resources["bench"].home == str(tmp_path / ".crs")
    monkeypatch.setenv("CRS_HOME", str(tmp_path / "elsewhere"))
    assert build_defs("demo").resources["bench"].home == str(tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("[compute]\nbatch = 3\n", "batch"),
        ('[compute]\ndevice = "cuda:7"\n', "cuda:7"),
        ("[compute\n", "not a TOML file"),
        ('data_roots = "/data"\n', "data_roots"),
    ],
)
def test_a_wrong_configuration_is_one_message_that_names_the_file(crs, tmp_path, config, said):
    (tmp_path / "config.toml").write_text(config)
    result = crs("doctor", "--suite", "demo")
    assert result.exit_code == 1
    assert "config.toml" in result.output
    assert said in result.output
    assert "Traceback" not in result.output


@pytest.mark.slow
def test_a_failed_run_is_told_on_plain_lines_and_in_the_exit_code(small_bare):
    (small_bare.home / "data" / "tiny-skin" / "manifest.csv").unlink()
    code = "from crs_assets.cli import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code, "run", "--suite", "small", "--encoder", "vit-d"],
        env={"CRS_HOME": str(small_bare.home), "OMP_NUM_THREADS": "1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "failed: data: 1 partition(s) failed; the others are recorded.\ntiny-skin: DatasetError" in result.stderr
    assert "Waiting for what comes before" in result.stderr
    assert "Traceback" not in result.stderr
    assert "\x1b" not in result.stderr + result.stdout
