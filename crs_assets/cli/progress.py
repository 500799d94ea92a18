"""Progress of a run: bars that move where a person watches, plain lines at intervals where a log is written."""

import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn

from crs_assets.stages import progress as stage_progress

LINE_EVERY_SECONDS = 10.0


class RunProgress(Protocol):
    """What a run tells while it goes on; a context manager that is open as long as the run."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Leave nothing behind that moves."""

    def announce(self, step: str, encoder: str, partitions: int) -> None:
        """A step begins."""

    def report(self, progress: stage_progress.Progress) -> None:
        """A stage's own report."""


def run_progress(console: Console) -> RunProgress:
    """Bars on a terminal, lines elsewhere."""
    return Bars(console) if console.is_terminal else Lines(console)


class Lines:
    """Plain lines, at most one per interval: no control codes, readable in the log of a batch job."""

    def __init__(self, console: Console, interval: float = LINE_EVERY_SECONDS) -> None:
        self._console = console
        self._interval = interval
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def announce(self, step: str, encoder: str, partitions: int) -> None:
        """A step begins."""
        _print_step(self._console, step, encoder, partitions)
        self._last = time.monotonic()

    def report(self, progress: stage_progress.Progress) -> None:
        """Print one line if the last is long enough ago."""
        if time.monotonic() - self._last >= self._interval:
            self._last = time.monotonic()
            self._console.print(f"    {progress.line()}", highlight=False, markup=False, soft_wrap=True)


class Bars:
    """One bar for the partition in hand: stage, encoder, images per second, time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f} {task.fields[unit]}"),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._name = ""

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def announce(self, step: str, encoder: str, partitions: int) -> None:
        """A step begins."""
        self._clear()
        _print_step(self._console, step, encoder, partitions)

    def report(self, progress: stage_progress.Progress) -> None:
        """Move the bar, or begin a new one for another partition."""
        name = f"{progress.stage} {' '.join(progress.parts)}"
        if self._task is None or name != self._name:
            self._clear()
            self._name = name
            self._task = self._progress.add_task(name, total=progress.total, unit=progress.unit, rate="")
        rate = f"{progress.rate:.0f} {progress.unit}/s" if progress.rate else ""
        if progress.busy is not None:
            rate += f", encoder busy {progress.busy:.0%}"
        self._progress.update(self._task, completed=progress.done, rate=rate)

    def _clear(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None


def _print_step(console: Console, step: str, encoder: str, partitions: int) -> None:
    count = "1 partition" if partitions == 1 else f"{partitions} partitions"
    console.print(f"  {step:<22}{encoder or 'all':<36}{count}", highlight=False, markup=False, soft_wrap=True)
