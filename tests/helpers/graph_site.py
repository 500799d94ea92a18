"""A site for tests of the graph: the tiny suite of ``tiny_suite``, cut down, and run once through Dagster."""

import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import dagster as dg

from crs_assets.automation.planner import ALL, Selection
from crs_assets.automation.runner import Runner, RunSummary
from crs_assets.cli.session import open_instance
from crs_assets.definitions import build_defs
from crs_assets.resources.bench import Bench, default_resources
from crs_assets.resources.home import Home

SUITE = "small"
PROTOCOL = """
extends = "tiny-v1"
id = "small-v1"
title = "For tests of the graph"
perturbations = [{ id = "contrast", severities = [3], strengths = [0.25] }]
[data]
fractions = [0.5, 1.0]
[statistics]
replicates = 50
"""
# vit-d has no cell on tiny-chest; vit-c is there to be added.
SUITE_FILE = """
id = "{suite}"
title = "For tests of the graph"
protocol = "small-v1"
datasets = ["tiny-skin", "tiny-chest"]
encoders = ["vit-a", "vit-b", "vit-d"]
shuffled_labels_encoder = "vit-a"
panel = "local"
panel_members = ["vit-a", "vit-b"]
"""
SKIN, CHEST, TARGET = "tiny-skin", "tiny-chest", "tiny-chest-b"


@dataclass(frozen=True)
class Site:
    """A CRS_HOME with its suite's definitions, and ways to run it."""

    home: Path
    tiny: ModuleType
    suite: str = SUITE

    @property
    def defs(self) -> dg.Definitions:
        return build_defs(self.suite, home=self.home)

    @property
    def job(self) -> dg.JobDefinition:
        return self.defs.resolve_implicit_global_asset_job_def()

    @property
    def resources(self) -> dict[str, object]:
        return default_resources(self.suite, Home(self.home))

    @property
    def bench(self) -> Bench:
        with dg.build_resources({"bench": self.resources["bench"]}) as built:
            return built.bench.resolve()

    @contextmanager
    def instance(self) -> Iterator[dg.DagsterInstance]:
        with open_instance(Home(self.home)) as instance:
            yield instance

    def run(self, selection: Selection = ALL, *, freeze: bool = False) -> RunSummary:
        with self.instance() as instance:
            return Runner(instance, self.job, self.bench).run(selection, freeze_if_missing=freeze)

    def key(self, asset: str) -> dg.AssetKey:
        return dg.AssetKey([self.suite, asset])

    def materialize(
        self, instance: dg.DagsterInstance, assets: list[str], first: str, last: str | None = None
    ) -> dg.ExecuteInProcessResult:
        """What the UI launches for a range of partitions."""
        tags = {
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last or first,
        }
        return self.job.execute_in_process(
            asset_selection=[self.key(asset) for asset in assets],
            instance=instance,
            tags=tags,
            raise_on_error=False,
        )

    def add(self, encoder: str, text: str | None = None) -> None:
        """Drop an encoder's file into the suite's folder."""
        folder = self.home / "encoders" / self.suite
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{encoder}.toml").write_text(text if text is not None else self.tiny.network_entry(encoder))

    def publish(self, encoder: str, seed: int) -> None:
        """Put weights of an encoder into the mirror, over what is there."""
        self.tiny.write_network(self.home, encoder, seed)

    def files(self) -> dict[str, bytes]:
        """Every file of the store in force, by path."""
        root = self.home / "artifacts"
        return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def events(instance: dg.DagsterInstance, suite: str = SUITE) -> dict[tuple[str, str], int]:
    """(asset, partition) -> place of its latest materialization in the event log."""
    found = {}
    for key in instance.all_asset_keys():
        if key.path[0] != suite:
            continue
        latest = instance.event_log_storage.get_latest_storage_id_by_partition(
            key, dg.DagsterEventType.ASSET_MATERIALIZATION
        )
        record = instance.get_latest_data_version_record(key)
        found |= {(key.path[1], str(partition)): place for partition, place in latest.items()}
        if not latest and record:
            found[key.path[1], ""] = record.storage_id
    return found


@lru_cache
def _made(tiny: ModuleType, *, made: bool) -> Path:
    """Made once per test process: a run through Dagster takes seconds."""
    home = Path(tempfile.mkdtemp(prefix="graph-site-")) / "home"
    if not made:
        _write(home, tiny)
        return home
    logging.getLogger("dagster").setLevel(logging.CRITICAL)
    shutil.copytree(_made(tiny, made=False), home)
    summary = Site(home, tiny).run(freeze=True)
    assert not summary.waiting, summary.waiting
    assert not summary.failed, summary.failed
    return home


def _write(home: Path, tiny: ModuleType) -> None:
    tiny.write_home(home)
    catalogue = home / "catalog"
    # What is added in a test must not be in the catalogue already.
    (catalogue / "encoders" / "vit-c.toml").unlink()
    (catalogue / "suites" / "tiny.toml").unlink()
    (catalogue / "suites" / f"{SUITE}.toml").write_text(SUITE_FILE.format(suite=SUITE))
    (catalogue / "protocols" / "small-v1.toml").write_text(PROTOCOL)
    (home / "config.toml").write_text('[compute]\ndevice = "cpu"\nbatch_size = 8\nworkers = 1\nthreads = 1\nfits = 1\n')


def copy_site(target: Path, tiny: ModuleType, *, made: bool = True) -> Site:
    """A private copy; dates of files are kept, because they are part of what decides whether work is needed."""
    shutil.copytree(_made(tiny, made=made), target)
    return Site(target, tiny)
