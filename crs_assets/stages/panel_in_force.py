"""The panel that a suite's scores are taken against: where it lies, and which command leads to one."""

from pathlib import Path
from typing import Any

from crs_assets.resources.bench import Bench
from crs_assets.science import panel as panels
from crs_assets.science.suite import CATALOG_FOLDER, LOCAL_PANEL
from crs_assets.stages.stage import RefusedError

SHIPPED_PANELS = CATALOG_FOLDER / "panels"


def panel_path(bench: Bench) -> Path | None:
    """File of the panel that scores are taken against; None where the suite has no panel yet."""
    name = bench.suite.spec.panel
    if name == LOCAL_PANEL:
        pointer = panel_pointer(bench)
        return bench.home.panels / f"{pointer.read_text().strip()}.json" if pointer.exists() else None
    shipped = SHIPPED_PANELS / f"{name}.json"
    return shipped if shipped.exists() else bench.home.panels / f"{name}.json"


def panel_pointer(bench: Bench) -> Path:
    """File that holds the name of the panel last frozen from the suite."""
    bench.home.panels.mkdir(parents=True, exist_ok=True)
    return bench.home.panels / f"{bench.suite.id}.active"


def active_panel(bench: Bench) -> dict[str, Any] | None:
    """The verified panel that scores are taken against; None where the suite has none yet.

    Raises:
        PanelError: If its file is gone, or altered.
    """
    path = panel_path(bench)
    if path is None:
        return None
    if not path.exists():
        raise panels.PanelError(_absent(bench, path))
    return panels.read(path)


def require_panel(bench: Bench) -> dict[str, Any]:
    """The verified panel that scores are taken against.

    Raises:
        RefusedError: If the suite has none yet.
        PanelError: If its file is gone, or altered.
    """
    panel = active_panel(bench)
    if panel is None:
        raise RefusedError(
            f"suite {bench.suite.id} has no reference panel yet; make and freeze one: {scoring_command(bench)}"
        )
    return panel


def scoring_command(bench: Bench) -> str:
    """The command that leads to scores from whatever is there: it freezes a panel where the suite has none yet."""
    return bench.suite.command("run") + ("" if panel_path(bench) else " --freeze-panel")


def _absent(bench: Bench, path: Path) -> str:
    suite = bench.suite
    if suite.spec.panel == LOCAL_PANEL:
        return f"no panel {path.stem}; bring {path.name} back, or freeze another: {suite.command('panel freeze')}"
    return (
        f"no panel {path.stem}, which suite {suite.id} is scored against; copy {path.name} to {path.parent}, or set "
        f'panel = "{LOCAL_PANEL}" in the suite.'
    )
