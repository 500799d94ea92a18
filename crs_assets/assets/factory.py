"""One factory for all assets: a declaration per stage, one body, no exceptions to remember."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from crs_assets.assets.recording import Recorded, materialize
from crs_assets.resources.bench import BenchResource
from crs_assets.science.suite import Suite

MAX_PARTITIONS_PER_RUN = 10_000


@dataclass(frozen=True)
class Declared:
    """How a stage appears in the graph.

    Attributes:
        recorded: The stage, how it is shown, what is asked of it.
        group: Group in the lineage.
        kinds: At most three, shown as icons.
        deps: Upstream assets with the mappings between their partitions and this one's.
    """

    recorded: Recorded
    group: str
    kinds: frozenset[str]
    deps: tuple[dg.AssetDep, ...] = ()

    def spec(self, suite: Suite) -> dg.AssetSpec:
        """The asset as Dagster sees it."""
        stage = self.recorded.stage
        phantoms = any(spec.phantom for spec in suite.image_sets.values())
        note = "\n\n**Procedural phantoms, not medical images.**" if phantoms else ""
        return dg.AssetSpec(
            self.recorded.key,
            deps=self.deps,
            description=f"{(type(stage).__doc__ or '').strip()}{note}",
            group_name=self.group,
            kinds=set(self.kinds),
            code_version=stage.code_version,
            skippable=True,
            tags={"crs/suite": suite.id, "crs/protocol": suite.protocol.id},
        )


@dataclass(frozen=True)
class Shared:
    """What assets made together share.

    Attributes:
        name: Of the step.
        partitions_def: Their partitioning.
        pool: Whose limit their runs count against.
        follows_same_partitions: An upstream asset has the same partitioning. Dagster would put both into one run of a
            backfill, and skip this one there, because the other logs its events itself; so it gets runs of its own.
    """

    name: str
    partitions_def: dg.PartitionsDefinition[Any] | None = None
    pool: str | None = None
    follows_same_partitions: bool = False

    @property
    def backfill_policy(self) -> dg.BackfillPolicy | None:
        """One run for all partitions; of another kind than the upstream's where they must not share a run."""
        if self.partitions_def is None:
            return None
        if self.follows_same_partitions:
            return dg.BackfillPolicy.multi_run(MAX_PARTITIONS_PER_RUN)
        return dg.BackfillPolicy.single_run()


def stage_assets(suite: Suite, shared: Shared, declared: Sequence[Declared]) -> dg.AssetsDefinition:
    """Assets that are brought up to date together, partition by partition, in the order given."""
    recorded = tuple(entry.recorded for entry in declared)

    @dg.multi_asset(
        name=f"{suite.id.replace('-', '_')}__{shared.name}",
        specs=[entry.spec(suite) for entry in declared],
        check_specs=[check.spec(entry.key) for entry in recorded for check in entry.checks],
        partitions_def=shared.partitions_def,
        backfill_policy=shared.backfill_policy,
        pool=shared.pool,
        can_subset=False,
    )
    def stage(context: dg.AssetExecutionContext, bench: BenchResource) -> Iterator[Any]:
        yield from materialize(context, bench.resolve(), *recorded)

    return stage
