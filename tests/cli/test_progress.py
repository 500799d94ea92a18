"""Progress where nobody watches: plain lines, not too many, no control codes."""

import io

import pytest
from rich.console import Console

from crs_assets.cli.progress import Bars, Lines, run_progress
from crs_assets.stages.progress import Progress


def report(done: int) -> Progress:
    return Progress("features", ("vit-a", "demo-skin"), done, 400, "images", 50.0)


def test_a_log_gets_plain_lines_with_rate_and_time_left():
    text = io.StringIO()
    with Lines(Console(file=text, width=40), interval=0) as shown:
        shown.announce("features", "vit-a", 3)
        shown.report(report(100))
    assert text.getvalue().splitlines() == [
        "  features              vit-a                               3 partitions",
        "    features vit-a|demo-skin: 100 of 400 images, 50 images/s, 6 s left",
    ]


def test_a_log_gets_one_line_per_interval():
    text = io.StringIO()
    with Lines(Console(file=text), interval=3600) as shown:
        shown.announce("features", "vit-a", 1)
        for done in range(0, 400, 10):
            shown.report(report(done))
    assert len(text.getvalue().splitlines()) == 1
    assert "\x1b" not in text.getvalue()


@pytest.mark.parametrize(("terminal", "kind"), [(True, Bars), (False, Lines)])
def test_bars_are_for_terminals(terminal, kind):
    assert isinstance(run_progress(Console(file=io.StringIO(), force_terminal=terminal)), kind)


def test_bars_show_one_partition_and_leave_the_steps_behind():
    text = io.StringIO()
    with Bars(Console(file=text, force_terminal=True, width=120)) as shown:
        shown.announce("features", "vit-a", 3)
        shown.report(report(100))
        shown.report(report(200))
        shown.announce("probes", "vit-a", 2)
    assert "3 partitions" in text.getvalue()
    assert "2 partitions" in text.getvalue()
