"""Every chapter of the report, in its order; one whose analysis is missing is left out and named.

To add one, write its function in a module here and give it a line; an analysis of its own gets a name for readers in
``evidence.ANALYSES``.
"""

from crs_assets.report.chapters import (
    beyond,
    calibration,
    choices,
    elsewhere,
    first_page,
    images,
    patients,
    ranking,
    record,
)
from crs_assets.report.content import ChapterPlan

CHAPTERS = (
    ChapterPlan("in-short", "In short", first_page.in_short),
    ChapterPlan("leaderboard", "Leaderboard", ranking.leaderboard),
    ChapterPlan("certainty", "How sure is the ranking?", ranking.certainty, ("uncertainty",)),
    ChapterPlan("compare", "Compare two encoders", ranking.side_by_side, ("uncertainty",)),
    ChapterPlan("auroc", "From AUROC to CRS", ranking.auroc_against_crs),
    ChapterPlan("agreement", "Agreement of rankings", choices.rank_agreement, ("rank_agreement",)),
    ChapterPlan("tradeoffs", "Trade-offs and profiles", ranking.tradeoffs_and_profiles),
    ChapterPlan("reliability", "Reliability of stated probabilities", calibration.reliability),
    ChapterPlan("recalibration", "Recalibration", calibration.recalibration, ("recalibration_summary",)),
    ChapterPlan("labels", "Fewer labels", images.fewer_labels, ("label_efficiency_audit",)),
    ChapterPlan("degradations", "Degraded images", images.degraded_images, ("perturbation_audit",)),
    ChapterPlan("transfer", "Transfer", elsewhere.transfer, ("external_validity",)),
    ChapterPlan("subgroups", "Subgroups", patients.subgroups, ("subgroups",)),
    ChapterPlan("operating-points", "Operating points", patients.operating_points, ("operating_points",)),
    ChapterPlan("control-probes", "Control probes", choices.control_probes, ("control_probes",)),
    ChapterPlan("depth", "Depth", beyond.depth, ("depth_sweep",)),
    ChapterPlan(
        "further-degradations", "Further degradations", beyond.further_degradations, ("extra_degradation_metrics",)
    ),
    ChapterPlan("sensitivity", "Sensitivity of the score", choices.sensitivity, ("score_sensitivity",)),
    ChapterPlan("invariance", "Reference invariance", choices.invariance, ("reference_invariance",)),
    ChapterPlan("data", "Data", record.data_cards),
    ChapterPlan("columns", "How to read the columns", record.columns),
    ChapterPlan("provenance", "Provenance", record.provenance),
)
