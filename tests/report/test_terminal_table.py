from io import StringIO

import pytest
from rich.console import Console

from crs_assets.report.terminal import leaderboard_table


def printed(table, width=100):
    stream = StringIO()
    Console(file=stream, width=width, no_color=True).print(table)
    return stream.getvalue()


def test_fits_a_hundred_columns_with_no_number_cut(page):
    text = printed(leaderboard_table(page.board, "demo-v1"))
    assert max(map(len, text.splitlines())) <= 100
    assert "…" not in text
    # The CRS of skin-only by hand: .6 x .5 + .25 x .697 + .15 x .5745 = .5604, second, third by AUROC.
    row = next(line.split() for line in text.splitlines() if "skin-only" in line)
    assert (row[0], row[2], row[-4:-2]) == ("2", "0.560", ["3", "+1"])


def test_the_letters_are_explained_and_a_long_id_breaks_at_a_hyphen(page):
    long_id = "efficientnet-lite0-untrained-112"
    rows = page.board.rows.with_columns(page.board.rows["encoder"].replace("pixels-16", long_id))
    text = printed(leaderboard_table(rows, "demo-v1"))
    assert "D dominance, I closeness to the ideal, W worst axis" in text
    assert {"efficientnet-lite0-", "untrained-112"} <= set(text.split())


def test_a_narrow_terminal_keeps_rank_score_and_axes(page):
    text = printed(leaderboard_table(page.board, "demo-v1", narrow=True), width=80)
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    # The CRS of skin-only by hand, as above; then its four axes.
    row = next(line.split() for line in text.splitlines() if "skin-only" in line)
    assert (row[0], row[2], len(row)) == ("2", "0.560", 10)


def test_names_reasons_and_controls(page):
    text = printed(leaderboard_table(page.board, "demo-v1"))
    assert "half-run: demo-fundus: missing: not run" in text
    assert "null controls, never ranked: pixels-16" in text
    assert text.index("dinov2-block6") < text.index("half-run") < text.index("pixels-16")


def test_stored_rows_give_the_same_table(page):
    assert printed(leaderboard_table(page.board.rows, "demo-v1")) == printed(leaderboard_table(page.board, "demo-v1"))


@pytest.mark.parametrize("reading", ["demo-v1", "demo-v1-skill"])
def test_any_reading_can_rank(page, reading):
    crs = page.board.rows.filter((page.board.rows["reading"] == reading) & (page.board.rows["rank"] == 1.0))["crs"][0]
    row = next(
        line.split() for line in printed(leaderboard_table(page.board, reading)).splitlines() if "lite0-112" in line
    )
    assert row[2] == f"{crs:.3f}"


def test_brackets_in_a_reason_are_text(page_of, entry_of):
    cells = {"demo-skin": ((1, 1), 0.6, 0.5, (0.9, 0.1, 0.9, 0.1))}
    entry = entry_of("a", "A", cells, states={"demo-fundus": "absent: [red]no[/red]", "demo-chest": "absent: y"})
    assert "absent: [red]no[/red]" in printed(leaderboard_table(page_of([entry]).board, "demo-v1"))
