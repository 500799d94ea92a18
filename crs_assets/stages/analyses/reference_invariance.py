"""Trials that put encoders into a smaller panel: published scores under a cohort rule, and under the frozen panel."""

from typing import Any

import polars as pl

from crs_assets.resources.bench import Bench
from crs_assets.science.analyses.invariance import COHORT, FROZEN, MIN_PANEL, displacement, invariance_trials
from crs_assets.stages.analyses.suite_analysis import Findings, SuiteAnalysis
from crs_assets.stages.panel_in_force import active_panel
from crs_assets.stages.stage import RefusedError

TRIALS = "trials"
DISPLACEMENT = "displacement"


class ReferenceInvariance(SuiteAnalysis):
    """How far published scores move when encoders arrive: under cohort normalisation, and under the frozen panel."""

    name = "reference_invariance"
    code_version = "1"
    reads = ("panel",)

    def settings(self, bench: Bench) -> dict[str, Any]:
        """Number of trials, share of newcomers, salt, and how scores are formed."""
        suite = bench.suite
        return {
            "invariance": suite.protocol.analyses.invariance.model_dump(mode="json"),
            "salt": suite.protocol.salt,
            "readings": {
                r.id: [r.axes.model_dump(mode="json"), r.score.model_dump(mode="json")] for r in suite.readings
            },
        }

    def analyse(self, bench: Bench) -> Findings:
        """Run the trials on the panel's members, under every reading."""
        suite, panel = bench.suite, active_panel(bench)
        if panel is None or len(panel["encoders"]) < MIN_PANEL:
            raise RefusedError(
                f"reference invariance needs a frozen panel of at least {MIN_PANEL} encoders; add to the suite's "
                f"panel_members, run them, and freeze a panel of them: {suite.command('panel freeze')}"
            )
        settings, salt, members = suite.protocol.analyses.invariance, suite.protocol.salt, panel["encoders"]
        datasets = [name for name, facts in panel["datasets"].items() if facts["rankable"]]
        trials = pl.concat(
            invariance_trials(members, reading, datasets=datasets, settings=settings, salt=salt)
            for reading in suite.readings
        )
        if trials.is_empty():
            raise RefusedError(
                f"panel {panel['name']} has no data set that can rank encoders with two members left on it; "
                f"freeze a panel with more members: {suite.command('panel freeze')}"
            )
        table = displacement(trials, sorted(members), settings, salt)
        primary = {row["rule"]: row for row in table.iter_rows(named=True) if row["reading"] == suite.protocol.id}
        return Findings(
            {TRIALS: trials, DISPLACEMENT: table},
            {
                "panel": primary[COHORT]["panel"],
                "arriving": primary[COHORT]["arriving"],
                "draws": primary[COHORT]["draws"],
                "distinct_draws": primary[COHORT]["distinct_draws"],
                "cohort_mean": primary[COHORT]["mean_displacement"],
                "cohort_max": primary[COHORT]["max_displacement"],
                "frozen_mean": primary[FROZEN]["mean_displacement"],
                "frozen_max": primary[FROZEN]["max_displacement"],
                "frozen_note": "0 by construction: a score reads the panel and the encoder's own profile, no newcomer",
            },
        )
