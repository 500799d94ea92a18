"""``crs doctor``: what this machine has, what the suite needs, and the cure for each gap."""

import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from crs_assets.cli.session import dropin_problems, open_bench
from crs_assets.resources.artifact_store import StoreError
from crs_assets.resources.bench import Bench
from crs_assets.science.encoders import WeightsError
from crs_assets.science.images import check_golden
from crs_assets.science.panel import PanelError
from crs_assets.stages.data import unscorable_datasets
from crs_assets.stages.scores import active_panel

UNSCORABLE = (
    "no class has enough positives and negatives to be scored, so nothing is encoded for it. "
    "`crs dataset check` counts them; add images, or join rare classes."
)


@dataclass(frozen=True)
class Finding:
    """One line of the examination.

    Attributes:
        topic: What was looked at.
        text: What was found, and the cure where something is missing.
        level: ``ok``, ``note`` or ``missing``.
    """

    topic: str
    text: str
    level: str = "ok"

    @property
    def blocks(self) -> bool:
        """Whether a full run of the suite would fail."""
        return self.level == "missing"

    def line(self, width: int) -> str:
        """The finding wrapped to a terminal."""
        head = f"{self.level:<8}{self.topic:<42} "
        return textwrap.fill(self.text, max(width, 80), initial_indent=head, subsequent_indent=" " * len(head))


def examine(suite: str) -> list[Finding]:
    """Look at everything a full run of the suite needs."""
    bench = open_bench(suite, device=True)
    machine = list(_machine(bench))
    if any(finding.blocks for finding in machine):
        # Without a folder to write to, nothing further can be looked at.
        return machine
    return [*machine, *_pixels(), *_weights(bench), *_dropins(bench), *_data(bench), *_panel(bench)]


def _machine(bench: Bench) -> Iterator[Finding]:
    facts = bench.compute.describe()
    yield Finding("device", ", ".join(f"{name} {value}" for name, value in facts.items()))
    yield Finding("state", str(bench.home.path))
    try:
        bench.store.check_writable()
        free = shutil.disk_usage(bench.store.root).free
        yield Finding("disk", f"{free / 1e9:.1f} GB free at {bench.store.root}")
    except StoreError as error:
        yield Finding("disk", str(error), "missing")


def _pixels() -> Iterator[Finding]:
    mismatches = check_golden()
    for mismatch in mismatches:
        yield Finding(f"pixels: {mismatch.part}", mismatch.message, "note")
    if not mismatches:
        yield Finding("pixels", "decoding and degradations give the recorded pixels")


def _weights(bench: Bench) -> Iterator[Finding]:
    for name, spec in bench.suite.encoders.items():
        gate = ", gated: accept the terms at its source" if spec.gated else ""
        unverified = f"; unverified: {'; '.join(spec.unverified)}" if spec.unverified else ""
        try:
            bench.weights.hashes(spec)
            yield Finding(f"encoder {name}", f"{spec.licence}{unverified}", "note" if unverified else "ok")
        except WeightsError as error:
            yield Finding(f"encoder {name}", f"{error} Licence: {spec.licence}{gate}{unverified}", "missing")
        for dataset, reason in spec.absent.items():
            yield Finding(f"encoder {name}", f"no cell on {dataset}: {reason}", "note")


def _dropins(bench: Bench) -> Iterator[Finding]:
    for problem in dropin_problems(bench):
        yield Finding("added encoder", problem, "missing")


def _data(bench: Bench) -> Iterator[Finding]:
    for name in unscorable_datasets(bench):
        yield Finding(f"data set {name}", UNSCORABLE, "missing")
    for name, spec in bench.suite.image_sets.items():
        root = bench.roots.path(name)
        if spec.phantom:
            yield Finding(f"data set {name}", f"procedural phantoms, written to {root} when needed")
        elif root.is_dir():
            yield Finding(f"data set {name}", f"{root}; {spec.licence}")
        else:
            yield Finding(
                f"data set {name}",
                f"no folder {root}; put it there or set [data_roots] {name} in {bench.home.path / 'config.toml'}. "
                f"Access: {spec.access}. Licence: {spec.licence}",
                "missing",
            )


def _panel(bench: Bench) -> Iterator[Finding]:
    try:
        panel = active_panel(bench)
    except PanelError as error:
        yield Finding("reference panel", str(error), "missing")
        return
    yield (
        Finding("reference panel", f"{panel['name']}, {len(panel['encoders'])} encoders")
        if panel
        else Finding("reference panel", f"none yet: crs panel freeze --suite {bench.suite.id}", "note")
    )
