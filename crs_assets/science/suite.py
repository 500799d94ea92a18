"""Suites: which data sets and encoders are measured together, under which protocol, against which panel."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from pydantic import Field

from crs_assets.science.datasets.spec import DatasetSpec, load_dataset_spec
from crs_assets.science.encoders.spec import EncoderSpec, load_encoder_spec
from crs_assets.science.protocol import Protocol, load_protocol
from crs_assets.science.suggestion import did_you_mean
from crs_assets.science.toml_models import CatalogError, FrozenModel, read_toml, resolve_extends, validate
from crs_assets.science.transfer import TransferError, mapped_labels

CATALOG_FOLDER = Path(__file__).parent.parent / "catalog"
LOCAL_PANEL = "local"
MAX_TASKS = 100


class SuiteSpec(FrozenModel):
    """One TOML file of ``catalog/suites``."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    title: str
    protocol: str
    readings: tuple[str, ...] = ()
    datasets: tuple[str, ...] = Field(min_length=1)
    encoders: tuple[str, ...] = Field(min_length=1)
    controls: tuple[str, ...] = ()
    shuffled_labels_encoder: str
    panel: str = LOCAL_PANEL
    panel_members: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One (encoder, data set) pair; ``absent`` carries the catalogue's reason, or None where the cell exists."""

    encoder: str
    dataset: str
    absent: str | None


@dataclass(frozen=True)
class Suite:
    """A suite with everything its file names loaded and cross-checked.

    Attributes:
        spec: Its file.
        protocol: The protocol.
        readings: The protocol, and further readings of the same runs.
        datasets: Data sets by id.
        targets: Transfer targets by id.
        encoders: Encoders and controls by id.
        path: Its file, where it was named by its path and not by its id.
    """

    spec: SuiteSpec
    protocol: Protocol
    readings: tuple[Protocol, ...]
    datasets: dict[str, DatasetSpec]
    targets: dict[str, DatasetSpec]
    encoders: dict[str, EncoderSpec]
    path: Path | None = field(default=None, compare=False)

    @property
    def id(self) -> str:
        """The suite's id: prefix of its asset keys, name of its folder in the store."""
        return self.spec.id

    def command(self, words: str) -> str:
        """A ``crs`` command on this suite, as it is typed into a shell: ``run`` gives ``crs run --suite demo``."""
        return f"crs {words} --suite {shlex.quote(str(self.path or self.id))}"

    @cached_property
    def image_sets(self) -> dict[str, DatasetSpec]:
        """Data sets, then transfer targets."""
        return {**self.datasets, **self.targets}

    @property
    def tasks(self) -> list[str]:
        """Every ``<data set>.s<seed>`` in the order of the partitions."""
        return [task_key(dataset, seed) for dataset in self.datasets for seed in self.protocol.data.seeds]

    def target_of(self, dataset: str) -> str | None:
        """The transfer target of a data set, if it has one."""
        return self.datasets[dataset].transfer_target

    def source_of(self, image_set: str) -> str | None:
        """The first data set whose probes are applied to a target; None for a data set."""
        return next(iter(self._sources(image_set)), None)

    def absent_reason(self, encoder: str, image_set: str) -> str | None:
        """Why an encoder has no such cell, or None where there is one; a target goes with the last of its sources."""
        absent = self.encoders[encoder].absent
        of_sources = [absent.get(dataset) for dataset in self._sources(image_set)]
        return absent.get(image_set) or (of_sources[0] if of_sources and all(of_sources) else None)

    def _sources(self, image_set: str) -> list[str]:
        return [dataset for dataset in self.datasets if self.target_of(dataset) == image_set]

    def cells(self, *, controls: bool = False) -> Iterator[Cell]:
        """Every pair of the grid, absent ones included; controls only on request."""
        for encoder, spec in self.encoders.items():
            if spec.role == "control" and not controls:
                continue
            for dataset in self.datasets:
                yield Cell(encoder, dataset, self.absent_reason(encoder, dataset))

    def existing_datasets(self, encoder: str) -> list[str]:
        """Data sets on which the encoder has a cell."""
        return [dataset for dataset in self.datasets if self.absent_reason(encoder, dataset) is None]

    def existing_image_sets(self, encoder: str) -> list[str]:
        """Data sets and targets that the encoder encodes."""
        return [image_set for image_set in self.image_sets if self.absent_reason(encoder, image_set) is None]

    def with_encoders(self, extra: dict[str, EncoderSpec]) -> "Suite":
        """The suite with further encoders behind its own; an id that it already has is an error.

        Raises:
            CatalogError: If an id is taken.
        """
        taken = sorted(set(extra) & set(self.encoders))
        if taken:
            raise CatalogError(f"suite {self.id} already has {taken}; an encoder's id is never reused, choose another.")
        return replace(self, encoders={**self.encoders, **extra})


def task_key(dataset: str, seed: int) -> str:
    """The partition key of a data set and seed: ``isic2019.s0``."""
    return f"{dataset}.s{seed}"


def parse_task(task: str) -> tuple[str, int]:
    """The data set and seed of a task key."""
    dataset, _, seed = task.rpartition(".s")
    return dataset, int(seed)


def find_entry(kind: str, name: str, user_catalog: Path | None = None) -> Path:
    """The TOML file of a catalogue entry; a user's file of that name may not shadow a shipped one.

    Args:
        kind: ``suites``, ``protocols``, ``datasets`` or ``encoders``.
        name: The entry's id.
        user_catalog: A folder with the same sub-folders, for entries of one's own.

    Raises:
        CatalogError: If no such entry exists, or two do.
    """
    found = [path for folder in _folders(kind, user_catalog) if (path := folder / f"{name}.toml").is_file()]
    if len(found) > 1:
        raise CatalogError(f"{kind}/{name}.toml exists in the shipped and in your catalogue; rename yours.")
    if not found:
        known = entry_ids(kind, user_catalog)
        meant = did_you_mean(name, known) or f" Known: {', '.join(known)}."
        raise CatalogError(f"no {kind} entry {name!r}.{meant} Or add {name}.toml to your catalogue.")
    return found[0]


def entry_ids(kind: str, user_catalog: Path | None = None) -> list[str]:
    """Ids of the shipped entries of a kind and of the user's own, sorted; arguments as of ``find_entry``."""
    folders = _folders(kind, user_catalog)
    return sorted({path.stem for folder in folders if folder.is_dir() for path in folder.glob("*.toml")})


def _folders(kind: str, user_catalog: Path | None) -> list[Path]:
    return [CATALOG_FOLDER / kind, *([user_catalog / kind] if user_catalog else [])]


def load_suite(source: str | Path, user_catalog: Path | None = None) -> Suite:
    """Load a suite by id or path, with every entry it names.

    Raises:
        CatalogError: Naming every entry that is missing or contradictory.
    """
    is_path = str(source).endswith(".toml")
    path = Path(source) if is_path else find_entry("suites", str(source), user_catalog)
    document = resolve_extends(read_toml(path), lambda parent: find_entry("suites", parent, user_catalog))
    spec = validate(SuiteSpec, document, source=path.name)
    find_protocol = partial(find_entry, "protocols", user_catalog=user_catalog)
    protocol = load_protocol(spec.protocol, find_protocol)
    datasets = {name: load_dataset_spec(find_entry("datasets", name, user_catalog)) for name in spec.datasets}
    target_names = dict.fromkeys(d.transfer_target for d in datasets.values() if d.transfer_target)
    suite = Suite(
        spec=spec,
        protocol=protocol,
        readings=(protocol, *(load_protocol(name, find_protocol) for name in spec.readings)),
        datasets=datasets,
        targets={name: load_dataset_spec(find_entry("datasets", name, user_catalog)) for name in target_names},
        encoders={
            name: load_encoder_spec(find_entry("encoders", name, user_catalog))
            for name in (*spec.encoders, *spec.controls)
        },
        path=path.resolve() if is_path else None,
    )
    problems = list(_contradictions(suite, path))
    if problems:
        raise CatalogError("\n".join([f"{path.name}: {len(problems)} problem(s):", *(f"  {p}" for p in problems)]))
    return suite


def _contradictions(suite: Suite, path: Path) -> Iterator[str]:
    if suite.spec.id != path.stem:
        yield f"the file is named {path.stem!r} but its id is {suite.spec.id!r}; make them equal."
    yield from _wrong_roles(suite)
    for reading in suite.readings[1:]:
        if _without_axes(reading) != _without_axes(suite.protocol):
            yield f"readings: {reading.id} differs from {suite.protocol.id} beyond [axes]; its runs would be others."
    if len(suite.tasks) >= MAX_TASKS:
        yield f"{len(suite.tasks)} data set x seed partitions; Dagster skips data versions from {MAX_TASKS} on."


def _wrong_roles(suite: Suite) -> Iterator[str]:
    spec = suite.spec
    listed = [("encoders", name, "encoder") for name in spec.encoders]
    listed += [("controls", name, "control") for name in spec.controls]
    for place, name, role in listed:
        if suite.encoders[name].role != role:
            yield f"{place}: {name} is of role {suite.encoders[name].role!r}; this list is for {role}s."
    for name in (*spec.panel_members, spec.shuffled_labels_encoder):
        if name not in spec.encoders:
            meant = did_you_mean(name, spec.encoders)
            yield f"panel_members, shuffled_labels_encoder: {name} is not among the suite's encoders.{meant}"
    for name, dataset in suite.datasets.items():
        if dataset.role != "source":
            yield f"datasets: {name} is a transfer target; it comes in through its source's transfer_target."
        elif dataset.transfer_target:
            try:
                mapped_labels(dataset, suite.targets[dataset.transfer_target])
            except TransferError as error:
                yield f"datasets: {error}"


def _without_axes(protocol: Protocol) -> Protocol:
    return protocol.model_copy(update={"id": "", "title": "", "axes": None})
