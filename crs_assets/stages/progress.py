"""Progress of long work: stages report, whoever runs them decides how it is shown."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """One report: ``done`` of ``total`` units of a partition's work.

    Attributes:
        stage: The stage's name.
        parts: The partition.
        done: Units finished.
        total: Units in all.
        unit: What is counted, in the plural.
        rate: Units per second of this run; 0 while unknown.
        busy: Share of the time so far in which the encoder was at work; None for work without one.
    """

    stage: str
    parts: tuple[str, ...]
    done: int
    total: int
    unit: str
    rate: float = 0.0
    busy: float | None = None

    def line(self) -> str:
        """One line for a log."""
        left = f", {(self.total - self.done) / self.rate:.0f} s left" if self.rate else ""
        speed = f", {self.rate:.0f} {self.unit}/s" if self.rate else ""
        busy = "" if self.busy is None else f", encoder busy {self.busy:.0%}"
        return f"{self.stage} {'|'.join(self.parts)}: {self.done} of {self.total} {self.unit}{speed}{left}{busy}"


Sink = Callable[[Progress], None]

_sink: ContextVar[Sink | None] = ContextVar("progress_sink", default=None)


def report(progress: Progress) -> None:
    """Tell whoever listens; silent where nobody does."""
    sink = _sink.get()
    if sink:
        sink(progress)


def current_sink() -> Sink:
    """Whoever listens now; a sink that does nothing where nobody does."""
    return _sink.get() or (lambda _: None)


@contextmanager
def listening(sink: Sink) -> Iterator[None]:
    """Send the reports of the enclosed work to ``sink``."""
    token = _sink.set(sink)
    try:
        yield
    finally:
        _sink.reset(token)
