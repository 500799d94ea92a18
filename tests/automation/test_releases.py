"""From a release on the hub to exactly its runs: the sensor proposes, a person accepts, nothing else moves."""

import dagster as dg
import pytest
from loopback_hub import LoopbackHub, serving

from crs_assets.automation.releases import build_release_sensor
from crs_assets.cli.adding import add_encoder
from crs_assets.definitions import build_defs
from crs_assets.partitions import encoder_partitions_name
from crs_assets.resources.bench import default_resources
from crs_assets.resources.home import Home
from crs_assets.science.encoders import load_encoder_spec

# Dagster itself reads the deprecated name when it sets up a resource within a resource.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run:DeprecationWarning")

REPO, FILE = "owner/tiny", "model.safetensors"
SUITE = """
extends = "demo"
id = "small"
title = "Small"
encoders = ["tiny"]
controls = []
shuffled_labels_encoder = "tiny"
panel_members = ["tiny"]
"""
ENCODER = """
id = "tiny"
title = "Tiny"
family = "generalist"
licence = "none"
citation = "none"
[architecture]
loader = "timm"
arch = "vit_tiny_patch16_224"
kwargs = {{ img_size = 32 }}
[weights]
source = "hub"
repo = "owner/tiny"
file = "model.safetensors"
revision = "{revision}"
[preprocessing]
input_size = 32
resize = "squash"
mean = [0.5, 0.5, 0.5]
std = [0.5, 0.5, 0.5]
[tap]
pool = "cls"
dim = 192
blocks = 12
prefix_tokens = 1
"""


@pytest.fixture
def hub(monkeypatch):
    with serving(monkeypatch) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def home(tmp_path, monkeypatch, hub):
    """A site with one hub encoder, pinned at the first revision."""
    monkeypatch.setenv("CRS_HOME", str(tmp_path))
    site = Home(tmp_path)
    for kind, name, text in (
        ("suites", "small", SUITE),
        ("encoders", "tiny", ENCODER.format(revision=hub.publish(REPO, {FILE: b"first"}))),
    ):
        (site.catalog / kind).mkdir(parents=True)
        (site.catalog / kind / f"{name}.toml").write_text(text, encoding="utf-8")
    return site


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as ephemeral:
        ephemeral.add_dynamic_partitions(encoder_partitions_name("small"), ["tiny"])
        yield ephemeral


def evaluate(sensor, instance, home):
    resources = {"bench": default_resources("small", home)["bench"]}
    with dg.build_sensor_context(instance=instance, resources=resources) as context:
        return sensor(context)


def test_a_release_becomes_a_proposal_and_once_added_exactly_its_runs(hub, home, instance):
    second = hub.publish(REPO, {FILE: b"second"})
    entry_before = (home.catalog / "encoders" / "tiny.toml").read_text(encoding="utf-8")

    skipped = evaluate(build_release_sensor(), instance, home)
    proposal = home.path / "proposed" / f"tiny-{second[:8]}.toml"
    assert f"crs encoder add {proposal} --suite small" in skipped.skip_message
    spec = load_encoder_spec(proposal)
    assert spec.weights.revision == second
    assert (home.catalog / "encoders" / "tiny.toml").read_text(encoding="utf-8") == entry_before
    assert list(home.load_suite("small").encoders) == ["tiny"]

    add_encoder(proposal, "small")
    default_resources("small", home)["weights"].resolve().fetch(spec)
    sensors = build_defs("small", home=home.path).sensors
    result = evaluate(next(sensor for sensor in sensors if sensor.name == "new_encoders"), instance, home)
    assert [request.partition_key for request in result.run_requests] == [spec.id]
    assert [request.partition_keys for request in result.dynamic_partitions_requests] == [[spec.id]]
    assert evaluate(build_release_sensor(), instance, home).skip_message == "no new release"


def test_a_proposal_is_written_once_and_a_persons_changes_to_it_stay(hub, home, instance):
    second = hub.publish(REPO, {FILE: b"second"})
    evaluate(build_release_sensor(), instance, home)
    proposal = home.path / "proposed" / f"tiny-{second[:8]}.toml"
    proposal.write_text("# being looked at", encoding="utf-8")
    skipped = evaluate(build_release_sensor(), instance, home)
    assert f"is already proposed in {proposal}" in skipped.skip_message
    assert proposal.read_text(encoding="utf-8") == "# being looked at"


def test_without_a_new_release_nothing_is_written(hub, home, instance):
    assert evaluate(build_release_sensor(), instance, home).skip_message == "no new release"
    assert not (home.path / "proposed").exists()


def test_a_refusal_is_in_the_reason(hub, home, instance):
    hub.refusals[REPO] = (401, "GatedRepo", "restricted")
    assert "not looked at: tiny: " in evaluate(build_release_sensor(), instance, home).skip_message


def test_offline_it_is_quiet(home, instance, monkeypatch):
    with LoopbackHub() as gone:
        monkeypatch.setenv("HF_ENDPOINT", gone.url)
    skipped = evaluate(build_release_sensor(), instance, home)
    assert skipped.skip_message.startswith("nothing was looked at: tiny: ")
    assert not (home.path / "proposed").exists()


def test_it_starts_stopped_and_asks_at_most_once_a_day():
    sensor = build_release_sensor()
    assert sensor.default_status is dg.DefaultSensorStatus.STOPPED
    assert sensor.minimum_interval_seconds == 86400
