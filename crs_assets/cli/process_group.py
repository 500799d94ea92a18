"""A command and all that it starts, ended together: whoever stops this process stops every one of them."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

import psutil

GRACE_SECONDS = 30.0
"""How long a command may take to end what it started in its own order."""
LAST_SECONDS = 10.0
"""How long whatever it leaves behind may take to record that it was stopped."""

_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_POLL_SECONDS = 0.1
# What shells add to a signal's number for the status of a command that it ended.
_SIGNALLED = 128
# A process may end between two looks at it; another user's is none of the group's.
_OUT_OF_REACH = (psutil.NoSuchProcess, ProcessLookupError, PermissionError)


def run_group(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    grace: float = GRACE_SECONDS,
    last: float = LAST_SECONDS,
) -> int:
    """Run a command until it ends or this process is told to stop; nothing that it started is left.

    The command gets a process group of its own. An interrupt, a termination and the end of the terminal reach it as one
    interrupt, so that it can end its own in order; a second one cuts the waiting short. What is left of the group is
    terminated, and what is left then is killed. To be called in the main thread.

    Args:
        command: Program and arguments.
        environment: Its environment.
        grace: Seconds for the command to end.
        last: Seconds for the rest of its group, after that.

    Returns:
        The command's exit status; 128 + the number of the signal where this process was told to stop.
    """
    with _noted_signals() as noted:
        process = subprocess.Popen(command, env=environment, start_new_session=True)
        try:
            _wait(process, lambda: bool(noted))
            if process.poll() is None:
                deadline = time.monotonic() + grace
                process.send_signal(signal.SIGINT)
                _wait(process, lambda: len(noted) > 1 or time.monotonic() > deadline)
        finally:
            _end(process.pid, last)
            status = process.wait()
    return _SIGNALLED + noted[0] if noted else status


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """The signals to stop that arrive, in order; they do nothing else meanwhile."""
    noted: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)

    def disregard(_number: int, _: FrameType | None) -> None:
        """Stay deaf, as under nohup; a handler, unlike SIG_IGN, is not inherited by the command."""

    before = {number: signal.getsignal(number) for number in _STOPPING}
    for number, handler in before.items():
        signal.signal(number, disregard if handler == signal.SIG_IGN else note)
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _wait(process: "subprocess.Popen[bytes]", enough: Callable[[], bool]) -> None:
    """Until the process has ended, or it is enough."""
    while process.poll() is None and not enough():
        time.sleep(_POLL_SECONDS)


def _end(group: int, seconds: float) -> None:
    """Terminate what is left of a process group, and kill what does not heed that."""
    left = _members(group)
    for process in left:
        with suppress(*_OUT_OF_REACH):
            process.terminate()
    psutil.wait_procs(left, timeout=seconds)
    for process in _members(group):
        with suppress(*_OUT_OF_REACH):
            process.kill()


def _members(group: int) -> list[psutil.Process]:
    """Living processes of a group, those whose parent has ended too."""
    found = []
    for process in psutil.process_iter():
        with suppress(*_OUT_OF_REACH):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
