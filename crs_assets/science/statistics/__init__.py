"""Statistics of scores: intervals, paired comparisons, rankings and how sure they are."""

from crs_assets.science.statistics.bootstrap import (
    MacroAurocBootstrap,
    PairedDifference,
    bootstrap_macro_auroc,
    group_bootstrap_counts,
    paired_auroc_difference_interval,
)
from crs_assets.science.statistics.delong import DelongEstimate, delong_covariance, delong_variance
from crs_assets.science.statistics.intervals import (
    percentile_interval,
    seed_bootstrap_indices,
    seed_bootstrap_means,
)
from crs_assets.science.statistics.rank_distribution import (
    clear_winner,
    leading_tier,
    rank_probabilities,
    top_k_probability,
)
from crs_assets.science.statistics.ranking import RankAgreement, rank_agreement
from crs_assets.science.statistics.weighted_auroc import WeightedAuroc

__all__ = [
    "DelongEstimate",
    "MacroAurocBootstrap",
    "PairedDifference",
    "RankAgreement",
    "WeightedAuroc",
    "bootstrap_macro_auroc",
    "clear_winner",
    "delong_covariance",
    "delong_variance",
    "group_bootstrap_counts",
    "leading_tier",
    "paired_auroc_difference_interval",
    "percentile_interval",
    "rank_agreement",
    "rank_probabilities",
    "seed_bootstrap_indices",
    "seed_bootstrap_means",
    "top_k_probability",
]
