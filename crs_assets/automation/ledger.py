"""What the Dagster instance has on record, compared with what the store holds."""

from collections.abc import Mapping

import dagster as dg

from crs_assets.assets.recording import DATA_VERSION_TAG
from crs_assets.partitions import partition_key
from crs_assets.resources.bench import Bench
from crs_assets.stages.stage import Stage


class Ledger:
    """The data version of the latest event of each partition: one query per asset.

    Args:
        instance: The Dagster instance.
        suite: Id of the suite.
    """

    def __init__(self, instance: dg.DagsterInstance, suite: str) -> None:
        self._instance = instance
        self._suite = suite
        self._versions: dict[str, Mapping[str, str | None]] = {}

    def has(self, bench: Bench, stage: Stage, parts: tuple[str, ...]) -> bool:
        """Whether what the store holds of a partition is what was last recorded of it."""
        if stage.name not in self._versions:
            self._versions[stage.name] = self._read(dg.AssetKey([self._suite, stage.name]), partitioned=bool(parts))
        return self._versions[stage.name].get(partition_key(parts)) == stage.version(bench, *parts)

    def forget(self, stage: Stage) -> None:
        """Read an asset's events anew when next asked."""
        self._versions.pop(stage.name, None)

    def _read(self, key: dg.AssetKey, *, partitioned: bool) -> Mapping[str, str | None]:
        if partitioned:
            tags = self._instance.event_log_storage.get_latest_tags_by_partition(
                key, dg.DagsterEventType.ASSET_MATERIALIZATION, [DATA_VERSION_TAG]
            )
            return {partition: values.get(DATA_VERSION_TAG) for partition, values in tags.items()}
        record = self._instance.get_latest_materialization_event(key)
        event = record.asset_materialization if record else None
        return {"": (event.tags or {}).get(DATA_VERSION_TAG)} if event else {}
