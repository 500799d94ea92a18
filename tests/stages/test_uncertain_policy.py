"""Each policy for uncertain cells changes what is fitted, is told in every row, and never touches what is judged."""

import re

import polars as pl
import pytest

from crs_assets.science.labels import LabelError
from crs_assets.stages.data import Splits
from crs_assets.stages.probes import CLASS_RUNS_FILE, ProbePredictions, RunMetrics, read_runs

ENCODER, TASK = "vit-a", "tiny-chest.s0"
COUNTS = ["fraction", "condition", "class", "positives", "negatives", "scored"]


def under(tiny, home, policy):
    """The probes of one encoder and task under a policy: a row per run, a row per class, and a key."""
    path = home / "catalog" / "protocols" / "tiny-v1.toml"
    chosen = f'[data]\nuncertain_labels = "{policy}"\n'
    path.write_text(re.sub(r"\[data\]\n(uncertain_labels = .*\n)?", chosen, path.read_text()))
    bench = tiny.open_bench(home)
    Splits().ensure(bench, TASK)
    outcome = ProbePredictions().ensure(bench, ENCODER, TASK)
    RunMetrics().ensure(bench, ENCODER, TASK)
    classes = pl.read_parquet(bench.store.open(bench.key(RunMetrics.name, ENCODER, TASK)).file(CLASS_RUNS_FILE))
    return read_runs(bench, ENCODER, TASK), classes, outcome.manifest


@pytest.mark.slow
def test_a_policy_changes_fits_and_never_what_is_judged(tiny, make_home):
    home = make_home()
    runs, classes, manifest = {}, {}, {}
    for policy in ("u_ignore", "u_zeros", "u_ones"):
        runs[policy], classes[policy], manifest[policy] = under(tiny, home, policy)
        assert runs[policy]["uncertain_labels"].unique().to_list() == [policy]
        assert manifest[policy].recipe["inputs"]["uncertain_labels"] == policy
    assert len({one.fingerprint for one in manifest.values()}) == 3
    for policy in ("u_zeros", "u_ones"):
        # An uncertain cell of the test set is masked whatever was fitted on, so the same cells are counted.
        assert classes[policy].select(COUNTS).equals(classes["u_ignore"].select(COUNTS))
        assert runs[policy]["n_eval"].equals(runs["u_ignore"]["n_eval"])
        assert not runs[policy]["auroc"].equals(runs["u_ignore"]["auroc"])


def test_the_mixed_policy_is_refused_where_its_labels_do_not_exist(tiny, make_home):
    with pytest.raises(LabelError, match="the policy 'mixed' is CheXpert's"):
        under(tiny, make_home(), "mixed")
