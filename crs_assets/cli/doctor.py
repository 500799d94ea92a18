"""``crs doctor``: what this machine has, what the suite needs, and the cure for each gap."""

import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from crs_assets.cli.session import dropin_problems, mirror_problems, open_bench
from crs_assets.resources.artifact_store import StoreError
from crs_assets.resources.bench import Bench
from crs_assets.science.datasets import DatasetSpec, check_dataset
from crs_assets.science.encoders import AbsentWeightsError, EncoderSpec, WeightsError
from crs_assets.science.encoders.hub_errors import HubUnreachableError
from crs_assets.science.encoders.mirror import MirrorEntry, mirror_listing
from crs_assets.science.encoders.releases import Survey, compare
from crs_assets.science.encoders.weights import INDEX_SUFFIX, download_command
from crs_assets.science.images import check_golden
from crs_assets.science.panel import PanelError
from crs_assets.stages.data import unscorable_datasets
from crs_assets.stages.panel_in_force import active_panel, scoring_command

UNSCORABLE = (
    "no class has enough positives and negatives to be scored, so nothing is encoded for it. Add images, or join rare "
    "classes; to count them:"
)
NARROWEST = 80
COMMAND_INDENT = " " * 10


@dataclass(frozen=True)
class Finding:
    """One line of the examination.

    Attributes:
        topic: What was looked at.
        text: What was found, and the cure where something is missing.
        level: ``ok``, ``note`` or ``missing``.
        commands: Shell commands that mend it.
    """

    topic: str
    text: str
    level: str = "ok"
    commands: tuple[str, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether a full run of the suite would fail."""
        return self.level == "missing"

    def lines(self, width: int) -> str:
        """The finding for a terminal: words wrapped, paths and options whole, each command on one line to be copied."""
        head = f"{self.level:<8}{self.topic:<42} "
        text = textwrap.fill(
            self.text,
            max(width, NARROWEST),
            initial_indent=head,
            subsequent_indent=" " * len(head),
            break_long_words=False,
            break_on_hyphens=False,
        )
        return "\n".join([text, *(f"{COMMAND_INDENT}{command}" for command in self.commands)])


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
    for problem in mirror_problems(bench):
        yield Finding("weights mirror", problem, "missing")
    specs = bench.suite.encoders
    listing = {entry.encoder: entry for entry in mirror_listing(specs.values(), bench.weights.mirror, _survey(bench))}
    for name, spec in specs.items():
        yield _weights_of(bench, spec, listing.get(name))
        for dataset, reason in spec.absent.items():
            yield Finding(f"encoder {name}", f"no cell on {dataset}: {reason}", "note")


def _survey(bench: Bench) -> Survey | None:
    """What the hub says about sizes and current commits; it is asked only where the site lets runs download."""
    if not bench.weights.download:
        return None
    try:
        return compare(bench.suite.encoders.values(), bench.weights.hub)
    except HubUnreachableError:
        return None


def _weights_of(bench: Bench, spec: EncoderSpec, entry: MirrorEntry | None) -> Finding:
    topic = f"encoder {spec.id}"
    unverified = f"; unverified: {'; '.join(spec.unverified)}" if spec.unverified else ""
    try:
        bench.weights.hashes(spec)
    except AbsentWeightsError as error:
        if entry and not entry.present:
            return Finding(topic, f"{entry.line()}{unverified}. {_way(entry)}", "missing", (_fetching(bench, entry),))
        gate = ", gated: accept the terms at its source" if spec.gated else ""
        terms = f"Licence: {spec.licence}{gate}{unverified}"
        return Finding(topic, f"{terms}. {error.what}", "missing", error.commands)
    except WeightsError as error:
        return Finding(topic, f"{error} Licence: {spec.licence}{unverified}", "missing")
    newest = f"; its current commit is {entry.latest}" if entry and entry.latest not in (None, entry.revision) else ""
    return Finding(topic, f"{spec.licence}{unverified}{newest}", "note" if unverified else "ok")


def _way(entry: MirrorEntry) -> str:
    if not entry.revision and entry.files[-1].endswith(INDEX_SUFFIX):
        return (
            "With access to the hub, all shards (once the index is there, only those that are needed are named here):"
        )
    return "With access to the hub:"


def _fetching(bench: Bench, entry: MirrorEntry) -> str:
    if entry.revision:
        return f"{bench.suite.command('weights fetch')} --encoder {entry.encoder}"
    return download_command(entry.repo, entry.files, entry.folder)


def _dropins(bench: Bench) -> Iterator[Finding]:
    for problem in dropin_problems(bench):
        yield Finding("added encoder", problem, "missing")


def _data(bench: Bench) -> Iterator[Finding]:
    unscorable = unscorable_datasets(bench)
    for name, spec in bench.suite.image_sets.items():
        root = bench.roots.path(name)
        if root.is_dir():
            yield from _tables(bench, spec, root, is_unscorable=name in unscorable)
        elif spec.phantom:
            yield Finding(f"data set {name}", f"procedural phantoms, written to {root} when needed")
        else:
            yield Finding(
                f"data set {name}",
                f"no folder {root}; put it there or set [data_roots] {name} in {bench.home.path / 'config.toml'}. "
                f"Access: {spec.access}. {spec.obtain} Licence: {spec.licence}",
                "missing",
                (f"crs dataset fetch {name}",) if spec.zenodo else (),
            )


def _tables(bench: Bench, spec: DatasetSpec, root: Path, *, is_unscorable: bool) -> Iterator[Finding]:
    """What the tables tell, without opening an image; what only the images tell is known where they were indexed."""
    topic = f"data set {spec.id}"
    check = check_dataset(root, spec, protocol=bench.suite.protocol, images=False)
    problems = check.problems or ((UNSCORABLE,) if is_unscorable else ())
    if problems:
        yield from (Finding(topic, problem, "missing") for problem in problems[:-1])
        count = f"crs dataset check {spec.id} --protocol {bench.suite.protocol.id}"
        yield Finding(topic, problems[-1], "missing", (count,))
    else:
        unscored = "; can be measured, but not scored" if check.measured_only else ""
        yield Finding(topic, f"{root}; {spec.licence}{unscored}", "note" if unscored else "ok")
    yield from (Finding(topic, f"left out: {exclusion}", "note") for exclusion in check.exclusions)
    yield from (Finding(topic, warning, "note") for warning in check.warnings)


def _panel(bench: Bench) -> Iterator[Finding]:
    try:
        panel = active_panel(bench)
    except PanelError as error:
        yield Finding("reference panel", str(error), "missing")
        return
    if panel:
        yield Finding("reference panel", f"{panel['name']}, {len(panel['encoders'])} encoders")
    else:
        yield Finding("reference panel", "none yet; make and freeze one:", "note", (scoring_command(bench),))
