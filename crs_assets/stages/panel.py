"""The frozen reference panel as a stage: a file that scores are taken against, with no edge from its members."""

import shutil
from collections.abc import Iterator
from typing import Any

from crs_assets.resources.artifact_store import Staging
from crs_assets.resources.bench import Bench
from crs_assets.stages.panel_in_force import active_panel, panel_path, require_panel
from crs_assets.stages.stage import Built, Stage

PANEL_FILE = "panel.json"


class ReferencePanel(Stage):
    """The frozen panel that scores are taken against: written by `crs panel freeze`, verified, never recomputed."""

    name = "reference_panel"
    code_version = "1"

    def partitions(self, bench: Bench) -> Iterator[tuple[str, ...]]:  # noqa: ARG002  (one partition in every suite)
        """One."""
        return iter([()])

    def inputs(self, bench: Bench, *parts: str) -> dict[str, Any] | None:  # noqa: ARG002
        """The hash that the panel carries of itself."""
        panel = active_panel(bench)
        return None if panel is None else {"panel": panel["name"], "sha256": panel["sha256"]}

    def build(self, bench: Bench, staging: Staging, *parts: str) -> Built:  # noqa: ARG002
        """Copy the verified file, so that the store holds what the scores were taken against."""
        panel, path = require_panel(bench), panel_path(bench)
        shutil.copyfile(str(path), staging.path(PANEL_FILE))
        return Built(
            {
                "name": panel["name"],
                "encoders": sorted(panel["encoders"]),
                "datasets": {name: bool(facts["rankable"]) for name, facts in panel["datasets"].items()},
                "sha256": panel["sha256"],
            },
            data_version=panel["sha256"],
        )
