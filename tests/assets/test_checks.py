"""Findings that are warnings: null controls not beaten, encoders incomplete; they tell and gate nothing."""

import shutil
from types import SimpleNamespace

import dagster as dg
import pytest

from crs_assets.assets import checks
from crs_assets.assets.scores import leaderboard
from crs_assets.partitions import build_partitions, encoder_partitions_name
from crs_assets.resources.bench import default_resources
from crs_assets.science.suite import load_suite
from crs_assets.stages.leaderboard import Leaderboard
from crs_assets.stages.scores import AxisProfile

WARN = dg.AssetCheckSeverity.WARN


def told(check, **summary):
    """What a check says of a partition with this summary; None where it passes."""
    return check.finding(None, None, SimpleNamespace(summary=summary))


@pytest.mark.parametrize(
    ("check", "good", "bad", "says"),
    [
        (checks.ABOVE_NULLS, {"at_null": []}, {"at_null": ["vit-a on skin"]}, "at null: ['vit-a on skin']"),
        (checks.DATASETS_RANK, {"unrankable": []}, {"unrankable": ["skin"]}, "nobody is above the null controls on"),
        (checks.ALL_RANKED, {"incomplete": 0}, {"incomplete": 2}, "2 encoder(s) lack a cell and have no rank"),
        (
            checks.COMPLETE,
            {"coverage": {"skin": "complete", "chest": "absent: drawn without a chest"}},
            {"coverage": {"skin": "missing: not run", "chest": "complete"}},
            "skin: missing: not run",
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_finding_names_what_was_found_and_is_a_warning(check, good, bad, says):
    assert told(check, **good) is None
    assert says in told(check, **bad)
    assert check.severity is WARN
    assert check.spec(dg.AssetKey(["s", "a"])).blocking is False


def raw(**aurocs):
    return SimpleNamespace(summary={"raw": {name: {"discrimination": value} for name, value in aurocs.items()}})


@pytest.mark.parametrize(
    ("own", "twin", "beaten_on"),
    [
        ({"skin": 0.80, "chest": 0.70}, {"skin": 0.60, "chest": 0.69}, []),
        ({"skin": 0.80, "chest": 0.70}, {"skin": 0.60, "chest": 0.70}, ["chest"]),
        # What the twin lacks, or cannot estimate, beats nobody.
        ({"skin": 0.80, "chest": 0.70}, {"skin": None}, []),
        ({"skin": None}, {"skin": 0.9}, []),
    ],
)
def test_an_encoder_that_its_untrained_twin_equals_is_told(own, twin, beaten_on):
    suite = load_suite("demo")
    stored = {"efficientnet-lite0-untrained-112": raw(**twin)}
    bench = SimpleNamespace(suite=suite, store=SimpleNamespace(peek=lambda key: stored.get(key.parts[0])))
    key = SimpleNamespace(suite="demo", asset="axis_profile", parts=("efficientnet-lite0-112",))
    found = checks.TWIN.finding(bench, key, raw(**own))
    assert (found is None) == (not beaten_on)
    assert all(f"efficientnet-lite0-untrained-112 on {name}" in found for name in beaten_on)
    # Another network, or the same at another size, has no say.
    other = SimpleNamespace(suite="demo", asset="axis_profile", parts=("efficientnet-lite0-128",))
    assert checks.TWIN.finding(bench, other, raw(**own)) is None
    assert checks.TWIN.severity is WARN


def test_a_cell_that_was_not_run_is_told_of_its_encoder_alone(bench):
    shutil.rmtree(bench.store.root / bench.key("run_metrics", "vit-b", "tiny-chest.s1").path)
    AxisProfile().ensure(bench, "vit-b")
    result = checks.COMPLETE.evaluate(bench, dg.AssetKey(["tiny", "axis_profile"]), AxisProfile(), {}, {})
    assert (result.passed, result.severity) == (False, WARN)
    assert result.metadata["findings"].value == 1
    assert result.metadata["partitions_checked"].value == len(bench.suite.encoders)
    assert result.metadata["first"].value == {"vit-b": "tiny-chest: missing: not run"}


def test_the_leaderboard_is_recorded_whatever_its_checks_find(bench):
    shutil.rmtree(bench.store.root / bench.key("crs", "vit-b").path)
    partitions = build_partitions(bench.suite)
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(encoder_partitions_name("tiny"), list(bench.suite.encoders))
        result = dg.materialize(
            [leaderboard(partitions)], instance=instance, resources=default_resources("tiny", bench.home)
        )
    assert result.success
    summary = bench.store.peek(bench.key(Leaderboard.name)).summary
    found = {each.check_name: each for each in result.get_asset_check_evaluations()}
    assert {name: each.passed for name, each in found.items()} == {
        "cells_above_nulls": not summary["at_null"],
        "data_sets_can_rank": not summary["unrankable"],
        "every_encoder_ranked": not summary["incomplete"],
    }
    assert {each.severity for each in found.values()} == {WARN}
    # Recorded all the same.
    assert [event.asset_key.path[-1] for event in result.get_asset_materialization_events()] == ["leaderboard"]
