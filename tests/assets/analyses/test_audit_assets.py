"""The audits as Dagster has them: edges, what is shown, and a refusal with its cure."""

import dagster as dg
import pytest

from crs_assets.assets.analyses import audits
from crs_assets.partitions import build_partitions
from crs_assets.science.suite import load_suite

NAMES = (
    "rank_agreement",
    "external_validity",
    "label_efficiency_audit",
    "perturbation_audit",
    "reference_invariance",
    "score_sensitivity",
)


def assets(suite):
    partitions = build_partitions(suite)
    return {name: getattr(audits, name)(partitions) for name in NAMES}


def test_each_audit_is_one_unpartitioned_asset_that_follows_what_it_reads():
    found = assets(load_suite("demo"))
    upstream = {name: {key.path[1] for key in found[name].asset_deps[dg.AssetKey(["demo", name])]} for name in NAMES}
    assert upstream["perturbation_audit"] == {"run_metrics"}
    assert upstream["reference_invariance"] == {"reference_panel"}
    assert upstream["rank_agreement"] == {"crs", "axis_profile", "reference_panel", "control_probes"}
    more = {"penalty_axes", "axis_replicates"}
    assert upstream["score_sensitivity"] == {"crs", "axis_profile", "run_metrics", "reference_panel", *more}
    for name, asset in found.items():
        spec = asset.get_asset_spec(dg.AssetKey(["demo", name]))
        assert (asset.partitions_def, spec.group_name) == (None, "analyses")
        assert "phantoms" in spec.description


@pytest.mark.slow
def test_audits_record_key_figures_and_tables_and_refuse_a_small_panel(small_made):
    found = assets(small_made.bench.suite)
    with small_made.instance() as instance:
        for name in ("rank_agreement", "external_validity", "label_efficiency_audit", "score_sensitivity"):
            assert dg.materialize([found[name]], instance=instance, resources=small_made.resources).success
        shown = instance.get_latest_materialization_event(
            small_made.key("rank_agreement")
        ).asset_materialization.metadata
        assert {"kendall_tau", "n", "table_agreement", "dagster/row_count", "fingerprint", "picture"} <= set(shown)
        assert "data:image/png;base64," in shown["picture"].value
        validity = instance.get_latest_materialization_event(small_made.key("external_validity"))
        assert "no predictor" in validity.asset_materialization.metadata["verdict"].value
        # Two encoders are no panel for a trial.
        result = dg.materialize(
            [found["reference_invariance"]], instance=instance, resources=small_made.resources, raise_on_error=False
        )
        (event,) = result.get_step_failure_events()
        told = event.step_failure_data.user_failure_data.description
        assert "needs a frozen panel of at least 3 encoders" in told
        assert "crs panel freeze --suite small" in told
