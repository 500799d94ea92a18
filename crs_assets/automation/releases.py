"""Sensor: a new release of an encoder's weights is proposed as a new catalogue entry; no pinned revision ever moves."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from crs_assets.resources.artifact_store import write_atomic
from crs_assets.resources.bench import BenchResource
from crs_assets.resources.home import Home
from crs_assets.science.encoders.hub_errors import Hub, HubUnreachableError
from crs_assets.science.encoders.releases import compare, encoder_toml, new_releases, propose
from crs_assets.science.suite import Suite
from crs_assets.science.toml_models import CatalogError

PROPOSED = "proposed"
DAY_SECONDS = 24 * 60 * 60


def build_release_sensor() -> dg.SensorDefinition:
    """Asks the hub once a day; it launches nothing, and accepting a proposal is a person's decision."""

    @dg.sensor(
        name="new_releases",
        minimum_interval_seconds=DAY_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Proposes an entry in CRS_HOME/proposed for every new release of an encoder's weights.",
    )
    def new_releases(context: dg.SensorEvaluationContext, bench: BenchResource) -> dg.SkipReason:
        # Not the whole bench: settling on a device imports torch, which a sensor has no use for.
        home = Home(Path(bench.home))
        try:
            lines = list(propose_releases(home.load_suite(bench.suite), home, bench.weights.resolve().hub))
        except (CatalogError, HubUnreachableError) as error:
            return dg.SkipReason(f"nothing was looked at: {error}")
        for line in lines:
            context.log.info(line)
        return dg.SkipReason("\n".join(lines) or "no new release")

    return new_releases


def propose_releases(suite: Suite, home: Home, hub: Hub) -> Iterator[str]:
    """Write a proposal for each new release that has none yet; one line for each, and for each refusal.

    Raises:
        HubUnreachableError: Without an answer from the hub.
    """
    survey = compare(suite.encoders.values(), hub)
    for reason in survey.refused.values():
        yield f"not looked at: {reason}"
    folder = home.path / PROPOSED
    for release in new_releases(suite.encoders, survey):
        entry = propose(suite.encoders[release.encoder], release)
        path = folder / f"{entry.id}.toml"
        if path.exists():
            yield f"{release.encoder}: revision {release.latest} is already proposed in {path}"
            continue
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(path, encoder_toml(entry))
        yield (
            f"{release.encoder}: revision {release.latest} of {release.date or 'unknown date'} is proposed in {path}; "
            f"check it, then: {suite.command(f'encoder add {shlex.quote(str(path))}')}"
        )
