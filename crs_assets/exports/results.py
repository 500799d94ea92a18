"""What is stored of a suite's results, as plain tables and documents: all that an export is made from."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from crs_assets.science.suite import Suite

CONTROL = "control"
NULL = "null"


class ExportError(ValueError):
    """Something that cannot be exported, or not to there; the message says what to do."""


@dataclass(frozen=True)
class ImageSetFacts:
    """What is known of an image set beside its catalogue entry.

    Attributes:
        index: Digest of its index.
        counts: ``kind``, ``name``, ``count`` (text) of images read, excluded, quarantined and used.
        classes: As ``suppression.count_classes`` makes it, of every image that is used.
        roles: Split -> smallest and largest number of its images over the seeds.
    """

    index: str
    counts: pl.DataFrame
    classes: pl.DataFrame
    roles: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class SuiteResults:
    """A suite's results.

    Attributes:
        suite: The suite.
        panel: Name of the reference panel that scores were taken against; empty where there is none.
        runs: Rows of ``run_metrics``, of the null controls and of the control probes, with ``asset``, which names where
            they are kept, and ``package_version``.
        further_runs: The same of the published probes under degradations beside the score; empty where there are none.
        depths: Rows of the depth sweep, with ``package_version``; empty where there are none.
        class_runs: Rows per run and class of ``run_metrics``, with ``package_version``.
        test_classes: As ``suppression.count_classes`` makes it, of the evaluated images, with ``dataset`` and
            ``at_target``.
        profiles: Encoder -> axis profile, with ``package_version``.
        scores: Encoder -> published score, with ``package_version``.
        image_sets: Image set -> its facts.
    """

    suite: Suite
    panel: str
    runs: pl.DataFrame
    further_runs: pl.DataFrame
    depths: pl.DataFrame
    class_runs: pl.DataFrame
    test_classes: pl.DataFrame
    profiles: Mapping[str, Mapping[str, Any]]
    scores: Mapping[str, Mapping[str, Any]]
    image_sets: Mapping[str, ImageSetFacts]

    def role(self, name: str) -> str:
        """``encoder``, ``control``, or ``null`` for what is no encoder at all (metadata only, shuffled labels)."""
        return self.suite.encoders[name].role if name in self.suite.encoders else NULL

    @property
    def encoders(self) -> list[str]:
        """Encoders that have a profile, controls left out, in the suite's order."""
        return [name for name, spec in self.suite.encoders.items() if spec.role != CONTROL and name in self.profiles]

    @property
    def has_phantoms(self) -> bool:
        """Whether any image is a procedural phantom."""
        return any(spec.phantom for spec in self.suite.image_sets.values())

    def state(self, encoder: str, dataset: str) -> str:
        """``complete``, or why a cell has no score: what the score says, else the profile, else that nothing ran."""
        if reason := self.suite.absent_reason(encoder, dataset):
            return f"absent: {reason}"
        for documents in (self.scores, self.profiles):
            if encoder in documents and dataset in documents[encoder]["coverage"]:
                return str(documents[encoder]["coverage"][dataset])
        return "missing: not run"
