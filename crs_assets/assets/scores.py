"""Groups ``scores`` and ``report``: axis profiles, the frozen panel, the score, the leaderboard."""

import dagster as dg

from crs_assets.assets import checks
from crs_assets.assets.describe import describe_crs, describe_leaderboard, describe_panel, describe_profile
from crs_assets.assets.factory import Declared, Shared, stage_assets
from crs_assets.assets.recording import Recorded
from crs_assets.partitions import ENCODER, Partitions
from crs_assets.stages.leaderboard import Leaderboard
from crs_assets.stages.panel import ReferencePanel
from crs_assets.stages.scores import AxisProfile, Crs

GROUP = "scores"


def axis_profile(partitions: Partitions) -> dg.AssetsDefinition:
    """The four axes of each encoder."""
    prefix = partitions.suite.id
    runs = dg.AssetDep(
        dg.AssetKey([prefix, "run_metrics"]), partition_mapping=dg.MultiToSingleDimensionPartitionMapping(ENCODER)
    )
    recorded = Recorded(
        AxisProfile(), dg.AssetKey([prefix, "axis_profile"]), describe_profile, (checks.COMPLETE, checks.TWIN)
    )
    declared = Declared(recorded, GROUP, frozenset({"json"}), (runs,))
    return stage_assets(partitions.suite, Shared("axis_profile", partitions.encoder), [declared])


def reference_panel(partitions: Partitions) -> dg.AssetsDefinition:
    """The frozen panel: a file, with no edge from the profiles that it was once made of."""
    recorded = Recorded(ReferencePanel(), dg.AssetKey([partitions.suite.id, "reference_panel"]), describe_panel)
    return stage_assets(partitions.suite, Shared("reference_panel"), [Declared(recorded, GROUP, frozenset({"json"}))])


def crs(partitions: Partitions) -> dg.AssetsDefinition:
    """The score of each encoder."""
    prefix = partitions.suite.id
    deps = (dg.AssetDep(dg.AssetKey([prefix, "axis_profile"])), dg.AssetDep(dg.AssetKey([prefix, "reference_panel"])))
    declared = Declared(Recorded(Crs(), dg.AssetKey([prefix, "crs"]), describe_crs), GROUP, frozenset({"json"}), deps)
    return stage_assets(partitions.suite, Shared("crs", partitions.encoder, follows_same_partitions=True), [declared])


def leaderboard(partitions: Partitions) -> dg.AssetsDefinition:
    """Every encoder's score, ranked where complete."""
    prefix = partitions.suite.id
    deps = tuple(dg.AssetDep(dg.AssetKey([prefix, name])) for name in ("crs", "axis_profile", "null_controls"))
    recorded = Recorded(
        Leaderboard(),
        dg.AssetKey([prefix, "leaderboard"]),
        describe_leaderboard,
        (checks.ABOVE_NULLS, checks.DATASETS_RANK, checks.ALL_RANKED),
    )
    declared = Declared(recorded, "report", frozenset({"polars", "html"}), deps)
    return stage_assets(partitions.suite, Shared("leaderboard"), [declared])
