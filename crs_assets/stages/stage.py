"""What a stage is, and the one way to bring a partition up to date."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from crs_assets.resources.artifact_store import Manifest, Staging
from crs_assets.resources.bench import Bench
from crs_assets.resources.compute import installed_versions, library_versions, single_threaded
from crs_assets.science.canonical import digest


class RefusedError(ValueError):
    """A partition that must not be recorded: what was found, and what to do about it."""


@dataclass(frozen=True)
class Built:
    """What a build leaves behind beside its files.

    Attributes:
        summary: Small facts for metadata and checks: counts and metrics, never ids.
        data_version: Name of the content where the content names itself, else None.
        timing: Figures of this run (images/s, seconds); shown, never stored with the content.
    """

    summary: dict[str, Any]
    data_version: str | None = None
    timing: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """A partition after ``ensure``: its manifest, and whether it had to be made."""

    parts: tuple[str, ...]
    manifest: Manifest
    made: bool
    timing: dict[str, float]


class Stage(ABC):
    """One kind of artifact.

    Attributes:
        name: The asset's name, and its folder in the store.
        code_version: Raised when the stage's own code changes its values.
        libraries: Distributions whose version can change its values.
        optional_libraries: The same of extras, which may be missing.
        keeps_old_versions: Whether content that a newer recipe replaced stays in the store.
        side_by_side: Whether partitions of one run are made in several processes on a CPU: they are small, and each
            works with single-threaded tensors, so that its bits do not depend on the number of cores.
    """

    name: ClassVar[str]
    code_version: ClassVar[str]
    libraries: ClassVar[tuple[str, ...]] = ()
    optional_libraries: ClassVar[tuple[str, ...]] = ()
    keeps_old_versions: ClassVar[bool] = True
    side_by_side: ClassVar[bool] = False

    @abstractmethod
    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:
        """Every partition that exists in the suite, in the order of its definition; absent cells are left out."""

    def left_out(self, bench: Bench, *parts: str) -> str | None:  # noqa: ARG002
        """Why a partition of the suite does not exist in this stage; None where the catalogue says it, or it exists."""
        return None

    @abstractmethod
    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """What the partition depends on beside code and libraries; None while an upstream partition is missing."""

    @abstractmethod
    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:
        """Write the partition's files into ``staging``.

        Raises:
            RefusedError: If the partition must not be recorded.
        """

    def recipe(self, bench: Bench, *parts: str) -> dict[str, Any] | None:
        """Everything the partition depends on; its digest is the fingerprint."""
        inputs = self.inputs(bench, *parts)
        if inputs is None:
            return None
        return {
            "stage": self.name,
            "partition": list(parts),
            "code_version": self.code_version,
            "libraries": library_versions(*self.libraries) | installed_versions(*self.optional_libraries),
            "inputs": inputs,
        }

    def _is_small(self, bench: Bench) -> bool:
        """Whether it is made with single-threaded operations, alone or beside others: its bits must not tell which."""
        return self.side_by_side and bench.compute.kind == "cpu"

    def is_current(self, bench: Bench, *parts: str) -> bool:
        """Whether the store holds exactly what the recipe would make."""
        recipe = self.recipe(bench, *parts)
        return recipe is not None and bench.store.is_current(bench.key(self.name, *parts), digest(recipe))

    def version(self, bench: Bench, *parts: str) -> str | None:
        """Data version in the store, or None where there is none."""
        manifest = bench.store.peek(bench.key(self.name, *parts))
        return manifest.data_version if manifest else None

    def ensure(self, bench: Bench, *parts: str) -> Outcome:
        """Bring one partition up to date: nothing happens where the store already holds this recipe's content.

        Raises:
            RefusedError: If an upstream partition is missing, or the content must not be recorded.
        """
        recipe = self.recipe(bench, *parts)
        if recipe is None:
            raise RefusedError(
                f"{self.name} {'|'.join(parts)}: an upstream partition is missing; materialize upstream first."
            )
        key, fingerprint = bench.key(self.name, *parts), digest(recipe)
        if bench.store.is_current(key, fingerprint):
            return Outcome(parts, bench.store.open(key).manifest, made=False, timing={})
        with bench.store.write(key, fingerprint) as staging:
            if bench.store.is_current(key, fingerprint) or bench.store.adopt(key, fingerprint):
                return Outcome(parts, bench.store.open(key).manifest, made=False, timing={})
            with single_threaded(torch="torch" in self.libraries) if self._is_small(bench) else nullcontext():
                built = self.build(bench, staging, *parts)
            manifest = staging.commit(
                recipe=recipe,
                provenance=provenance(bench),
                summary=built.summary,
                data_version=built.data_version,
            )
        if not self.keeps_old_versions:
            bench.store.prune(key)
        return Outcome(parts, manifest, made=True, timing=built.timing)


def provenance(bench: Bench) -> dict[str, Any]:
    """What travels with each number beside its recipe."""
    return {
        "suite": bench.suite.id,
        "protocol": bench.suite.protocol.id,
        "phantoms": any(spec.phantom for spec in bench.suite.image_sets.values()),
        "compute": bench.compute.describe(),
        "libraries": library_versions("crs_assets", "numpy", "polars", "scipy", "torch", "timm"),
    }
