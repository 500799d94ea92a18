"""What the package promises about itself: who imports what, how assets are declared, that generated docs are fresh."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from crs_assets.definitions import build_defs
from crs_assets.science.suite import load_suite

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "torchvision", "timm", "transformers", "open_clip", "sklearn", "cv2", "matplotlib", "onnx")


def modules_after(statement):
    code = f"{statement}\nimport sys\nprint(*sorted(name for name in sys.modules if '.' not in name))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_loading_the_code_location_imports_no_heavy_library(tmp_path, monkeypatch):
    monkeypatch.setenv("CRS_HOME", str(tmp_path))
    assert not modules_after("from crs_assets.definitions import defs; defs.get_repository_def()") & set(HEAVY)


def test_science_imports_no_dagster():
    modules = modules_after(
        "import crs_assets.science.metrics, crs_assets.science.scoring, crs_assets.science.statistics, "
        "crs_assets.science.images, crs_assets.science.probes, crs_assets.science.recalibration, "
        "crs_assets.science.suite, crs_assets.science.plan"
    )
    assert "dagster" not in modules


@pytest.mark.parametrize("suite", ["demo", "demo-full", "paper", "open"])
def test_every_shipped_suite_has_loadable_definitions(suite, tmp_path):
    definitions = build_defs(suite, home=tmp_path)
    dg.Definitions.validate_loadable(definitions)
    keys = {spec.key for spec in definitions.resolve_all_asset_specs()}
    assert {key.path[0] for key in keys} == {suite}
    assert {key.path[-1] for key in keys} == {
        "dataset_index",
        "splits",
        "encoder_weights",
        "features",
        "degraded_features",
        "probe_predictions",
        "run_metrics",
        "null_controls",
        "axis_profile",
        "reference_panel",
        "crs",
        "leaderboard",
        "control_probes",
        "penalty_axes",
        "recalibration",
        "recalibration_summary",
        "subgroups",
        "operating_points",
        "axis_replicates",
        "uncertainty",
        "rank_agreement",
        "external_validity",
        "label_efficiency_audit",
        "perturbation_audit",
        "reference_invariance",
        "score_sensitivity",
        "depth_features",
        "depth_sweep",
        "extra_degraded_features",
        "extra_degradation_metrics",
        "report",
    }


def test_every_asset_says_what_it_is_and_names_no_owner(tmp_path):
    for spec in build_defs("demo", home=tmp_path).resolve_all_asset_specs():
        assert spec.description
        assert "phantoms" in spec.description
        assert spec.group_name in ("data", "encoders", "features", "probes", "scores", "analyses", "report")
        assert 1 <= len(spec.kinds) <= 3
        assert spec.code_version
        assert not spec.owners


def test_suites_of_the_workspace_are_attributes_of_the_definitions_module():
    import crs_assets.definitions as module

    for name in ("demo", "demo-full", "paper"):
        assert isinstance(getattr(module, name), dg.Definitions)


def test_automation_is_stopped_until_a_person_starts_it(tmp_path):
    repository = build_defs("demo", home=tmp_path).get_repository_def()
    assert {sensor.name for sensor in repository.sensor_defs} == {"new_encoders", "new_releases"}
    assert all(sensor.default_status is dg.DefaultSensorStatus.STOPPED for sensor in repository.sensor_defs)
    assert [schedule.name for schedule in repository.schedule_defs] == ["rebenchmark"]
    assert all(schedule.default_status is dg.DefaultScheduleStatus.STOPPED for schedule in repository.schedule_defs)


def test_shipped_suites_have_fewer_partitions_than_dagster_compares_versions_for():
    assert all(len(load_suite(name).tasks) < 100 for name in ("demo", "demo-full", "paper", "open"))


def test_generated_documentation_is_up_to_date():
    subprocess.run([sys.executable, "tools/docs.py", "--check"], cwd=ROOT, check=True)
