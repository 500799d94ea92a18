"""The code location: the only module that knows the whole graph.

``build_defs("paper")`` is a suite's definitions; ``workspace.yaml`` loads each suite by naming it as an attribute of
this module (``demo``, ``paper``, or a suite of one's own).
"""

import warnings
from pathlib import Path

import dagster as dg

from crs_assets.assets.graph import build_assets
from crs_assets.automation.releases import build_release_sensor
from crs_assets.automation.triggers import build_job, build_schedule, build_sensor
from crs_assets.partitions import build_partitions
from crs_assets.resources.bench import default_resources
from crs_assets.resources.home import Home, home_path
from crs_assets.science.suite import find_entry, load_suite
from crs_assets.science.toml_models import CatalogError

DEFAULT_SUITE = "demo"


def build_defs(suite: str | Path | None = None, *, home: Path | None = None, **resources: object) -> dg.Definitions:
    """The definitions of one suite.

    Encoders are no part of them: each is a partition, added while the code location runs.

    Args:
        suite: Suite id, or path of a suite's TOML file; the demonstration by default.
        home: CRS_HOME; from the environment by default.
        resources: Replace a default resource by its key.

    Raises:
        CatalogError: If the suite or an entry it names cannot be used.
    """
    place = Home(home or home_path())
    loaded = load_suite(suite or DEFAULT_SUITE, place.catalog)
    bound = {**default_resources(suite or DEFAULT_SUITE, place), **resources}
    with warnings.catch_warnings():
        # Backfill policies and multi-partition mappings are marked beta in Dagster; both are used on purpose.
        warnings.simplefilter("ignore", dg.BetaWarning)
        partitions = build_partitions(loaded)
        assets = build_assets(partitions)
        job = build_job(assets, bound, partitions)
        return dg.Definitions(
            assets=assets,
            jobs=[job],
            sensors=[build_sensor(job, partitions), build_release_sensor()],
            schedules=[build_schedule(job)],
            resources=bound,
            executor=dg.in_process_executor,
            metadata={"suite": loaded.id, "protocol": loaded.protocol.id},
        )


def __getattr__(name: str) -> dg.Definitions:
    # One attribute per suite, made when a code location asks for it: nothing is built at import but `defs`.
    try:
        find_entry("suites", name, Home(home_path()).catalog)
    except CatalogError as error:
        raise AttributeError(f"module {__name__} has no attribute {name!r}: {error}") from None
    return build_defs(name)


defs = build_defs()
