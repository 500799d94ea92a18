"""Making a run's partitions side by side, while their events are still recorded one after the other.

Probes are many short operations, which threads of one interpreter would take in turns; so they go to processes, which
share the features through the files that they map.
"""

import atexit
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import active_children, get_context, parent_process

from crs_assets.assets.errors import RemoteError
from crs_assets.partitions import key_parts
from crs_assets.resources.bench import Bench
from crs_assets.stages.stage import Outcome, Stage


@dataclass
class Attempt:
    """What became of a partition: the outcomes of its stages by name, and the error that ended them."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    error: RemoteError | None = None

    def outcome(self, stage: Stage) -> Outcome:
        """The outcome of one of its stages.

        Raises:
            RemoteError: What ended it, or a stage before it.
        """
        if stage.name not in self.outcomes and self.error is not None:
            raise self.error
        return self.outcomes[stage.name]


@contextmanager
def made_ahead(
    bench: Bench, stages: Sequence[Stage], partitions: Sequence[str]
) -> Iterator[Mapping[str, "Future[Attempt]"]]:
    """Begin all partitions in other processes, where the stages allow it; elsewhere nothing is begun.

    Args:
        bench: The bench.
        stages: Stages of the run, upstream first.
        partitions: Keys, in the order in which their outcomes will be asked for.

    Yields:
        Partition key -> what will become of it; empty where nothing was begun.
    """
    processes = bench.compute.fits if bench.compute.kind == "cpu" else 1
    if min(processes, len(partitions)) < 2 or not all(stage.side_by_side for stage in stages):
        yield {}
        return
    pool = _pool(processes)
    begun = {partition: pool.submit(_attempt, bench, tuple(stages), partition) for partition in partitions}
    try:
        yield begun
    finally:
        _settle(pool, begun.values())


@cache
def _pool(processes: int) -> ProcessPoolExecutor:
    # Kept for the next run: starting the interpreters takes as long as dozens of small probes.
    pool = ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_enter)
    atexit.register(pool.shutdown, cancel_futures=True)
    return pool


def _settle(pool: ProcessPoolExecutor, attempts: Iterable["Future[Attempt]"]) -> None:
    """Give the pool up where it is of no further use: the run left work behind, or one of its processes died."""
    kept = [attempt for attempt in attempts if not attempt.cancel()]
    abandoned = any(attempt.running() for attempt in kept)
    broken = any(isinstance(attempt.exception(), BrokenProcessPool) for attempt in kept if attempt.done())
    if abandoned or broken:
        _pool.cache_clear()
    if abandoned:
        # An interruption must not wait for work whose result nobody will ask for; what is half written is dropped.
        for process in active_children():
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)


def _enter() -> None:
    """In each process: leave Ctrl-C to the parent, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _attempt(bench: Bench, stages: Sequence[Stage], partition: str) -> Attempt:
    attempt = Attempt()
    for stage in stages:
        try:
            attempt.outcomes[stage.name] = stage.ensure(bench, *key_parts(partition))
        # Kept for the step that asks for this partition, which reports it as it would its own.
        except Exception as error:
            attempt.error = RemoteError.of(error)
            break
    return attempt
